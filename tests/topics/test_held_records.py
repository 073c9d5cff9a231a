"""The common limit of the records of all topics."""

from __future__ import annotations

from pathlib import Path

from harness import async_test, running_node
from hypothesis import given
from hypothesis import strategies as st
from topics_helpers import producer_batch

from callboard.actors.steps import run_steps
from callboard.runtime.topics.held_records import BATCH_BYTES, HeldRecords

MAX_BYTES = 100


class FakeTopic:
    """A topic whose batches are numbers of bytes."""

    def __init__(self, records: HeldRecords) -> None:
        self.batches: list[int] = []
        self._records = records

    def append(self, size_bytes: int) -> None:
        self.batches.append(size_bytes)
        self._records.change(self, size_bytes, 1)
        self._records.enforce_limit(self, size_bytes, drops_max=64)

    def drop_oldest(self) -> None:
        self._records.change(self, -self.batches.pop(0), -1)


def test_large_topic_drops_oldest_batches_for_new_batch_of_another() -> None:
    records = HeldRecords(lambda: MAX_BYTES)
    large, small, newest = (FakeTopic(records) for _ in range(3))
    for size_bytes in (20, 30, 30):
        large.append(size_bytes)
    small.append(10)
    newest.append(40)
    assert (large.batches, small.batches, newest.batches) == ([30], [10], [40])
    assert (records.total_bytes, records.batches) == (80, 3)
    assert records.memory_bytes == 80 + 3 * BATCH_BYTES


def test_batch_above_limit_is_kept_until_the_next() -> None:
    records = HeldRecords(lambda: MAX_BYTES)
    topic = FakeTopic(records)
    topic.append(MAX_BYTES + 1)
    assert topic.batches == [MAX_BYTES + 1]
    topic.append(1)
    assert topic.batches == [1]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 40)), max_size=60))
def test_total_stays_within_limit_and_newest_batch_is_kept(appends: list[tuple[int, int]]) -> None:
    records = HeldRecords(lambda: MAX_BYTES)
    topics = [FakeTopic(records) for _ in range(5)]
    for number, size_bytes in appends:
        topics[number].append(size_bytes)
        assert topics[number].batches[-1] == size_bytes
        assert records.total_bytes == sum(sum(topic.batches) for topic in topics)
        assert records.total_bytes <= MAX_BYTES + size_bytes
        assert records.batches == sum(len(topic.batches) for topic in topics)


@async_test
async def test_deleted_records_and_topics_are_not_counted(tmp_path: Path) -> None:
    batch = producer_batch(2)
    async with running_node(tmp_path, total_retention_bytes=10 * len(batch)) as harness:
        topics = harness.node.topics
        first, second = topics.get("t"), topics.get("u")
        assert first is not None
        assert second is not None
        empty_bytes = topics.memory_bytes
        for number in range(12):
            first.append(number % 3, batch)
        second.append(0, batch)
        assert first.held_bytes + second.held_bytes <= 10 * len(batch)
        assert second.held_bytes == len(batch)
        assert topics.memory_bytes > empty_bytes + 9 * len(batch)
        for index in range(3):
            run_steps(first.delete_records(index, first.partitions[index].end_offset))
        second.close()
        assert topics.memory_bytes == empty_bytes
