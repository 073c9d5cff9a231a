"""A topic in memory: retention of its partitions, and waiters for appends."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topics_helpers import MESSAGE_MAX_BYTES, producer_batch
from work_counter import WorkCounter

from callboard.actors.errors import CoordinatorError
from callboard.actors.steps import ITEMS_PER_STEP, run_steps
from callboard.runtime.settings.rows import LONG_MAX
from callboard.runtime.topics.held_records import HeldRecords
from callboard.runtime.topics.policy import TopicPolicy
from callboard.runtime.topics.setting_values import NO_OVERRIDES
from callboard.runtime.topics.topic import DROPS_PER_APPEND, TOPIC_DELETED, Topic

BATCH_BYTES = len(producer_batch())


class InMemoryEnds:
    """End offsets of a topic in memory; each partition begins at 0."""

    def __init__(self, count: int, stored_ends: dict[int, int]) -> None:
        self._count = count
        self._stored_ends = stored_ends

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        return self._stored_ends.get(index, 0)

    def store(self, index: int, offset: int) -> None:
        self._stored_ends[index] = offset


def topic_of(partitions: int, retention_bytes: int) -> tuple[Topic, dict[int, int]]:
    """A topic, and the end offsets that it has stored."""
    stored_ends: dict[int, int] = {}
    return Topic(
        "plays",
        UUID(int=7),
        InMemoryEnds(partitions, stored_ends),
        TopicPolicy(NO_OVERRIDES, MESSAGE_MAX_BYTES, retention_bytes, LONG_MAX, LONG_MAX, is_compacted=False),
        HeldRecords(lambda: 2**63),
    ), stored_ends


def bounds(topic: Topic) -> list[tuple[int, int]]:
    return [(log.start_offset, log.end_offset) for log in topic.partitions]


def test_append_to_full_topic_drops_oldest_batches() -> None:
    topic, _ = topic_of(1, 3 * BATCH_BYTES)
    for _ in range(5):
        topic.append(0, producer_batch())
    assert bounds(topic) == [(2, 5)]
    assert topic.held_bytes == 3 * BATCH_BYTES


def test_append_to_busy_partition_keeps_records_of_quiet_one() -> None:
    topic, _ = topic_of(2, 4 * BATCH_BYTES)
    topic.append(1, producer_batch())
    for _ in range(20):
        topic.append(0, producer_batch())
    assert bounds(topic) == [(17, 20), (0, 1)]


def test_append_of_batch_above_retention_keeps_it() -> None:
    """Otherwise a producer would get an offset that no consumer can ever read."""
    topic, _ = topic_of(2, BATCH_BYTES)
    topic.append(0, producer_batch())
    topic.append(1, producer_batch(value=b"x" * 5000))
    assert bounds(topic) == [(1, 1), (0, 1)]
    topic.append(0, producer_batch())
    assert bounds(topic) == [(1, 2), (1, 1)]


def test_append_of_refused_batch_drops_nothing() -> None:
    topic, stored_ends = topic_of(1, BATCH_BYTES)
    topic.append(0, producer_batch())
    with pytest.raises(CoordinatorError):
        topic.append(0, producer_batch(value=b"x" * 500, crc_change=1))
    assert bounds(topic) == [(0, 1)]
    assert stored_ends == {0: 1}


@given(
    retention=st.integers(1, 2000),
    batches=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(0, 300)), max_size=40),
)
def test_held_bytes_stay_within_retention_or_newest_batch(retention: int, batches: list[tuple[int, int, int]]) -> None:
    topic, stored_ends = topic_of(3, retention)
    ends = [0, 0, 0]
    for partition, count, size in batches:
        records = producer_batch(count, value=b"v" * size)
        assert topic.append(partition, records) == ends[partition]
        ends[partition] += count
        log = topic.partitions[partition]
        assert bytes(log.read(ends[partition] - 1, len(records)))[16:] == records[16:]
        assert topic.held_bytes == sum(log.size_bytes for log in topic.partitions)
        assert topic.held_bytes <= max(retention, len(records))
    assert [stored_ends.get(partition, 0) for partition in range(3)] == ends


def test_lowered_retention_is_enforced_in_pieces_by_appends_and_by_the_cleaner() -> None:
    topic, _ = topic_of(2, 2_000 * BATCH_BYTES)
    for number in range(1_000):
        topic.append(number % 2, producer_batch())
    topic.use_policy(topic.policy._replace(retention_bytes=10 * BATCH_BYTES))
    topic.append(0, producer_batch())
    assert topic.held_bytes == (1_001 - DROPS_PER_APPEND) * BATCH_BYTES
    steps = sum(1 for _ in topic.expire(0))
    assert topic.held_bytes == 10 * BATCH_BYTES
    assert steps > 900


def test_append_to_full_topic_does_not_look_at_all_partitions() -> None:
    def lines_of_append(partitions: int) -> int:
        topic, _ = topic_of(partitions, partitions * BATCH_BYTES)
        for index in range(partitions):
            topic.append(index, producer_batch())
        counter = WorkCounter()
        with counter.counting():
            topic.append(0, producer_batch())
        counter.end_piece()
        return counter.longest

    assert lines_of_append(2_000) < lines_of_append(20) + 200


def test_append_stores_end_before_calling_waiters() -> None:
    """A waiting consumer may commit at once, so the stored end must not be below its offset."""
    topic, stored_ends = topic_of(1, 10_000)
    calls: list[tuple[int, int]] = []
    topic.partitions[0].waiters.add(lambda size: calls.append((size, stored_ends[0])))
    topic.append(0, producer_batch(3))
    assert calls == [(len(producer_batch(3)), 3)]


def test_append_of_duplicate_calls_no_waiter() -> None:
    topic, _ = topic_of(1, 10_000)
    records = producer_batch(producer=(1, 0, 0))
    topic.append(0, records)
    topic.partitions[0].waiters.add(lambda _size: pytest.fail("there is nothing new"))
    assert topic.append(0, records) == 0


def test_waiter_may_remove_itself_when_called() -> None:
    topic, _ = topic_of(1, 10_000)
    log = topic.partitions[0]
    calls: list[int] = []

    def once(size: int) -> None:
        log.waiters.discard(once)
        calls.append(size)

    log.waiters.add(once)
    topic.append(0, producer_batch())
    topic.append(0, producer_batch())
    assert calls == [BATCH_BYTES]


def test_close_calls_waiters_with_topic_deleted() -> None:
    topic, _ = topic_of(2, 10_000)
    calls: list[int] = []
    topic.partitions[1].waiters.add(calls.append)
    topic.close()
    assert calls == [TOPIC_DELETED]


# Leadership ----------------------------------------------------------------------------------------------------------


def test_work_on_records_ends_when_leadership_does() -> None:
    topic, _ = topic_of(1, 100 * BATCH_BYTES)
    for _ in range(3 * ITEMS_PER_STEP):
        topic.append(0, producer_batch())
    steps = topic.delete_records(0, 3 * ITEMS_PER_STEP)
    next(steps)
    topic.give_up()
    topic.lead(1, 1000)
    topic.append(0, producer_batch())
    run_steps(steps)
    assert (topic.held_bytes, topic.partitions[0].end_offset) == (BATCH_BYTES, 1001)


def test_new_partitions_of_a_topic_begin_where_the_others_did() -> None:
    topic, ends = topic_of(2, LONG_MAX)
    ends[1] = 7
    topic.lead(1, 5)
    assert [log.start_offset for log in topic.partitions] == [5, 7]
