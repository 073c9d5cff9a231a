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


class RegisterRun:
    """A sequence of requests and answers at the coordinator, one event per second."""

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
        self.ends(name, fetched(offset))


FETCH = OffsetFetch("g", (("t", (0,)),))


def commit_of(offset: int) -> OffsetCommit:
    return OffsetCommit("g", "", None, -1, (Commit("t", 0, offset, -1, ""),))


def fetched(offset: int) -> Fetched:
    return Fetched(NONE, (("t", (FetchedOffset(0, offset, -1, "", NONE),)),))


@pytest.fixture
def register_run() -> RegisterRun:
    return RegisterRun()


def test_sequential_commits_and_fetches_are_accepted(register_run: RegisterRun) -> None:
    register_run.fetch(-1)
    register_run.commit(1)
    register_run.fetch(1)
    register_run.commit(2)
    register_run.fetch(2)
    assert register_run.checker.find_violation() is None


def test_lost_commit_is_reported(register_run: RegisterRun) -> None:
    register_run.commit(1)
    register_run.commit(2)
    register_run.fetch(1)
    assert "had committed (2, '')" in (register_run.checker.find_violation() or "")


def test_lost_first_commit_is_reported(register_run: RegisterRun) -> None:
    register_run.commit(1)
    register_run.fetch(-1)
    assert register_run.checker.find_violation()


def test_value_that_was_never_committed_is_reported(register_run: RegisterRun) -> None:
    register_run.fetch(7)
    assert "no client had committed it" in (register_run.checker.find_violation() or "")


def test_value_of_refused_commit_is_reported(register_run: RegisterRun) -> None:
    register_run.commit(1, ErrorCode.ILLEGAL_GENERATION)
    register_run.fetch(1)
    assert "was refused" in (register_run.checker.find_violation() or "")


def test_unanswered_commit_may_or_may_not_take_effect(register_run: RegisterRun) -> None:
    register_run.commit(1)
    register_run.begins("lost", commit_of(2))
    register_run.fetch(1)
    register_run.fetch(2)
    assert register_run.checker.find_violation() is None


def test_unanswered_commit_that_was_read_and_lost_is_reported(register_run: RegisterRun) -> None:
    register_run.commit(1)
    register_run.begins("lost", commit_of(2))
    register_run.fetch(2)
    register_run.fetch(1)
    assert "went back in time" in (register_run.checker.find_violation() or "")


def test_fetch_during_commit_may_return_either_value(register_run: RegisterRun) -> None:
    register_run.commit(1)
    register_run.begins("c", commit_of(2))
    register_run.begins("f1", FETCH)
    register_run.begins("f2", FETCH)
    register_run.ends("f1", fetched(1))
    register_run.ends("f2", fetched(2))
    register_run.ends("c", Committed((NONE,)))
    assert register_run.checker.find_violation() is None


def test_concurrent_commits_have_one_order(register_run: RegisterRun) -> None:
    register_run.begins("c1", commit_of(1))
    register_run.begins("c2", commit_of(2))
    register_run.ends("c1", Committed((NONE,)))
    register_run.ends("c2", Committed((NONE,)))
    register_run.fetch(1)
    assert register_run.checker.find_violation() is None
    register_run.fetch(2)
    assert register_run.checker.find_violation()


def test_deletion_is_checked_like_commit(register_run: RegisterRun) -> None:
    register_run.commit(1)
    register_run.begins("d", DeleteGroup("g"))
    register_run.ends("d", NONE)
    register_run.fetch(1)
    assert "had committed None after it" in (register_run.checker.find_violation() or "")


def test_only_old_offsets_may_expire() -> None:
    for retention_s, is_right in ((2, True), (20, False)):
        register_run = RegisterRun()
        register_run.checker.retention_s = retention_s
        register_run.commit(5)
        register_run.fetch(5)
        register_run.fetch(-1)
        assert (register_run.checker.find_violation() is None) is is_right


def test_expired_value_that_returns_is_reported() -> None:
    register_run = RegisterRun()
    register_run.checker.retention_s = 2
    register_run.commit(5)
    register_run.fetch(-1)
    assert register_run.checker.find_violation() is None
    register_run.fetch(5)
    assert "again" in str(register_run.checker.find_violation())


def test_topic_deletion_removes_only_earlier_commits() -> None:
    register_run = RegisterRun()
    register_run.commit(5)
    register_run.checker.topic_deleted("t", register_run._events)
    register_run.fetch(5)  # the deletion takes effect later
    register_run.fetch(-1)
    assert register_run.checker.find_violation() is None
    register_run.commit(6)
    register_run.fetch(-1)
    assert "committed (6, '') after it" in str(register_run.checker.find_violation())


def test_reset_uses_surviving_values() -> None:
    register_run = RegisterRun()
    register_run.commit(5)
    register_run.fetch(5)
    assert register_run.checker.reset({}) is None
    register_run.fetch(-1)
    assert register_run.checker.find_violation() is None
    register_run.fetch(5)
    assert register_run.checker.find_violation() is not None
