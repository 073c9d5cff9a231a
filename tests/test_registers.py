"""The judge of commits: what it must refuse, and what it must not."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.actors.errors import ErrorCode
from callboard.actors.messages import (
    Commit,
    Committed,
    DeleteGroup,
    Fetched,
    FetchedOffset,
    OffsetCommit,
    OffsetFetch,
)
from callboard.runtime.testing.simulation.history import Exchange
from callboard.runtime.testing.simulation.registers import RegisterChecker

NONE = ErrorCode.NONE
NO_PROCESS: Any = None


class Story:
    """Events in their order, a second apart: each of them is written as it would be seen at the coordinator."""

    def __init__(self) -> None:
        self.checker = RegisterChecker()
        self._events = 0
        self._open: dict[str, Exchange] = {}

    def begins(self, name: str, message: Any) -> None:
        self._events += 1
        self._open[name] = exchange = Exchange(self._events, name, NO_PROCESS, 1, message, 0.0)
        exchange.arrived_at = exchange.arrived_s = self._events
        self.checker.arrived(exchange)

    def ends(self, name: str, answer: Any) -> None:
        self._events += 1
        exchange = self._open.pop(name)
        exchange.answered_at, exchange.answered_s, exchange.answer = self._events, self._events, answer
        self.checker.answered(exchange)

    def commit(self, offset: int, error: ErrorCode = NONE, name: str = "c") -> None:
        self.begins(name, commit_of(offset))
        self.ends(name, Committed((error,)))

    def fetch(self, offset: int, name: str = "f") -> None:
        self.begins(name, FETCH)
        self.ends(name, found(offset))


FETCH = OffsetFetch("g", (("t", (0,)),))


def commit_of(offset: int) -> OffsetCommit:
    return OffsetCommit("g", "", None, -1, (Commit("t", 0, offset, -1, ""),))


def found(offset: int) -> Fetched:
    return Fetched(NONE, (("t", (FetchedOffset(0, offset, -1, "", NONE),)),))


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_plain_story_is_right(story: Story) -> None:
    story.fetch(-1)
    story.commit(1)
    story.fetch(1)
    story.commit(2)
    story.fetch(2)
    assert story.checker.find_violation() is None


def test_a_lost_commit_is_found(story: Story) -> None:
    story.commit(1)
    story.commit(2)
    story.fetch(1)
    assert "had committed (2, '')" in (story.checker.find_violation() or "")


def test_a_first_commit_that_is_lost_is_found(story: Story) -> None:
    story.commit(1)
    story.fetch(-1)
    assert story.checker.find_violation()


def test_what_nobody_has_committed_is_found(story: Story) -> None:
    story.fetch(7)
    assert "nobody had committed it" in (story.checker.find_violation() or "")


def test_a_refused_commit_must_not_be_there(story: Story) -> None:
    story.commit(1, ErrorCode.ILLEGAL_GENERATION)
    story.fetch(1)
    assert "was refused" in (story.checker.find_violation() or "")


def test_of_a_commit_without_an_answer_nobody_knows(story: Story) -> None:
    story.commit(1)
    story.begins("lost", commit_of(2))
    story.fetch(1)
    story.fetch(2)
    assert story.checker.find_violation() is None


def test_but_when_it_was_seen_it_stays(story: Story) -> None:
    story.commit(1)
    story.begins("lost", commit_of(2))
    story.fetch(2)
    story.fetch(1)
    assert "went back in time" in (story.checker.find_violation() or "")


def test_fetches_that_overlap_a_commit_may_find_either(story: Story) -> None:
    story.commit(1)
    story.begins("c", commit_of(2))
    story.begins("f1", FETCH)
    story.begins("f2", FETCH)
    story.ends("f1", found(1))
    story.ends("f2", found(2))
    story.ends("c", Committed((NONE,)))
    assert story.checker.find_violation() is None


def test_two_commits_at_once_take_any_order_but_one(story: Story) -> None:
    story.begins("c1", commit_of(1))
    story.begins("c2", commit_of(2))
    story.ends("c1", Committed((NONE,)))
    story.ends("c2", Committed((NONE,)))
    story.fetch(1)
    assert story.checker.find_violation() is None
    story.fetch(2)
    assert story.checker.find_violation()


def test_a_deletion_is_a_commit_of_nothing(story: Story) -> None:
    story.commit(1)
    story.begins("d", DeleteGroup("g"))
    story.ends("d", NONE)
    story.fetch(1)
    assert "had committed None after it" in (story.checker.find_violation() or "")


def test_what_is_old_may_be_gone_and_what_is_not_may_not() -> None:
    for retention_s, is_right in ((2, True), (20, False)):
        story = Story()
        story.checker.retention_s = retention_s
        story.commit(5)
        story.fetch(5)
        story.fetch(-1)
        assert (story.checker.find_violation() is None) is is_right


def test_what_is_gone_does_not_come_back() -> None:
    story = Story()
    story.checker.retention_s = 2
    story.commit(5)
    story.fetch(-1)
    assert story.checker.find_violation() is None
    story.fetch(5)
    assert "again" in str(story.checker.find_violation())


def test_a_deleted_topic_takes_what_was_committed_before_and_nothing_later() -> None:
    story = Story()
    story.commit(5)
    story.checker.topic_deleted("t", story._events)
    story.fetch(5)  # it takes a while
    story.fetch(-1)
    assert story.checker.find_violation() is None
    story.commit(6)
    story.fetch(-1)
    assert "committed (6, '') after it" in str(story.checker.find_violation())


def test_after_a_loss_what_was_found_counts() -> None:
    story = Story()
    story.commit(5)
    story.fetch(5)
    assert story.checker.reset({}) is None
    story.fetch(-1)
    assert story.checker.find_violation() is None
    story.fetch(5)
    assert story.checker.find_violation() is not None
