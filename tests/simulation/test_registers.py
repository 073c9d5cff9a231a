"""Tests of the register checker: accepted and reported histories."""

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
    """A sequence of events, one per second, as the coordinator would see them."""

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


def test_sequential_commits_and_fetches_are_accepted(story: Story) -> None:
    story.fetch(-1)
    story.commit(1)
    story.fetch(1)
    story.commit(2)
    story.fetch(2)
    assert story.checker.find_violation() is None


def test_lost_commit_is_reported(story: Story) -> None:
    story.commit(1)
    story.commit(2)
    story.fetch(1)
    assert "had committed (2, '')" in (story.checker.find_violation() or "")


def test_lost_first_commit_is_reported(story: Story) -> None:
    story.commit(1)
    story.fetch(-1)
    assert story.checker.find_violation()


def test_value_that_was_never_committed_is_reported(story: Story) -> None:
    story.fetch(7)
    assert "nobody had committed it" in (story.checker.find_violation() or "")


def test_value_of_refused_commit_is_reported(story: Story) -> None:
    story.commit(1, ErrorCode.ILLEGAL_GENERATION)
    story.fetch(1)
    assert "was refused" in (story.checker.find_violation() or "")


def test_unanswered_commit_may_or_may_not_take_effect(story: Story) -> None:
    story.commit(1)
    story.begins("lost", commit_of(2))
    story.fetch(1)
    story.fetch(2)
    assert story.checker.find_violation() is None


def test_unanswered_commit_that_was_read_and_lost_is_reported(story: Story) -> None:
    story.commit(1)
    story.begins("lost", commit_of(2))
    story.fetch(2)
    story.fetch(1)
    assert "went back in time" in (story.checker.find_violation() or "")


def test_fetch_during_commit_may_return_either_value(story: Story) -> None:
    story.commit(1)
    story.begins("c", commit_of(2))
    story.begins("f1", FETCH)
    story.begins("f2", FETCH)
    story.ends("f1", found(1))
    story.ends("f2", found(2))
    story.ends("c", Committed((NONE,)))
    assert story.checker.find_violation() is None


def test_concurrent_commits_have_one_order(story: Story) -> None:
    story.begins("c1", commit_of(1))
    story.begins("c2", commit_of(2))
    story.ends("c1", Committed((NONE,)))
    story.ends("c2", Committed((NONE,)))
    story.fetch(1)
    assert story.checker.find_violation() is None
    story.fetch(2)
    assert story.checker.find_violation()


def test_deletion_is_checked_like_commit(story: Story) -> None:
    story.commit(1)
    story.begins("d", DeleteGroup("g"))
    story.ends("d", NONE)
    story.fetch(1)
    assert "had committed None after it" in (story.checker.find_violation() or "")


def test_only_old_offsets_may_expire() -> None:
    for retention_s, is_right in ((2, True), (20, False)):
        story = Story()
        story.checker.retention_s = retention_s
        story.commit(5)
        story.fetch(5)
        story.fetch(-1)
        assert (story.checker.find_violation() is None) is is_right


def test_expired_value_that_returns_is_reported() -> None:
    story = Story()
    story.checker.retention_s = 2
    story.commit(5)
    story.fetch(-1)
    assert story.checker.find_violation() is None
    story.fetch(5)
    assert "again" in str(story.checker.find_violation())


def test_topic_deletion_removes_only_earlier_commits() -> None:
    story = Story()
    story.commit(5)
    story.checker.topic_deleted("t", story._events)
    story.fetch(5)  # it takes a while
    story.fetch(-1)
    assert story.checker.find_violation() is None
    story.commit(6)
    story.fetch(-1)
    assert "committed (6, '') after it" in str(story.checker.find_violation())


def test_reset_uses_surviving_values() -> None:
    story = Story()
    story.commit(5)
    story.fetch(5)
    assert story.checker.reset({}) is None
    story.fetch(-1)
    assert story.checker.find_violation() is None
    story.fetch(5)
    assert story.checker.find_violation() is not None
