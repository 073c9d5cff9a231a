"""The times of records at offsets."""

from __future__ import annotations

import pytest
from topics_helpers import MESSAGE_MAX_BYTES, producer_batch

from callboard.runtime.topics.partition_log import PartitionLog
from callboard.runtime.topics.record_times import record_time_ms


@pytest.mark.parametrize(
    ("offset", "time_ms"), [(4, None), (5, 1000), (6, 1000), (7, 1000), (8, 2000), (9, None), (10, None), (-1, None)]
)
def test_time_of_a_record_is_that_of_its_batch(offset: int, time_ms: int | None) -> None:
    log = PartitionLog(MESSAGE_MAX_BYTES, 5)
    log.append(producer_batch(3, timestamps=[1000, 1001, 1002]))
    log.append(producer_batch(timestamps=[2000]))
    assert record_time_ms(log, offset) == time_ms


def test_record_that_was_deleted_or_has_no_time_is_unknown() -> None:
    log = PartitionLog(MESSAGE_MAX_BYTES)
    log.append(producer_batch(timestamps=[1000]))
    log.append(producer_batch(timestamps=[-1]))
    log.delete_before(1)
    assert [record_time_ms(log, offset) for offset in range(3)] == [None] * 3
