"""The index of timestamps of batches gives the same results as a scan of all batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from topics_helpers import MESSAGE_MAX_BYTES, producer_batch

from callboard.actors.steps import run_steps
from callboard.runtime.topics.batch_times import LARGE_BLOCK, BatchTimes
from callboard.runtime.topics.partition_log import PartitionLog


def times_of(timestamps: list[int]) -> BatchTimes:
    times = BatchTimes()
    for timestamp in timestamps:
        times.append(timestamp)
    return times


@given(
    st.lists(st.integers(-3, 5), max_size=300),
    st.lists(st.tuples(st.integers(0, 299), st.integers(-3, 5)), max_size=5),
    st.integers(0, 300),
    st.integers(-4, 6),
)
def test_search_finds_the_same_as_a_scan(
    timestamps: list[int], corrections: list[tuple[int, int]], start: int, wanted: int
) -> None:
    times = times_of(timestamps)
    for number, timestamp in corrections:
        if number < len(timestamps):
            times.lower(number, timestamp)
            timestamps[number] = timestamp
    start = min(start, len(timestamps))
    scan = (number for number in range(start, len(timestamps)) if timestamps[number] >= wanted)
    assert times.find_first_since(start, wanted) == next(scan, None)
    assert times.highest(start) == max(timestamps[start:], default=None)


def test_numbers_stay_valid_when_older_batches_are_dropped() -> None:
    count = 3 * LARGE_BLOCK
    times = times_of(list(range(count)))
    times.drop_before(2 * LARGE_BLOCK + 5)
    assert times.end == count
    assert times.find_first_since(2 * LARGE_BLOCK + 5, 0) == 2 * LARGE_BLOCK + 5
    assert times.find_first_since(2 * LARGE_BLOCK + 5, count - 2) == count - 2
    assert times.highest(count - 1) == times[count - 1] == count - 1
    times.append(count)
    assert times.find_first_since(count - 1, count) == count


def test_search_after_older_batches_are_dropped_finds_remaining_records() -> None:
    log = PartitionLog(MESSAGE_MAX_BYTES)
    log.append(producer_batch(timestamps=[9000]))
    for timestamp in range(1000, 1200):
        log.append(producer_batch(timestamps=[timestamp]))
    for _ in range(120):
        log.drop_oldest()
    assert run_steps(log.find_first_since(0)) == (1119, 120)
    assert run_steps(log.find_first_since(1150)) == (1150, 151)
    assert run_steps(log.find_first_since(1200)) is None
    assert run_steps(log.find_newest()) == (1199, 200)


def test_header_with_too_high_timestamp_is_read_once() -> None:
    """Kafka rewrites such a header. Here the index is corrected when a search reads the batch."""
    log = PartitionLog(MESSAGE_MAX_BYTES)
    log.append(producer_batch(1, timestamps=[10, 9999]))  # the second timestamp has no record
    log.append(producer_batch(timestamps=[20]))
    assert run_steps(log.find_first_since(15)) == (20, 1)
    assert run_steps(log.find_newest()) == (20, 1)
    assert run_steps(log.find_first_since(5)) == (10, 0)
