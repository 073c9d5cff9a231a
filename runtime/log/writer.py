"""The log's thread: writes and syncs the journal, calls ``done`` for each round, and starts jobs on partition files.

Only one sync of the journal is in progress at a time; rounds that arrive during it wait. Each round costs as few steps
as possible, because the log's thread competes with the event loop for the GIL. It never waits for a partition file:
``checkpoint.FileJob`` writes these in another thread, one job at a time. The class does not depend on real threads, see
``disk.threads``.

A disk error is handled according to what is certain afterwards:

* *No room* in the journal or for a file: nothing is lost. A short write is undone, commits are refused as long as they
  cannot be stored, and a check once a second finds out when there is room again.
* *The journal fails*, mostly in a sync: the content of its end is unknown, and a later sync that succeeds proves
  nothing. So all commits are refused until the next start reads the file. Acknowledged rounds are written to the
  partition files and synced at once, because a removed journal file would not survive the process.
* *The folder or its lock is lost*: as for a failed journal. The partition files are written only while they are at
  their path and no other process can write them.
* *A partition's file fails*: its batches stay in the journal, see ``Partition.fail``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import NamedTuple, TypeVar

from ...actors.errors import ErrorCode
from ...actors.ports import Appended
from ..common.logs import get_logger
from ..disk.disk import Disk, NoSpace, is_full, no_space_reason
from ..disk.threads import Call, Threads
from .checkpoint import FileJob, FileJobResult, OldJournal
from .folder_watch import FolderWatch
from .journal import FOLDER, FileHeader, Journal, random_salt
from .journal_files import JournalSettings, UnavailableJournal, first_journal, journal_loss, restore_journal
from .partition_file_task import PartitionFileTask
from .partitions import Partitions
from .room import Room, Store
from .rounds import DoneCallback, Round, failed_outcomes
from .stats import Counters, LogStats

T = TypeVar("T")
FLUSH_BYTES = 1024 * 1024  # batches in memory that start a job
FLUSH_INTERVAL_S = 0.25  # a few writes per second and partition instead of thousands
WAITING_BYTES = 64 * 1024 * 1024
"""Limit of the batches in memory that wait for the partition files; beyond it commits are refused."""
FLUSH_FIRST: frozenset[Store] = frozenset({"journal", "partition files"})
"""If one of these is full, waiting batches get the remaining space, so that a journal file can be removed."""
PROBE_INTERVAL_S = 1.0  # between checks of a full disk; a refused client retries about as often

log = get_logger("callboard.log")


class OffsetReset(NamedTuple):
    """Rounds with assigned offsets were refused: later rounds get offsets from ``ends`` on, by partition.

    A round that was encoded before reset ``number`` follows a refused one in the offsets, and is refused too.
    """

    number: int
    ends: Mapping[int, int]


class RoundWriter:
    """Makes rounds durable. ``clock``: monotonic, in seconds. ``new_salt``: returns 8 random bytes per call."""

    def __init__(
        self,
        disk: Disk,
        root: Path,
        partitions: Partitions,
        settings: JournalSettings,
        clock: Callable[[], float],
        threads: Threads,
        new_salt: Callable[[], bytes] = random_salt,
        watch: FolderWatch | None = None,
    ) -> None:
        """``watch`` checks that the data folder still exists and belongs to this process."""
        self._disk = disk
        self._folder = root / FOLDER
        self._new_salt = new_salt
        self._watch = watch or FolderWatch(disk, root)
        self._partitions = partitions
        self._settings = settings
        self._clock = clock
        self._threads = threads
        self._journal: Journal | UnavailableJournal
        self._ends: dict[int, int] = {}
        self._first_ends = 0
        self._checkpoint_started_s: float | None = None
        self._counters = Counters()
        self.reset = OffsetReset(0, {})
        self.failure = ""
        self.is_closed = False
        self._is_job_running = self._is_closing = self._is_ending = self._is_lost = False
        self._room = Room(clock)
        self._waiting: list[Sequence[tuple[int, bytes]]] = []
        self._waiting_bytes = self._job_bytes = 0
        self._tasks: list[Call] = []
        self._old_journals: tuple[OldJournal, ...] = ()
        self._flush_due = self._sync_due = self._checkpoint_due = self._probe_due = inf
        self._watch_due = self.due = inf

    # Called from other threads ---------------------------------------------------------------------------------------

    def create_journal(self, journal_number: int) -> None:
        """Create the journal file of that number; its header has the end offsets of all partitions. Raises OSError.

        Without room for it there is no journal, and commits are refused until it can be created.
        """
        self._watch.open()
        self._ends = self._partitions.end_offsets()
        self._first_ends = sum(self._ends.values())
        try:
            self._journal = first_journal(self._disk, self._folder, partial(self._new_journal, journal_number))
        except OSError as error:
            if not is_full(error):
                raise
            self._journal = UnavailableJournal(self._folder, journal_number - 1)
            self._room.set_full("journal", no_space_reason(error))
            self._probe_due = self._clock() + PROBE_INTERVAL_S

    def start(self) -> None:
        """Start the log's thread. ``create_journal`` was called before."""
        if self._watch.interval_s is not None:
            self._watch_due = self._clock() + self._watch.interval_s
        self._update_due()
        self._threads.start(self, self._clock)

    def _new_journal(self, number: int) -> Journal:
        header = FileHeader(self._ends, self._settings.sync, self._partitions.counts)
        return Journal(self._disk, self._folder, number, header, self._new_salt())

    def put(self, round_: Round) -> None:
        self._threads.put(partial(self._write, round_))

    def call_after_flush(self, work: Callable[[], T]) -> T:
        """Call ``work`` when all rounds so far are in the partition files; its result, or its exception."""
        task = PartitionFileTask(work)
        self._threads.put(partial(self._add_task, task.run))
        self._threads.wait(task.finished)
        if task.error is not None:
            raise task.error
        return task.result

    def stats(self) -> LogStats:
        """From any thread, after ``start``."""
        counters, journal = self._counters, self._journal
        return LogStats(
            records=sum(list(self._ends.values())) - self._first_ends,
            rounds=counters.rounds,
            refused_rounds=counters.refused_rounds,
            syncs=counters.syncs,
            sync_seconds=counters.sync_seconds,
            sync_counts=tuple(counters.sync_counts),
            checkpoints=counters.checkpoints,
            checkpoint_seconds=counters.checkpoint_seconds,
            journal_files=len(self._old_journals) + 1,
            journal_bytes=journal.position + sum(old.size for old in self._old_journals),
            waiting_bytes=self._waiting_bytes + self._job_bytes,
            failure=self.failure,
            full=tuple(sorted(self._room.full)),
            partitions=self._partitions.stats(),
        )

    def check(self) -> None:
        """Assert what holds while no work runs. Does not touch the files."""
        self._partitions.check()
        if isinstance(self._journal, Journal):
            self._journal.check()
        for partition in self._partitions:
            acknowledged = self._ends.get(partition.number, 0)
            assert partition.end_offset <= acknowledged, f"{partition.folder.name} has more than was acknowledged"

    def close(self) -> None:
        """Finish all rounds, make them durable in the partition files, remove the journal."""
        self._threads.put(self._close)
        self._threads.close()

    def halt(self) -> None:
        """Stop as a process that dies: rounds that wait are lost, and no file is changed any more."""
        self._threads.halt()
        self.is_closed = True
        self._journal.close()
        self._partitions.close()
        self._watch.close()

    # In the log's thread ---------------------------------------------------------------------------------------------

    def turn(self, call: Call | None) -> None:
        try:
            if call is not None:
                call()
            if self._clock() >= self.due:
                self._run_due_work()
        except Exception as error:  # a bug; if the thread ended, callers would wait for ever
            log.exception("bug in the log's thread")
            self._fail(str(error) or repr(error))
            self._flush_due = inf
        self._update_due()

    def _write(self, round_: Round) -> None:
        had_failed = bool(self.failure)
        error = self._refusal(round_) if self.failure or self._is_ending or round_.batches else None
        if error is None and round_.batches:
            error = self._write_journal(round_.frame)
        if error is not None:
            self._refuse(round_, error, ends_the_log=bool(self.failure) and not had_failed)
            return
        _call_done(round_.done, round_.outcomes)
        if round_.batches:
            self._counters.rounds += 1
            self._ends.update(round_.ends)
            self._waiting.append(round_.batches)
            self._waiting_bytes += len(round_.frame)
            self._schedule_work()

    def _refusal(self, round_: Round) -> ErrorCode | None:
        """Why a round is refused without an attempt; after the last job its journal file is removed."""
        if self.failure or self._is_ending:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._waiting_bytes + self._job_bytes >= WAITING_BYTES:
            self._room.set_full("memory", f"{WAITING_BYTES} bytes wait for the partition files")
        elif "journal" not in self._room.full and round_.reset == self.reset.number:
            return None
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _refuse(self, round_: Round, error: ErrorCode, *, ends_the_log: bool) -> None:
        """Refuse a round. Its offsets, and those of all rounds encoded after it, are assigned again.

        ``ends_the_log``: call ``done`` only when all acknowledged rounds are flushed; the journal file may be gone.
        """
        self._counters.refused_rounds += 1
        if round_.batches:
            self.reset = OffsetReset(self.reset.number + 1, self._ends.copy())
        call = partial(_call_done, round_.done, failed_outcomes(round_.outcomes, error))
        self._add_task(call) if ends_the_log else call()

    def _write_journal(self, frame: bytes) -> ErrorCode | None:
        try:
            self._journal.write(frame)
            if self._settings.sync == "always":
                started_s = self._clock()
                self._journal.sync()
                self._counters.count_sync(self._clock() - started_s)
        except NoSpace as error:
            self._room.set_full("journal", no_space_reason(error))
            self._probe_due = self._clock() + PROBE_INTERVAL_S
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        except Exception as error:
            self._fail(str(error) or repr(error))
            return ErrorCode.KAFKA_STORAGE_ERROR
        return None

    def _schedule_work(self) -> None:
        """A round was written: set when the flush, the sync and the checkpoint that follow from it are due."""
        now, settings = self._clock(), self._settings
        if self._waiting_bytes >= FLUSH_BYTES and "partition files" not in self._room.full:
            self._flush_due = now
        elif self._flush_due == inf:
            self._flush_due = now + FLUSH_INTERVAL_S
        if settings.sync == "interval" and self._sync_due == inf:
            self._sync_due = now + settings.flush_interval_s
        if self._journal.position >= settings.checkpoint_bytes and "next journal" not in self._room.full:
            self._checkpoint_due = now
        elif self._checkpoint_due == inf:
            self._checkpoint_due = now + settings.checkpoint_interval_s

    def _update_due(self) -> None:
        """Set when the next work is due. Work on the partition files waits while a job runs."""
        due = min(self._sync_due, self._probe_due, self._watch_due)
        self.due = due if self._is_job_running else min(due, self._flush_due, self._checkpoint_due)

    def _run_due_work(self) -> None:
        """Run all work that is due."""
        now = self._clock()
        if self._watch_due <= now:
            self._check_lock()
            self._watch_due = inf if self._is_lost else now + (self._watch.interval_s or inf)
        if self._sync_due <= now:
            self._sync_due = inf
            self._sync_journal()
        if self._probe_due <= now:
            self._probe(now)
        if not self._is_job_running and min(self._checkpoint_due, self._flush_due) <= now:
            self._check_journal()
            must_wait = self._room.full & FLUSH_FIRST and self._waiting_bytes + self._job_bytes
            if must_wait or self._checkpoint_due > now:
                self._start_job()
            else:
                self._checkpoint(now)

    def _sync_journal(self) -> None:
        try:
            started_s = self._clock()
            self._journal.sync()
            self._counters.count_sync(self._clock() - started_s)
        except OSError as error:
            self._fail(str(error))

    # The partition files ---------------------------------------------------------------------------------------------

    def _add_task(self, task: Call) -> None:
        self._tasks.append(task)
        if not self._is_job_running:
            self._start_job()

    def _checkpoint(self, now: float) -> None:
        """Start the next journal file for further rounds, and a job that syncs the partition files.

        The old file is synced first, whatever the policy, so that only the last journal file can ever be torn. (If
        every round is synced, this costs nothing, unless a round without room was undone.) Without room for the next
        file the old one stays in use.
        """
        self._checkpoint_due = inf
        self._check_lock()
        self._sync_journal()
        if self.failure:
            return
        old = self._journal
        try:
            self._journal = self._next_journal(old)
        except OSError as error:
            if not is_full(error):
                self._fail(str(error))
                return
            self._checkpoint_due = now + PROBE_INTERVAL_S
            self._room.set_full("next journal", no_space_reason(error))
            self._start_job()
            return
        self._room.clear_full("next journal")
        old.close()
        self._sync_due = inf
        self._start_job(old)

    def _next_journal(self, old: Journal | UnavailableJournal) -> Journal:
        try:
            return self._new_journal(old.number + 1)
        except OSError as error:
            if not is_full(error) or "journal" not in self._room.full:
                raise
        old.trim()  # it accepts no round anyway, and the partition files have all of its rounds
        return self._new_journal(old.number + 1)

    def _start_job(self, old: Journal | UnavailableJournal | None = None) -> None:
        """Start a job that flushes all waiting batches; with ``old``, a complete journal file, the job is a checkpoint.

        After a failure the job also syncs what it flushes. It flushes nothing if the folder is gone or another process
        may write to it.
        """
        is_last_resort = bool(self.failure)
        if is_last_resort and not self._watch.is_writable():
            self._waiting.clear()  # a write would create a new folder; the journal has these rounds
            self._partitions.drop_waiting()
        rounds, self._waiting = self._waiting, []
        tasks, self._tasks = self._tasks, []
        self._job_bytes += self._waiting_bytes
        self._waiting_bytes = 0
        self._flush_due = inf
        self._is_job_running = True
        completed = (old.path, old.position) if isinstance(old, Journal) else None
        work = rounds, tasks, completed, self._old_journals
        stopping = self._folder.parent if self._is_ending else None
        job = FileJob(self._disk, self._threads, self._partitions, *work, syncs=is_last_resort, stopping=stopping)
        self._threads.submit(partial(self._run_job, job))
        if old is not None:
            self._counters.checkpoints += 1
            self._checkpoint_started_s = self._clock()

    def _run_job(self, job: FileJob) -> None:
        """Runs outside of the log's thread."""
        try:
            result = job.run()
        except Exception as error:  # a bug
            log.exception("bug in the work on the partition files")
            result = FileJobResult(error=error)
        self._threads.put(partial(self._finish_job, result))

    def _finish_job(self, result: FileJobResult) -> None:
        self._is_job_running = False
        if self._checkpoint_started_s is not None:
            self._counters.checkpoint_seconds += self._clock() - self._checkpoint_started_s
            self._checkpoint_started_s = None
        self._job_bytes = result.waiting_bytes
        if result.error is not None:
            self._fail(str(result.error) or repr(result.error))
        else:
            self._old_journals = result.journals
        self._update_room(result.no_room)
        if self._is_ending:
            self._journal.close()
            self._partitions.close()
            self._watch.close()
            self.is_closed = True
        elif self._is_closing:
            self._finish()
        elif self._tasks:
            self._start_job()

    def _close(self) -> None:
        self._is_closing = True
        if not self._is_job_running:
            self._finish()

    def _finish(self) -> None:
        """Start the last job. After a failure the journal stays for the next start."""
        self._is_ending = True
        self._check_journal()
        self._start_job(None if self.failure else self._journal)

    # Errors ----------------------------------------------------------------------------------------------------------

    def _update_room(self, no_room: str) -> None:
        """Update the parts that are full, after a job. ``no_room``: the error text of a full disk, or empty."""
        if no_room:
            self._room.set_full("partition files", no_room)
            self._flush_due = self._clock() + PROBE_INTERVAL_S
            self._checkpoint_due = max(self._checkpoint_due, self._flush_due)
        else:
            self._room.clear_full("partition files")
        if self._waiting_bytes + self._job_bytes < WAITING_BYTES:
            self._room.clear_full("memory")

    def _probe(self, now: float) -> None:
        """Check whether the journal has room again. If not, a checkpoint may make room: it removes the old journal."""
        try:
            if isinstance(self._journal, UnavailableJournal):
                self._journal = first_journal(
                    self._disk, self._folder, partial(self._new_journal, self._journal.number + 1)
                )
            self._journal.probe()
        except OSError as error:
            if not is_full(error):
                self._fail(str(error))
                return
            self._probe_due = now + PROBE_INTERVAL_S
            if self._journal.has_rounds and "partition files" not in self._room.full:
                self._checkpoint_due = min(self._checkpoint_due, now)
        else:
            self._probe_due = inf
            self._room.clear_full("journal")

    def _check_lock(self) -> None:
        """Fail if the lock was lost: another process may own the folder, or it was moved."""
        if not self._is_lost and (reason := self._watch.loss_reason()):
            self._is_lost = True
            self._fail_and_restore_journal(reason)
            self._watch.on_lost()

    def _check_journal(self) -> None:
        """Fail if the journal file was removed, moved or truncated: writes succeed, but a start would not find them."""
        self._check_lock()
        if self.failure:
            return
        reason = journal_loss(self._journal)
        if reason:
            self._fail_and_restore_journal(f"{self._journal.path}: {reason}")

    def _fail_and_restore_journal(self, reason: str) -> None:
        """Fail, with all acknowledged rounds where the next start finds them. ``_fail`` also has them flushed."""
        self._fail(reason)
        self._sync_journal()
        try:
            if not self._journal.is_in_place() and self._watch.is_writable():
                restore_journal(self._disk, self._journal)
        except OSError as error:
            log.error("the journal file cannot be restored", file=str(self._journal.path), reason=str(error))

    def _fail(self, reason: str) -> None:
        """Refuse further rounds: the journal's content is unknown. Acknowledged ones are flushed once no job runs."""
        self._sync_due = self._probe_due = self._checkpoint_due = inf
        if not self.failure:
            self.failure = reason
            self._flush_due = self._clock()
            log.error(
                "the log has failed",
                reason=reason,
                consequence="every commit from now on is refused",
                advice="remove the cause, then start the server again",
            )


def _call_done(done: DoneCallback, outcomes: Sequence[Appended]) -> None:
    """Call ``done``; its failure must not stop the log."""
    try:
        done(outcomes)
    except Exception:
        log.exception("callback of a round failed")
