"""Limits for the timestamps of produced records, and ``message.timestamp.type``, as Kafka 4.3 answered them.

The same requests to a Kafka 4.3.1 gave the same responses, but for the times in them, and for the text about a producer
that sets the timestamp type.
"""

from __future__ import annotations

import gzip
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from topic_api_helpers import (
    NEWEST,
    FakeServices,
    create_topics,
    fetch,
    list_offsets,
    node,
    produce,
    produce_request,
    versions,
)
from topics_helpers import producer_batch

from callboard.actors.errors import ErrorCode
from callboard.actors.steps import ITEMS_PER_STEP
from callboard.runtime.log.format.batch import frame_record, read_batches
from callboard.runtime.settings.rows import LONG_MAX
from callboard.runtime.topics.produced_times import TimestampLimits, find_invalid_times

__all__ = ["node"]  # the fixture

NOW_MS = 1_795_906_552_000
HOUR_MS = 3_600_000
APPEND_TIME_BIT = 0x08
GZIP = 1
REJECTED = "One or more records have been rejected due to invalid timestamp"


class FixedClock:
    def wall_ms(self) -> int:
        return NOW_MS


@pytest.fixture(autouse=True)
def fixed_clock(node: FakeServices) -> None:
    node.clock = FixedClock()  # type: ignore[assignment]


def topic(node: FakeServices, **settings: str) -> str:
    configs = {name.replace("_", "."): text for name, text in settings.items()}
    assert create_topics(node, {"name": "t", "configs": configs})["t"].error_code == 0
    return "t"


def end_offset(node: FakeServices) -> int:
    found = node.topics.get("t")
    assert found is not None
    return found.partitions[0].end_offset


@versions("produce")
def test_batch_with_a_record_of_the_future_is_refused(node: FakeServices, name: str, version: int) -> None:
    late_ms = NOW_MS + HOUR_MS + 1
    answer = produce(node, topic(node), producer_batch(3, timestamps=[NOW_MS, late_ms, 5]), version=version)
    assert (answer.error_code, answer.base_offset, end_offset(node)) == (ErrorCode.INVALID_TIMESTAMP, -1, 0)
    assert getattr(answer, "log_start_offset", 0) == 0
    if version >= 8:
        assert answer.error_message == REJECTED
        [error] = answer.record_errors
        assert (error.batch_index, error.batch_index_error_message) == (
            1,
            f"Timestamp {late_ms} of message with offset 1 is out of range. The timestamp should be within"
            f" [{NOW_MS - LONG_MAX}, {NOW_MS + HOUR_MS}]",
        )


@pytest.mark.parametrize(
    ("settings", "timestamps"),
    [
        ({}, [NOW_MS + HOUR_MS]),
        ({}, [0]),
        ({}, [-1]),
        ({"message_timestamp_after_max_ms": str(9 * HOUR_MS)}, [NOW_MS + 9 * HOUR_MS]),
        ({"message_timestamp_before_max_ms": "1000"}, [NOW_MS, NOW_MS - 1000]),
        ({"message_timestamp_before_max_ms": "1000"}, [-1]),
        ({"message_timestamp_type": "LogAppendTime"}, [NOW_MS + 9 * HOUR_MS, 5]),
    ],
)
def test_batch_within_the_limits_is_stored(node: FakeServices, settings: dict[str, str], timestamps: list[int]) -> None:
    answer = produce(node, topic(node, **settings), producer_batch(len(timestamps), timestamps=timestamps))
    assert (answer.error_code, answer.record_errors) == (0, ())
    assert end_offset(node) == len(timestamps)


@pytest.mark.parametrize(
    ("settings", "timestamps", "attributes", "refused"),
    [
        ({"message_timestamp_after_max_ms": "0"}, [NOW_MS, NOW_MS + 1], 0, [1]),
        ({"message_timestamp_before_max_ms": "1000"}, [NOW_MS, NOW_MS - 1001, NOW_MS], 0, [1]),
        ({"message_timestamp_type": "LogAppendTime"}, [NOW_MS, NOW_MS], APPEND_TIME_BIT, [0, 1]),
        ({}, [NOW_MS, NOW_MS + 2 * HOUR_MS], APPEND_TIME_BIT, [0, 1]),
    ],
    ids=["after", "before", "type", "type and after"],
)
def test_each_refused_record_is_named(
    node: FakeServices, settings: dict[str, str], timestamps: list[int], attributes: int, refused: list[int]
) -> None:
    batch = producer_batch(len(timestamps), timestamps=timestamps, attributes=attributes)
    answer = produce(node, topic(node, **settings), batch)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_TIMESTAMP, REJECTED)
    assert [error.batch_index for error in answer.record_errors] == refused


def test_header_that_claims_a_later_time_than_its_records_refuses_nothing(node: FakeServices) -> None:
    assert produce(node, topic(node), producer_batch(1, timestamps=[NOW_MS, NOW_MS + 2 * HOUR_MS])).error_code == 0


def test_compressed_batch_is_refused_for_the_time_in_its_header(node: FakeServices) -> None:
    records = gzip.compress(frame_record(0, 0, b"k", b"v"))
    for time_ms, code in ((NOW_MS + 2 * HOUR_MS, ErrorCode.INVALID_TIMESTAMP), (NOW_MS, 0)):
        batch = producer_batch(records=records, attributes=GZIP, timestamps=[time_ms])
        name = "t" if node.topics.get("t") else topic(node)
        answer = produce(node, name, batch)
        assert (answer.error_code, answer.record_errors) == (code, ())


def test_damaged_batch_is_refused_for_the_damage(node: FakeServices) -> None:
    batch = producer_batch(timestamps=[NOW_MS + 2 * HOUR_MS], crc_change=1)
    assert produce(node, topic(node), batch).error_code == ErrorCode.CORRUPT_MESSAGE


def test_refused_batch_without_acknowledgement_closes_the_connection(node: FakeServices) -> None:
    times = [NOW_MS + 2 * HOUR_MS] * 3 * ITEMS_PER_STEP
    request = produce_request(node, topic(node), producer_batch(len(times), timestamps=times), acks=0)
    assert request.connection.is_closed


def test_records_get_the_time_of_the_append(node: FakeServices) -> None:
    """Readers take it from the header, for every record."""
    name = topic(node, message_timestamp_type="LogAppendTime")
    answer = produce(node, name, producer_batch(3, timestamps=[5, NOW_MS + 9 * HOUR_MS, 7]))
    assert answer.log_append_time == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=NOW_MS)
    [partition] = fetch(node, (name, 0, 0))
    [batch] = read_batches(partition.records)
    assert [(offset, timestamp_ms) for offset, timestamp_ms, *_ in batch.records()] == [(n, NOW_MS) for n in range(3)]
    found: list[Any] = [list_offsets(node, name, timestamp) for timestamp in (NEWEST, NOW_MS, NOW_MS + 1)]
    assert [(each.timestamp, each.offset) for each in found] == [(NOW_MS, 0), (NOW_MS, 0), (-1, -1)]


def test_records_are_checked_in_steps() -> None:
    times = [NOW_MS] * 3 * ITEMS_PER_STEP
    limits = TimestampLimits(before_max_ms=1)
    steps = find_invalid_times(producer_batch(len(times), timestamps=times), limits, NOW_MS)
    assert len(list(steps)) == 3
