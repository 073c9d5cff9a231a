"""Errors and edge cases of Fetch.

The error codes were compared with Kafka 4.3. Exceptions: null records, errors of transactions, negative limits, a
leader epoch below -1, and the tests whose docstring names a difference.
"""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from topic_api_helpers import (
    EARLIEST,
    LATEST,
    FakeServices,
    delete_topics,
    fetch,
    fetch_request,
    fetched_partitions,
    list_offsets,
    made,
    node,
    produce,
)
from topics_helpers import producer_batch

from callboard.actors.errors import ErrorCode

__all__ = ["node"]

BATCH_BYTES = len(producer_batch())


def test_fetch_at_end_is_answered_after_append(node: FakeServices) -> None:
    made(node)
    waiting = fetch_request(node, ("plays", 0, 0), ("plays", 1, 0), max_wait_ms=500)
    assert not waiting.is_answered
    [timer] = node.timers
    assert timer.delay_ms == 500
    produce(node, "plays", producer_batch(2), partition=1)
    first, second = fetched_partitions(waiting)
    assert (first.records, second.high_watermark, len(second.records)) == (b"", 2, len(producer_batch(2)))
    assert timer.is_cancelled
    produce(node, "plays", producer_batch(), partition=0)
    assert waiting.is_answered, "exactly one response"


def test_fetch_at_end_is_answered_empty_after_max_wait(node: FakeServices) -> None:
    topic = made(node)
    waiting = fetch_request(node, ("plays", 0, 0), max_wait_ms=500)
    node.timers[0].callback()
    [partition] = fetched_partitions(waiting)
    assert (partition.error_code, partition.records, partition.high_watermark) == (0, b"", 0)
    assert not topic.partitions[0].waiters


def test_fetch_of_client_that_is_gone_ends_early(node: FakeServices) -> None:
    """It may wait for weeks, with all that it has requested."""
    topic = made(node)
    waiting = fetch_request(node, ("plays", 0, 0), max_wait_ms=2**31 - 1)
    node.timers[-1].callback()
    assert not waiting.is_answered
    waiting.connection.is_open = False
    assert node.timers[-1].delay_ms <= 1000
    node.timers[-1].callback()
    assert waiting.is_silent
    assert not topic.partitions[0].waiters


def test_long_wait_ends_when_its_time_is_over(node: FakeServices) -> None:
    made(node)
    waiting = fetch_request(node, ("plays", 0, 0), max_wait_ms=2500)
    for _ in range(2):
        node.timers[-1].callback()
    assert not waiting.is_answered
    node.timers[-1].callback()
    assert [timer.delay_ms for timer in node.timers] == [1000, 1000, 500]
    assert fetched_partitions(waiting)[0].error_code == 0


def test_fetch_that_has_waited_longest_is_answered_above_limit(tmp_path: Path) -> None:
    """Each client needs to send little to let a request with many partitions wait."""
    node = FakeServices(tmp_path, queued_max_request_bytes=150_000)
    made(node)
    usual = fetch_request(node, ("plays", 0, 0), max_wait_ms=60_000)
    first, second, third = (fetch_request(node, *[("plays", 1, 0)] * 150, max_wait_ms=60_000) for _ in range(3))
    assert [each.is_answered for each in (usual, first, second, third)] == [False, True, True, False]
    assert 0 < node.buffers.fetches.total_bytes <= 150_000
    third.connection.is_open = False
    node.timers[-1].callback()
    assert node.buffers.fetches.total_bytes == 0
    node.topics.files.close()


def test_fetch_waits_for_min_bytes(node: FakeServices) -> None:
    made(node)
    produce(node, "plays", producer_batch())
    waiting = fetch_request(node, ("plays", 0, 0), max_wait_ms=500, min_bytes=3 * BATCH_BYTES)
    produce(node, "plays", producer_batch())
    assert not waiting.is_answered
    produce(node, "plays", producer_batch())
    [partition] = fetched_partitions(waiting)
    assert len(partition.records) == 3 * BATCH_BYTES


def test_fetch_returns_fewer_than_min_bytes_after_max_wait(node: FakeServices) -> None:
    made(node)
    waiting = fetch_request(node, ("plays", 0, 0), max_wait_ms=500, min_bytes=10**6)
    produce(node, "plays", producer_batch())
    assert not waiting.is_answered
    node.timers[0].callback()
    [partition] = fetched_partitions(waiting)
    assert len(partition.records) == BATCH_BYTES


def test_waiting_fetch_is_answered_when_topic_is_deleted(node: FakeServices) -> None:
    made(node)
    by_id = fetch_request(node, ("plays", 0, 0), max_wait_ms=500, min_bytes=10**6)
    by_name = fetch_request(node, ("plays", 0, 0), max_wait_ms=500, version=12)
    delete_topics(node, "plays")
    assert [part.error_code for part in fetched_partitions(by_id)] == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert [part.error_code for part in fetched_partitions(by_name)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("options", [{"max_wait_ms": 0}, {"max_wait_ms": 500, "min_bytes": 0}])
def test_fetch_with_max_wait_0_is_answered_at_once(node: FakeServices, options: dict[str, int]) -> None:
    made(node)
    assert fetch(node, ("plays", 0, 0), **options)[0].records == b""
    assert not node.timers


def test_fetch_with_error_is_answered_at_once(node: FakeServices) -> None:
    made(node)
    good, bad = fetch(node, ("plays", 0, 0), ("plays", 1, 5), max_wait_ms=500)
    assert (good.error_code, bad.error_code) == (0, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert (bad.high_watermark, bad.last_stable_offset, bad.log_start_offset) == (-1, -1, -1)
    assert fetch(node, (uuid4(), 0, 0), max_wait_ms=500)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert fetch_request(node, max_wait_ms=500).answer.responses == ()
    assert not node.timers


@pytest.mark.parametrize(
    ("epoch", "code"), [(0, 0), (-1, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH), (-2, ErrorCode.FENCED_LEADER_EPOCH)]
)
def test_fetch_with_other_leader_epoch_is_refused(node: FakeServices, epoch: int, code: int) -> None:
    made(node)
    assert fetch(node, ("plays", 0, 0), leader_epoch=epoch)[0].error_code == code
    assert list_offsets(node, "plays", LATEST, leader_epoch=epoch).error_code == code


def test_fetch_respects_byte_limits_but_returns_first_batch(node: FakeServices) -> None:
    made(node)
    for partition in (0, 1):
        for _ in range(3):
            produce(node, "plays", producer_batch(), partition=partition)

    def sizes(**options: int) -> list[int]:
        partitions = fetch(node, ("plays", 0, 0), ("plays", 1, 0), **options)
        return [len(fetched.records) // BATCH_BYTES for fetched in partitions]

    assert sizes() == [3, 3]
    assert sizes(max_bytes=4 * BATCH_BYTES) == [3, 1]
    assert sizes(partition_max_bytes=2 * BATCH_BYTES) == [2, 2]
    assert sizes(max_bytes=1) == sizes(partition_max_bytes=0) == [1, 0]
    assert sizes(max_bytes=-1) == [1, 0]


def test_fetch_read_committed_returns_empty_list_of_aborted_transactions(node: FakeServices) -> None:
    made(node)
    assert fetch(node, ("plays", 0, 0), isolation_level=1)[0].aborted_transactions == ()
    assert fetch(node, ("plays", 0, 0))[0].aborted_transactions is None


@pytest.mark.parametrize("session", [(0, 0), (0, -1), (77, 0), (77, -1)])
def test_fetch_creates_no_session(node: FakeServices, session: tuple[int, int]) -> None:
    made(node)
    response = fetch_request(node, ("plays", 0, 0), session=session).answer
    assert (response.error_code, response.session_id, len(response.responses)) == (0, 0, 1)


@pytest.mark.parametrize("session", [(0, 5), (77, 1), (77, -2)])
def test_incremental_fetch_returns_session_not_found(node: FakeServices, session: tuple[int, int]) -> None:
    made(node)
    response = fetch_request(node, ("plays", 0, 0), session=session, max_wait_ms=500).answer
    assert (response.error_code, response.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert response.responses == ()


def test_fetch_of_dropped_records_returns_offset_out_of_range(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    services = FakeServices(folder, topic_retention_bytes=2 * BATCH_BYTES)
    made(services)
    for _ in range(5):
        produce(services, "plays", producer_batch())
    assert fetch(services, ("plays", 0, 2))[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    [partition] = fetch(services, ("plays", 0, 3))
    assert (len(partition.records), partition.log_start_offset, partition.high_watermark) == (2 * BATCH_BYTES, 3, 5)
    assert list_offsets(services, "plays", EARLIEST).offset == 3
    services.topics.files.close()
