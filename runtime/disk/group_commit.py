"""Group commit for a small file that is replaced as a whole: all changes that wait while it is written share a write.

A change is made to a draft, which becomes what everybody sees when it is durable. A change that is refused leaves the
draft as it was. If the write fails, all changes in it are taken back and their submitters hear the error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Generic, Protocol, TypeVar

from ..common.logs import get_logger
from .file_work import FileWork

log = get_logger("callboard.runtime")

Draft = TypeVar("Draft")
Outcome = TypeVar("Outcome")
Done = Callable[[Exception | None], None]
"""Called with None when the change is durable and visible; else with the refusal, or the OSError of the write."""


class Table(Protocol[Draft]):
    """What is in the file. All methods but ``write`` are called on the thread of the loop."""

    def draft(self) -> Draft:
        """A copy of what is visible, to be changed."""

    def write(self, draft: Draft) -> None:
        """Make a draft durable. Blocks; another thread calls it. Raises OSError."""

    def publish(self, draft: Draft) -> None:
        """The draft is durable: let everybody see it."""

    def discard(self, draft: Draft) -> None:
        """The draft could not be written."""


class GroupCommit(Generic[Draft]):
    """The queue of changes before one file. Belongs to the thread of the loop."""

    def __init__(self, table: Table[Draft], files: FileWork) -> None:
        self.files = files
        self._table = table
        self._waiting: list[tuple[Callable[[Draft], bool], Done]] = []
        self._is_writing = False

    def submit(self, change: Callable[[Draft], bool], done: Done) -> None:
        """Apply ``change`` to the next draft; it returns whether that must be written, or raises its refusal."""
        self._waiting.append((change, done))
        if not self._is_writing:
            self._write_next()

    def _write_next(self) -> None:
        while self._waiting and not self._is_writing:
            self._is_writing = True
            submitted, self._waiting = self._waiting, []
            draft = self._table.draft()
            applied: list[Done] = []
            is_changed = False
            for change, done in submitted:
                try:
                    is_changed = change(draft) or is_changed
                    applied.append(done)
                except Exception as refusal:
                    _tell(done, refusal)
            if is_changed:
                self.files.submit(partial(self._table.write, draft), partial(self._written, draft, applied))
            else:
                self._finish(applied, None)

    def _written(self, draft: Draft, applied: list[Done], failure: OSError | None) -> None:
        if failure is None:
            self._table.publish(draft)
        else:
            self._table.discard(draft)
        self._finish(applied, failure)
        self._write_next()

    def _finish(self, applied: list[Done], failure: OSError | None) -> None:
        for done in applied:
            _tell(done, failure)
        self._is_writing = False


def _tell(done: Done, outcome: Exception | None) -> None:
    try:
        done(outcome)
    except Exception:  # the others must hear of theirs
        log.exception("the outcome of a change could not be handed over")


def at_once(submit: Callable[[Callable[[Outcome], None]], None]) -> Outcome:
    """The outcome of a change where files are written on the caller's thread: at start, and in memory."""
    outcomes: list[Outcome] = []
    submit(outcomes.append)
    if not outcomes:
        raise RuntimeError("the file is written by another thread: wait for the outcome with outcome_of()")
    return outcomes[0]


async def outcome_of(submit: Callable[[Callable[[Outcome], None]], None]) -> Outcome:
    """Wait for the outcome of a change. If the wait is cancelled the change is made all the same."""
    future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def settle(outcome: Outcome) -> None:
        if not future.done():
            future.set_result(outcome)

    submit(settle)
    return await future
