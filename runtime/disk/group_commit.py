"""Group commit for a small file that is replaced as a whole: changes that arrive during a write share the next write.

Changes are applied to a draft, which becomes visible when it is durable. A rejected change leaves the draft unchanged.
If the write fails, all its changes are discarded, and their submitters get the error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Generic, Protocol, TypeVar

from ...actors.steps import Steps
from ..common.logs import get_logger
from .file_work import FileWork

log = get_logger("callboard.runtime")

Draft = TypeVar("Draft")
Outcome = TypeVar("Outcome")
Change = Callable[[Draft], bool | Steps[bool]]
"""Applies a change to a draft, in steps if it is large. Returns whether to write the draft; raises to reject."""

Done = Callable[[Exception | None], None]
"""Called with None when the change is durable and visible; else with the rejection, or the OSError of the write.

Any other error is a bug: the change is durable, but not visible.
"""


class ReplacedFile(Protocol[Draft]):
    """The content of the file. All methods except ``write`` are called on the loop's thread."""

    def draft(self) -> Draft:
        """A mutable copy of the visible content."""

    def write(self, draft: Draft) -> None:
        """Make a draft durable. Blocks, and is called on another thread. Raises OSError."""

    def publish(self, draft: Draft) -> Steps[None] | None:
        """Make a durable draft visible."""

    def discard(self, draft: Draft) -> None:
        """Drop a draft that could not be written."""


class GroupCommit(Generic[Draft]):
    """The queue of changes of one file. For use on the loop's thread only."""

    def __init__(self, table: ReplacedFile[Draft], files: FileWork) -> None:
        self.files = files
        self._table = table
        self._waiting: list[tuple[Change[Draft], Done]] = []
        self._is_writing = False

    def submit(self, change: Change[Draft], done: Done) -> None:
        """Apply ``change`` to the next draft."""
        self._waiting.append((change, done))
        if not self._is_writing:
            self._write_next()

    def _write_next(self) -> None:
        if self._waiting and not self._is_writing:
            self._is_writing = True
            self.files.run_in_slices(self._apply_waiting())

    def _apply_waiting(self) -> Steps[None]:
        """Apply the waiting changes to a draft and have it written."""
        submitted, self._waiting = self._waiting, []
        draft = self._table.draft()
        applied: list[Done] = []
        is_changed = False
        for change, done in submitted:
            try:
                outcome = change(draft)
                is_changed = (outcome if isinstance(outcome, bool) else (yield from outcome)) or is_changed
                applied.append(done)
            except Exception as rejection:
                _report(done, rejection)
        if is_changed:
            self.files.submit(partial(self._table.write, draft), partial(self._written, draft, applied))
        else:
            self._finish(applied, None)

    def _written(self, draft: Draft, applied: list[Done], failure: OSError | None) -> None:
        if failure is None:
            self.files.run_in_slices(self._publish(draft, applied))
        else:
            try:
                self._table.discard(draft)
            except Exception:  # a bug, as above
                log.exception("changes that could not be written could not be undone")
            self._finish(applied, failure)

    def _publish(self, draft: Draft, applied: list[Done]) -> Steps[None]:
        failure: Exception | None = None
        try:
            steps = self._table.publish(draft)
            if steps is not None:
                yield from steps
        except Exception as error:  # a bug; later changes still need their turn
            log.exception("changes that are durable could not be made visible")
            failure = error
        self._finish(applied, failure)

    def _finish(self, applied: list[Done], failure: Exception | None) -> None:
        for done in applied:
            _report(done, failure)
        self._is_writing = False
        self._write_next()


def _report(done: Done, outcome: Exception | None) -> None:
    try:
        done(outcome)
    except Exception:  # the other submitters still need their outcome
        log.exception("the outcome of a change could not be reported")


def immediate_outcome(submit: Callable[[Callable[[Outcome], None]], None]) -> Outcome:
    """The outcome of a change if files are written on the caller's thread: during the start, and in memory."""
    outcomes: list[Outcome] = []
    submit(outcomes.append)
    if not outcomes:
        raise RuntimeError("the file is written by another thread: wait for the outcome with outcome_of()")
    return outcomes[0]


async def outcome_of(submit: Callable[[Callable[[Outcome], None]], None]) -> Outcome:
    """Wait for the outcome of a change. Cancelling the wait does not cancel the change."""
    future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def settle(outcome: Outcome) -> None:
        if not future.done():
            future.set_result(outcome)

    submit(settle)
    return await future
