"""The log's one thread: journal, sync, answer, and later the partition files.

There is never a second sync of the journal in flight; what arrives during one waits in the queue. The thread does as
little as it can for each round, because every step of it competes with the loop for the interpreter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import structlog

from ...actors.ports import Appended
from .checkpoint import Checkpointer
from .disk import Disk
from .journal import FOLDER, Journal
from .partitions import Partitions, merge_folders
from .rounds import Done, Round, failed

T = TypeVar("T")
SyncPolicy = Literal["always", "interval", "none"]

LAY_IN_BYTES = 1024 * 1024  # what waits in memory for the partition files, at most
LAY_IN_SECONDS = 0.25  # and for how long: a few writes a second and partition instead of thousands

log = structlog.get_logger()


class Settings(NamedTuple):
    """When the log syncs and when it makes a checkpoint."""

    sync: SyncPolicy
    flush_interval_s: float
    checkpoint_bytes: int
    checkpoint_interval_s: float


class _Stop:
    """Put into the queue as the last thing."""


class _Task(Generic[T]):
    """Something to be done in the log's thread, between two rounds."""

    __slots__ = ("finished", "result", "work")

    def __init__(self, work: Callable[[], T]) -> None:
        self.work = work
        self.finished = threading.Event()
        self.result: T

    def run(self) -> None:
        try:
            self.result = self.work()
        finally:
            self.finished.set()


class RoundWriter:
    """Takes rounds from one thread and makes them durable in its own; ``clock`` is monotonic, in seconds."""

    def __init__(
        self, disk: Disk, root: Path, partitions: Partitions, settings: Settings, clock: Callable[[], float]
    ) -> None:
        self._disk = disk
        self._folder = root / FOLDER
        self._partitions = partitions
        self._settings = settings
        self._clock = clock
        self._checkpointer = Checkpointer(disk, self._fail)
        self._queue: SimpleQueue[Round | _Task[Any] | _Stop] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="callboard-log", daemon=True)
        self._failed = False
        self._lay_in_due = self._sync_due = self._checkpoint_due = self._due = inf
        self._journal: Journal

    def start(self, journal_number: int) -> None:
        """Begin a journal file of that number, then take rounds. OSError when the file cannot be made."""
        self._disk.make_folder(self._folder)
        self._disk.sync_folder(self._folder.parent)
        self._journal = Journal(self._disk, self._folder, journal_number, self._partitions.end_offsets())
        self._thread.start()

    def put(self, item: Round) -> None:
        self._queue.put(item)

    def call_settled(self, work: Callable[[], T]) -> T:
        """Do ``work`` in the log's thread when all rounds so far are in the partition files, and wait for it.

        ``work`` must not raise. OSError when the log has failed before that.
        """
        task = _Task(work)
        self._queue.put(task)
        task.finished.wait()
        if self._failed:
            raise OSError("the log has failed; what it holds can be read after a new start")
        return task.result

    def close(self) -> None:
        """Finish what was put, make it durable in the partition files, remove the journal, end all threads."""
        self._queue.put(_Stop())
        self._thread.join()
        self._checkpointer.wait()
        if not self._failed:
            self._checkpointer.start(merge_folders(self._partitions.sync_jobs()), [self._journal.path])
            self._checkpointer.wait()
        self._checkpointer.close()
        self._journal.close()
        self._partitions.close()

    def _run(self) -> None:
        while not isinstance(item := self._next(), _Stop):
            try:
                self._do(item)
            except BaseException as error:  # this thread must live: whoever waits for it would wait for ever
                self._fail(error)
                self._due = inf
        self._lay_in()

    def _do(self, item: Round | _Task[Any] | None) -> None:
        if isinstance(item, Round):
            self._write(item)
        elif item is not None:
            self._lay_in()
            item.run()
        if self._clock() >= self._due:
            self._catch_up()

    def _next(self) -> Round | _Task[Any] | _Stop | None:
        """What comes next from the queue; None when something is due before that."""
        if self._due == inf:
            return self._queue.get()
        try:
            return self._queue.get(timeout=max(0.0, self._due - self._clock()))
        except Empty:
            return None

    def _write(self, item: Round) -> None:
        if item.batches and not self._failed:
            self._write_journal(item.frame)
        if self._failed:
            _answer(item.done, failed(item.outcomes))
            return
        _answer(item.done, item.outcomes)
        if item.batches:
            self._partitions.gather(item.batches, len(item.frame))
            self._plan()

    def _write_journal(self, frame: bytes) -> None:
        try:
            self._journal.write(frame)
            if self._settings.sync == "always":
                self._journal.sync()
        except Exception as error:
            self._fail(error)

    def _plan(self) -> None:
        """A round was written: say when which of the works that it leaves behind is due."""
        now = self._clock()
        if self._partitions.waiting_bytes >= LAY_IN_BYTES:
            self._lay_in_due = now
        elif self._lay_in_due == inf:
            self._lay_in_due = now + LAY_IN_SECONDS
        if self._settings.sync == "interval" and self._sync_due == inf:
            self._sync_due = now + self._settings.flush_interval_s
        if self._journal.position >= self._settings.checkpoint_bytes and not self._checkpointer.busy:
            self._checkpoint_due = now
        elif self._checkpoint_due == inf:
            self._checkpoint_due = now + self._settings.checkpoint_interval_s
        self._due = min(self._lay_in_due, self._sync_due, self._checkpoint_due)

    def _catch_up(self) -> None:
        """Do what is due."""
        now = self._clock()
        try:
            if self._sync_due <= now:
                self._sync_due = inf
                self._journal.sync()
            if self._lay_in_due <= now:
                self._lay_in()
            if self._checkpoint_due <= now:
                self._checkpoint(now)
        except Exception as error:
            self._fail(error)
        self._due = inf if self._failed else min(self._lay_in_due, self._sync_due, self._checkpoint_due)

    def _lay_in(self) -> None:
        self._lay_in_due = inf
        if self._failed:
            return
        try:
            self._partitions.lay_in()
        except Exception as error:
            self._fail(error)

    def _checkpoint(self, now: float) -> None:
        """Begin the next journal file, so that rounds go on, and have the partition files synced meanwhile.

        The old file is synced first, whatever the policy: so only the last journal file can ever be torn.
        """
        if self._checkpointer.busy:
            self._checkpoint_due = now + self._settings.checkpoint_interval_s
            return
        self._lay_in()
        if self._failed:
            return
        old = self._journal
        if self._settings.sync != "always":
            old.sync()
        self._journal = Journal(self._disk, self._folder, old.number + 1, self._partitions.end_offsets())
        old.close()
        self._checkpoint_due = self._sync_due = inf
        self._checkpointer.start(merge_folders(self._partitions.sync_jobs()), [old.path])

    def _fail(self, error: BaseException) -> None:
        """Nothing is known after a failed write or sync, so nothing more is promised. Said once."""
        if not self._failed:
            self._failed = True
            log.error(
                "the log has failed",
                reason=str(error) or repr(error),
                consequence="every commit from now on is refused",
            )


def _answer(done: Done, outcomes: Sequence[Appended]) -> None:
    """A caller that fails must not stop the log."""
    try:
        done(outcomes)
    except Exception:
        log.exception("the caller failed to take the outcomes of a round")
