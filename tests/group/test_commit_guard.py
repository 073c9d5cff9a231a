"""Which members a group remembers, so that they cannot undo what an administrator does after their removal."""

from __future__ import annotations

import pytest

from callboard.actors.group import commit_guard
from callboard.actors.group.commit_guard import GUARD_MS, MEMBER_ID_CHARACTERS_MAX, CommitGuard
from callboard.actors.group.events import GroupEvent, Kind, Reason


def removed(member_id: str, reason: Reason = Reason.ADMIN, at_ms: int = 0) -> GroupEvent:
    return GroupEvent(0, at_ms, Kind.MEMBER_REMOVED, reason, "Empty", 1, member_id)


def test_only_members_that_an_admin_has_removed_are_remembered() -> None:
    guard = CommitGuard()
    guard.note([removed(reason.name, reason) for reason in Reason])
    guard.note([GroupEvent(0, 0, Kind.STATE_CHANGED, Reason.ADMIN, "Empty", 1, "sender")])
    assert [reason for reason in Reason if guard.refuses(reason.name, 0)] == [Reason.ADMIN, Reason.RESET]
    assert not guard.refuses("sender", 0) and not guard.refuses("", 0)


def test_members_are_forgotten_after_some_minutes() -> None:
    guard = CommitGuard()
    guard.note([removed("a"), removed("b", at_ms=5)])
    assert guard.end_ms == GUARD_MS + 5
    assert [guard.refuses(member_id, GUARD_MS) for member_id in "ab"] == [False, True]


def test_number_of_members_and_their_lengths_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_guard, "MEMBERS_MAX", 2)
    guard = CommitGuard()
    long = "x" * (MEMBER_ID_CHARACTERS_MAX + 1)
    guard.note([removed(member_id) for member_id in ("a", "b", long, "b", "c")])
    assert [member_id for member_id in ("a", "b", "c", long) if guard.refuses(member_id, 0)] == ["b", "c"]
