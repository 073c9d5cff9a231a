"""Large changes of topics: in steps on the loop, with one write of the files, and visible when they are durable."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import pytest
from topics_helpers import open_catalogue

from callboard.actors.errors import CoordinatorError
from callboard.actors.steps import Steps
from callboard.runtime.disk.file_work import Done, FileJob, InlineFileWork
from callboard.runtime.topics.catalogue import CreateOutcome, DeleteOutcome, TopicCatalogue
from callboard.runtime.topics.ends import EndOffsetsFile
from callboard.runtime.topics.store import NewTopic
from callboard.runtime.topics.topic import Topic

TOPICS = 300
CREATED = [NewTopic(f"topic-{number}", 2) for number in range(TOPICS)]


class SteppedFileWork(InlineFileWork):
    """Work that a test drives step by step. ``jobs``: how many jobs on files were submitted."""

    def __init__(self) -> None:
        self.jobs = 0
        self._work: deque[Steps[None]] = deque()

    def run_in_slices(self, steps: Steps[None]) -> None:
        self._work.append(steps)

    def submit(self, work: FileJob, done: Done) -> None:
        self.jobs += 1
        super().submit(work, done)

    def run_step(self) -> bool:
        """Run one step; False if there is no work."""
        if not self._work:
            return False
        try:
            next(self._work[0])
        except StopIteration:
            self._work.popleft()
        return True

    def run_all(self) -> int:
        """Run all work and return the number of steps."""
        return sum(1 for _ in iter(self.run_step, False))


@pytest.fixture
def work() -> SteppedFileWork:
    return SteppedFileWork()


@pytest.fixture
def catalogue(tmp_path: Path, work: SteppedFileWork) -> TopicCatalogue:
    opened = open_catalogue(tmp_path)
    opened.files.run_on(work)
    return opened


def test_creation_of_many_topics_takes_a_step_each_and_one_write(
    catalogue: TopicCatalogue, work: SteppedFileWork
) -> None:
    outcomes: list[CreateOutcome] = []
    catalogue.create_many(CREATED, outcomes.extend)
    assert work.run_all() >= TOPICS
    assert work.jobs == 1
    assert all(isinstance(outcome, Topic) for outcome in outcomes)
    assert {new.name for new in CREATED} <= set(catalogue.names())


def test_topics_are_visible_after_the_write_and_before_the_version_changes(
    catalogue: TopicCatalogue, work: SteppedFileWork
) -> None:
    version = catalogue.files.table.version
    catalogue.create_many(CREATED, lambda _outcomes: None)
    while not work.jobs:
        assert catalogue.get("topic-0") is None
        assert work.run_step()
    while catalogue.files.table.version == version:
        assert work.run_step()
    assert all(catalogue.get(name) for name, _, _ in CREATED)


def test_change_that_comes_meanwhile_waits_for_the_next_write(catalogue: TopicCatalogue, work: SteppedFileWork) -> None:
    first: list[CreateOutcome] = []
    second: list[CreateOutcome] = []
    catalogue.create_many(CREATED, first.extend)
    work.run_step()
    catalogue.create_many([NewTopic("topic-0", 1), NewTopic("other", 1)], second.extend)
    work.run_all()
    assert work.jobs == 2
    assert len(first) == TOPICS
    assert isinstance(second[0], CoordinatorError)
    assert isinstance(second[1], Topic)


def test_deletion_of_many_topics_takes_one_write(catalogue: TopicCatalogue, work: SteppedFileWork) -> None:
    created: list[CreateOutcome] = []
    catalogue.create_many(CREATED, created.extend)
    work.run_all()
    outcomes: list[DeleteOutcome] = []
    catalogue.delete_many([topic for topic in created if isinstance(topic, Topic)], outcomes.extend)
    work.run_all()
    assert outcomes == [None] * TOPICS
    assert work.jobs == 2
    assert catalogue.get("topic-0") is None


def test_end_stored_while_a_topic_grows_is_in_the_new_slots(catalogue: TopicCatalogue, work: SteppedFileWork) -> None:
    created: list[CreateOutcome] = []
    catalogue.create_many([NewTopic("growing", 200)], created.extend)
    work.run_all()
    [topic] = created
    assert isinstance(topic, Topic)
    catalogue.grow(topic, 400, lambda refusal: None)
    offset = 0
    while len(topic.ends) == 200 and work.run_step():
        offset += 1
        for index in (0, 100, 199):
            topic.ends.store(index, offset)
    work.run_all()
    assert len(topic.ends) == 400
    assert [topic.ends[index] for index in (0, 100, 199)] == [offset] * 3
    assert topic.ends[200] == 0


@pytest.mark.parametrize("is_full", [False, True], ids=["both succeed", "the second has no room"])
def test_end_stored_while_a_topic_grows_twice_is_kept(
    catalogue: TopicCatalogue, work: SteppedFileWork, monkeypatch: pytest.MonkeyPatch, *, is_full: bool
) -> None:
    """Both changes share a write."""
    created: list[CreateOutcome] = []
    catalogue.create_many([NewTopic("growing", 200)], created.extend)
    work.run_all()
    [topic] = created
    assert isinstance(topic, Topic)
    moves: list[int] = []
    reserve = EndOffsetsFile.reserve

    def reserve_or_fail(ends: EndOffsetsFile, slot: int, offsets: Sequence[int]) -> None:
        if len(offsets) == 1:
            moves.append(slot)
        elif is_full and len(moves) == 2:
            raise OSError(errno.ENOSPC, "no room")
        reserve(ends, slot, offsets)

    monkeypatch.setattr(EndOffsetsFile, "reserve", reserve_or_fail)
    outcomes: list[CoordinatorError | None] = []
    catalogue.grow(topic, 300, outcomes.append)
    catalogue.grow(topic, 400, outcomes.append)
    offset = 0
    while len(outcomes) < 2:
        offset += 1
        for index in (0, 100, 199):
            topic.ends.store(index, offset)
        assert work.run_step()
        assert [topic.ends[index] for index in (0, 100, 199)] == [offset] * 3
    assert work.jobs == 2
    assert (len(topic.ends), sum(outcome is None for outcome in outcomes)) == ((300, 1) if is_full else (400, 2))
