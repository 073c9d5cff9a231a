"""DeleteRecords: raises the start of a partition; consumers and searches see no records before it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topic_api_helpers import ApiRequest, FakeServices, fetch, list_offsets, newest, node, produce, versions
from topics_helpers import MESSAGE_MAX_BYTES, producer_batch

from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.actors.steps import run_steps
from callboard.runtime.settings.table import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from callboard.runtime.topics.partition_log import PartitionLog

__all__ = ["node"]  # the fixture

ALL = 2**31
GZIP = 1
TRANSACTIONAL = 0x10
EARLIEST = -2
TO_THE_END = -1


def log_of(*batches: bytes) -> PartitionLog:
    log = PartitionLog(MESSAGE_MAX_BYTES)
    for batch in batches:
        log.append(batch)
    return log


@given(sizes=st.lists(st.integers(1, 4), max_size=6), steps=st.lists(st.integers(0, 24), max_size=4))
def test_delete_before_drops_whole_batches_and_never_lowers_start(sizes: list[int], steps: list[int]) -> None:
    """Compared with a model: batches as (first, end); the start is the largest requested offset."""
    log = log_of(*(producer_batch(count) for count in sizes))
    end = log.end_offset
    places = [(sum(sizes[:index]), sum(sizes[: index + 1])) for index in range(len(sizes))]
    start = 0
    for offset in (step for step in steps if step <= end):
        held = log.size_bytes
        start = max(start, offset)
        assert log.delete_before(offset) == held - log.size_bytes
        remaining = [producer_batch(last - first) for first, last in places if last > start]
        assert (log.start_offset, log.end_offset) == (start, end)
        assert log.size_bytes == sum(map(len, remaining)) == len(log.read(start, ALL))
        for before in range(start):
            with pytest.raises(CoordinatorError):
                log.read(before, ALL)


@pytest.mark.parametrize("offset", [-2, 4, 2**62])
def test_delete_before_offset_out_of_range_is_refused(offset: int) -> None:
    log = log_of(producer_batch(3))
    with pytest.raises(CoordinatorError) as caught:
        log.delete_before(offset)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.start_offset == 0


def test_find_first_since_ignores_deleted_records() -> None:
    log = log_of(producer_batch(3, timestamps=[1000, 3000, 2000]), producer_batch(1, timestamps=[2500]))
    log.delete_before(2)
    assert run_steps(log.find_first_since(500)) == (2000, 2)
    assert run_steps(log.find_first_since(2100)) == (2500, 3)
    assert run_steps(log.find_first_since(2600)) is None


def test_find_first_since_in_compressed_batch_returns_start_offset() -> None:
    log = log_of(producer_batch(5, attributes=GZIP, timestamps=list(range(5000, 5005)), records=b"squeezed"))
    log.delete_before(2)
    assert run_steps(log.find_first_since(5000)) == (5004, 2)


def test_last_stable_offset_ignores_transaction_before_start() -> None:
    """As in Kafka, the last stable offset is never below the start; otherwise a consumer would reset forever."""
    log = log_of(producer_batch(2, producer=(7, 0, 0), attributes=TRANSACTIONAL), producer_batch(2))
    assert log.last_stable_offset == 0
    log.delete_before(3)
    assert log.last_stable_offset == 3


def delete(node: FakeServices, name: str, version: int = newest("delete_records"), **offsets: int) -> Any:
    """Delete records of partitions given as ``p0=3``; returns error and low watermark of each."""

    def build(types: Any) -> Any:
        wanted = tuple(
            types.DeleteRecordsPartition(partition_index=int(key[1:]), offset=offset) for key, offset in offsets.items()
        )
        topic = types.DeleteRecordsTopic(name=name, partitions=wanted)
        return types.DeleteRecordsRequest(topics=(topic,), timeout=timedelta(seconds=1))

    [topic] = ApiRequest(node, "delete_records", version, build).answer.topics
    assert topic.name == name
    return {f"p{result.partition_index}": (result.error_code, result.low_watermark) for result in topic.partitions}


@versions("delete_records")
def test_delete_records_of_every_version_returns_low_watermark(node: FakeServices, name: str, version: int) -> None:
    node.topics.create("plays", 3)
    for partition in (0, 1, 2):
        produce(node, "plays", producer_batch(4), partition=partition)
    assert delete(node, "plays", version, p0=3, p1=TO_THE_END, p2=9, p3=0) == {
        "p0": (ErrorCode.NONE, 3),
        "p1": (ErrorCode.NONE, 4),
        "p2": (ErrorCode.OFFSET_OUT_OF_RANGE, -1),
        "p3": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    }
    assert [list_offsets(node, "plays", EARLIEST, partition=index).offset for index in range(3)] == [3, 4, 0]
    assert delete(node, "nobody", version, p0=0) == {"p0": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)}


def test_fetch_of_deleted_records_is_out_of_range_and_bytes_are_freed(node: FakeServices) -> None:
    topic = node.topics.create("plays", 1)
    produce(node, "plays", producer_batch(2))
    produce(node, "plays", producer_batch(2))
    assert delete(node, "plays", p0=2) == {"p0": (ErrorCode.NONE, 2)}
    assert topic.held_bytes == topic.partitions[0].size_bytes == len(producer_batch(2))
    [before] = fetch(node, ("plays", 0, 1))
    assert (before.error_code, before.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    [at] = fetch(node, ("plays", 0, 2))
    assert (at.error_code, at.log_start_offset, at.high_watermark) == (ErrorCode.NONE, 2, 4)


@pytest.mark.parametrize("name", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
def test_delete_records_of_internal_topic_is_refused(node: FakeServices, name: str) -> None:
    assert delete(node, name, p0=0, p99=0) == dict.fromkeys(("p0", "p99"), (ErrorCode.INVALID_TOPIC_EXCEPTION, -1))
