"""``GroupCommit``: a bug while a change is made visible or undone holds up no later change."""

from __future__ import annotations

import errno

import pytest

from callboard.actors.steps import Steps
from callboard.runtime.disk.file_work import InlineFileWork
from callboard.runtime.disk.group_commit import GroupCommit


class Table:
    """``ReplacedFile`` of a list of names. What is in ``bugs`` raises once; a write that is in it fails."""

    def __init__(self, *bugs: str) -> None:
        self.names: list[str] = []
        self._bugs = set(bugs)

    def draft(self) -> list[str]:
        return list(self.names)

    def write(self, draft: list[str]) -> None:
        if self._takes("write"):
            raise OSError(errno.ENOSPC, "no room")

    def publish(self, draft: list[str]) -> Steps[None] | None:
        if self._takes("publish"):
            raise ValueError("a bug")
        return self._publish(draft)

    def discard(self, draft: list[str]) -> None:
        if self._takes("discard"):
            raise ValueError("a bug")

    def _publish(self, draft: list[str]) -> Steps[None]:
        yield
        if self._takes("step"):
            raise ValueError("a bug")
        self.names = draft

    def _takes(self, name: str) -> bool:
        takes = name in self._bugs
        self._bugs.discard(name)
        return takes


@pytest.mark.parametrize(
    ("bugs", "error"), [(["publish"], ValueError), (["step"], ValueError), (["write", "discard"], OSError)]
)
def test_change_after_a_bug_has_its_turn(bugs: list[str], error: type[Exception]) -> None:
    table = Table(*bugs)
    changes, outcomes = GroupCommit(table, InlineFileWork()), list[Exception | None]()

    def add(name: str) -> None:
        def apply(draft: list[str]) -> bool:
            draft.append(name)
            return True

        changes.submit(apply, outcomes.append)

    add("a")
    add("b")
    assert [type(outcome) for outcome in outcomes] == [error, type(None)]
    assert table.names == ["b"]
