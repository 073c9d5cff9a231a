"""A topic in memory: what its partitions may hold together, and who hears of appends."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topics_helpers import MESSAGE_MAX_BYTES, sent

from callboard.actors.errors import CoordinatorError
from callboard.runtime.topics.topic import TOPIC_DELETED, Topic

BATCH_BYTES = len(sent())


class InMemoryEnds:
    """End offsets of a topic of which each partition begins at 0."""

    def __init__(self, count: int, kept: dict[int, int]) -> None:
        self._count = count
        self._kept = kept

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        return self._kept.get(index, 0)

    def store(self, index: int, offset: int) -> None:
        self._kept[index] = offset


def topic_of(partitions: int, retention_bytes: int) -> tuple[Topic, dict[int, int]]:
    """A topic and the end offsets that it has kept."""
    kept: dict[int, int] = {}
    return Topic("plays", UUID(int=7), InMemoryEnds(partitions, kept), MESSAGE_MAX_BYTES, retention_bytes), kept


def bounds(topic: Topic) -> list[tuple[int, int]]:
    return [(log.start_offset, log.end_offset) for log in topic.partitions]


def test_the_oldest_batches_go_when_the_topic_is_full() -> None:
    topic, _ = topic_of(1, 3 * BATCH_BYTES)
    for _ in range(5):
        topic.append(0, sent())
    assert bounds(topic) == [(2, 5)]
    assert topic.held_bytes == 3 * BATCH_BYTES


def test_a_busy_partition_does_not_drive_out_a_quiet_one() -> None:
    topic, _ = topic_of(2, 4 * BATCH_BYTES)
    topic.append(1, sent())
    for _ in range(20):
        topic.append(0, sent())
    assert bounds(topic) == [(17, 20), (0, 1)]


def test_the_batch_that_has_just_come_stays_however_large() -> None:
    """Otherwise a producer would be told of an offset that no consumer can ever read."""
    topic, _ = topic_of(2, BATCH_BYTES)
    topic.append(0, sent())
    topic.append(1, sent(value=b"x" * 5000))
    assert bounds(topic) == [(1, 1), (0, 1)]
    topic.append(0, sent())
    assert bounds(topic) == [(1, 2), (1, 1)]


def test_a_refused_batch_drives_nothing_out() -> None:
    topic, kept = topic_of(1, BATCH_BYTES)
    topic.append(0, sent())
    with pytest.raises(CoordinatorError):
        topic.append(0, sent(value=b"x" * 500, crc_change=1))
    assert bounds(topic) == [(0, 1)]
    assert kept == {0: 1}


@given(
    retention=st.integers(1, 2000),
    batches=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(0, 300)), max_size=40),
)
def test_a_topic_never_holds_more_than_its_bound_or_the_newest_batch(
    retention: int, batches: list[tuple[int, int, int]]
) -> None:
    topic, kept = topic_of(3, retention)
    ends = [0, 0, 0]
    for partition, count, size in batches:
        records = sent(count, value=b"v" * size)
        assert topic.append(partition, records) == ends[partition]
        ends[partition] += count
        log = topic.partitions[partition]
        assert log.read(ends[partition] - 1, len(records))[16:] == records[16:]
        assert topic.held_bytes == sum(log.size_bytes for log in topic.partitions)
        assert topic.held_bytes <= max(retention, len(records))
    assert [kept.get(partition, 0) for partition in range(3)] == ends


def test_the_end_is_kept_before_anybody_hears_of_the_batch() -> None:
    """A consumer that was woken may commit at once; the end must not be behind by then."""
    topic, kept = topic_of(1, 10_000)
    heard: list[tuple[int, int]] = []
    topic.partitions[0].waiters.add(lambda size: heard.append((size, kept[0])))
    topic.append(0, sent(3))
    assert heard == [(len(sent(3)), 3)]


def test_a_duplicate_wakes_nobody() -> None:
    topic, _ = topic_of(1, 10_000)
    records = sent(producer=(1, 0, 0))
    topic.append(0, records)
    topic.partitions[0].waiters.add(lambda _size: pytest.fail("there is nothing new"))
    assert topic.append(0, records) == 0


def test_a_waiter_may_go_while_it_is_called() -> None:
    topic, _ = topic_of(1, 10_000)
    log = topic.partitions[0]
    calls: list[int] = []

    def once(size: int) -> None:
        log.waiters.discard(once)
        calls.append(size)

    log.waiters.add(once)
    topic.append(0, sent())
    topic.append(0, sent())
    assert calls == [BATCH_BYTES]


def test_who_waits_hears_that_the_topic_is_gone() -> None:
    topic, _ = topic_of(2, 10_000)
    heard: list[int] = []
    topic.partitions[1].waiters.add(heard.append)
    topic.close()
    assert heard == [TOPIC_DELETED]
