"""The log's work: writes and syncs the journal, calls ``done`` for each round, and starts jobs on partition files.

Only one sync of the journal is in progress at a time; rounds that arrive during it wait. Each round costs as few steps
as possible, because a thread of the log competes with the event loop for the GIL. Rounds never wait for a partition
file: ``file_jobs.FileJobs`` writes these in another thread, one job at a time. ``journal_guard`` decides when the
journal has failed, ``due_times`` when work is due, and the ``Threads`` in which thread everything runs.

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
from enum import IntEnum
from functools import partial
from math import inf
from pathlib import Path
from typing import NamedTuple, TypeVar

from ...actors.errors import ErrorCode
from ...actors.ports import Appended
from ..common.logs import get_logger
from ..disk.disk import Disk, NoSpace, is_full, no_space_reason
from ..disk.threads import Call, Threads
from .checkpoint import FileJobResult
from .due_times import DueTimes
from .file_jobs import FileJobs
from .folder_watch import FolderWatch
from .journal import Journal, random_salt
from .journal_files import JournalSettings, UnavailableJournal
from .journal_guard import JournalGuard
from .journal_sequence import JournalSequence
from .partition_file_task import PartitionFileTask
from .partitions import Partitions
from .room import Room, Store
from .rounds import DoneCallback, Round, failed_outcomes
from .stats import Counters, LogStats

T = TypeVar("T")
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


class Phase(IntEnum):
    """How far the stop of a log is."""

    OPEN = 0
    CLOSING = 1  # the last job starts when the running one has ended; rounds are still accepted
    ENDING = 2  # the last job runs; after it the journal file is removed, so rounds are refused
    CLOSED = 3


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
        self.reset = OffsetReset(0, {})
        self._root = root
        self._partitions = partitions
        self._clock = clock
        self._threads = threads
        self._watch = watch or FolderWatch(disk, root)
        self._phase = Phase.OPEN
        self._ends: dict[int, int] = {}
        self._counters = Counters()
        self._syncs_each_round = settings.sync == "always"
        self._due_times = DueTimes(settings)
        self._journals = JournalSequence(disk, root, settings.sync, partitions.counts, new_salt)
        self._jobs = FileJobs(disk, threads, partitions)
        self._room = Room(clock)
        self._guard = JournalGuard(self._journals, self._watch, self._due_times, self._counters, clock)

    # Called from other threads ---------------------------------------------------------------------------------------

    def create_journal(self, journal_number: int) -> None:
        """Create the journal file of that number; its header has the end offsets of all partitions. Raises OSError.

        Without room for it there is no journal, and commits are refused until it can be created.
        """
        self._watch.open()
        self._ends = self._partitions.end_offsets()
        self._counters.first_ends = sum(self._ends.values())
        try:
            self._journals.create_first(journal_number, self._ends)
        except OSError as error:
            if not is_full(error):
                raise
            self._room.set_full("journal", no_space_reason(error))
            self._due_times.probe_s = self._clock() + PROBE_INTERVAL_S

    def start(self) -> None:
        """Run calls and work that is due from now on. ``create_journal`` was called before."""
        if self._watch.interval_s is not None:
            self._due_times.watch_s = self._clock() + self._watch.interval_s
        self._due_times.update_next(is_job_running=False)
        self._threads.start(self, self._clock)

    def put(self, round_: Round) -> None:
        self._threads.put(partial(self._write, round_), partial(self._guard.is_ready, len(round_.frame)))

    def call_after_flush(self, work: Callable[[], T]) -> T:
        """Call ``work`` when all rounds so far are in the partition files; its result, or its exception."""
        task = PartitionFileTask(work)
        self._threads.put(partial(self._add_task, task.run))
        self._threads.wait(task.finished)
        return task.result()

    def stats(self) -> LogStats:
        """From any thread, after ``start``."""
        counters, journals = self._counters, self._journals
        return LogStats(
            records=sum(list(self._ends.values())) - counters.first_ends,
            rounds=counters.rounds,
            refused_rounds=counters.refused_rounds,
            syncs=counters.syncs,
            sync_seconds=counters.sync_seconds,
            sync_counts=tuple(counters.sync_counts),
            checkpoints=counters.checkpoints,
            checkpoint_seconds=counters.checkpoint_seconds,
            journal_files=journals.file_count,
            journal_bytes=journals.size_bytes,
            waiting_bytes=self._jobs.waiting_bytes + self._jobs.job_bytes,
            failure=self._guard.failure,
            full=tuple(sorted(self._room.full)),
            partitions=self._partitions.stats(),
        )

    def check(self) -> None:
        """Assert what holds while no work runs. Does not touch the files."""
        self._partitions.check()
        journal = self._journals.current
        if isinstance(journal, Journal):
            journal.check()
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
        self._close_files()

    # In turns, one after the other -----------------------------------------------------------------------------------

    @property
    def due(self) -> float:
        """See ``LogWork``."""
        return self._due_times.next_s

    @property
    def is_closed(self) -> bool:
        """See ``LogWork``."""
        return self._phase is Phase.CLOSED

    def turn(self, call: Call | None) -> None:
        due_times = self._due_times
        try:
            if call is not None:
                call()
            else:
                self._run_due_work()
        except Exception as error:  # a bug; if the thread ended, callers would wait for ever
            log.exception("bug in the log's work")
            self._guard.fail(str(error) or repr(error))
            due_times.flush_s = inf
        due_times.update_next(is_job_running=self._jobs.is_running)

    def _write(self, round_: Round) -> None:
        had_failed = bool(self._guard.failure)
        error = self._refusal(round_) if had_failed or self._phase >= Phase.ENDING or round_.batches else None
        if error is None and round_.batches:
            error = self._write_journal(round_.frame)
        if error is not None:
            self._refuse(round_, error, ends_the_log=bool(self._guard.failure) and not had_failed)
        elif round_.batches and self._syncs_each_round:
            self._journals.current.sync_by(self._threads, partial(self._finish, round_, self._clock()))
        else:
            self._finish(round_, None, None)

    def _finish(self, round_: Round, sync_started_s: float | None, failure: Exception | None) -> None:
        """Acknowledge a round that is as durable as it has to be. ``failure``: of its sync."""
        if failure is not None:
            self._guard.fail(str(failure) or repr(failure))
            self._refuse(round_, ErrorCode.KAFKA_STORAGE_ERROR, ends_the_log=True)
            return
        if sync_started_s is not None:
            self._counters.count_sync(self._clock() - sync_started_s)
        _call_done(round_.done, round_.outcomes)
        if round_.batches:
            jobs = self._jobs
            self._counters.rounds += 1
            self._ends.update(round_.ends)
            jobs.rounds.append(round_.batches)
            jobs.waiting_bytes += len(round_.frame)
            journal_bytes = self._journals.current.position
            self._due_times.plan_after_round(self._clock(), jobs.waiting_bytes, journal_bytes, self._room.full)

    def _refusal(self, round_: Round) -> ErrorCode | None:
        """Why a round is refused without an attempt; after the last job its journal file is removed."""
        if self._guard.failure or self._phase >= Phase.ENDING:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._jobs.waiting_bytes + self._jobs.job_bytes >= WAITING_BYTES:
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
            self._journals.current.write(frame)
        except NoSpace as error:
            self._room.set_full("journal", no_space_reason(error))
            self._due_times.probe_s = self._clock() + PROBE_INTERVAL_S
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        except Exception as error:
            self._guard.fail(str(error) or repr(error))
            return ErrorCode.KAFKA_STORAGE_ERROR
        return None

    def _run_due_work(self) -> None:
        """Run all work that is due."""
        now, due_times, guard = self._clock(), self._due_times, self._guard
        if due_times.watch_s <= now:
            due_times.watch_s = now + (self._watch.interval_s or inf)
            guard.check_lock()
        if due_times.sync_s <= now:
            due_times.sync_s = inf
            guard.sync()
        if due_times.probe_s <= now:
            self._probe(now)
        if not self._jobs.is_running and min(due_times.checkpoint_s, due_times.flush_s) <= now:
            guard.check_journal()
            must_wait = self._room.full & FLUSH_FIRST and self._jobs.waiting_bytes + self._jobs.job_bytes
            if must_wait or due_times.checkpoint_s > now:
                self._start_job()
            else:
                self._checkpoint(now)

    def _probe(self, now: float) -> None:
        """Check whether the journal has room again. If not, a checkpoint may make room: it removes the old journal."""
        due_times = self._due_times
        try:
            self._journals.probe(self._ends)
        except OSError as error:
            if not is_full(error):
                self._guard.fail(str(error))
                return
            due_times.probe_s = now + PROBE_INTERVAL_S
            if self._journals.current.has_rounds and "partition files" not in self._room.full:
                due_times.checkpoint_s = min(due_times.checkpoint_s, now)
        else:
            due_times.probe_s = inf
            self._room.clear_full("journal")

    # The partition files ---------------------------------------------------------------------------------------------

    def _add_task(self, task: Call) -> None:
        self._jobs.tasks.append(task)
        if not self._jobs.is_running:
            self._start_job()

    def _checkpoint(self, now: float) -> None:
        """Start the next journal file for further rounds, and a job that syncs the partition files.

        The old file is synced first, whatever the policy, so that only the last journal file can ever be torn. (If
        every round is synced, this costs nothing, unless a round without room was undone.) Without room for the next
        file the old one stays in use.
        """
        due_times, guard = self._due_times, self._guard
        due_times.checkpoint_s = inf
        guard.check_lock()
        guard.sync()
        if guard.failure:
            return
        try:
            # A full journal accepts no round, and the partition files have all of its rounds.
            old = self._journals.create_next(self._ends, may_trim="journal" in self._room.full)
        except OSError as error:
            if not is_full(error):
                guard.fail(str(error))
                return
            due_times.checkpoint_s = now + PROBE_INTERVAL_S
            self._room.set_full("next journal", no_space_reason(error))
            self._start_job()
            return
        self._room.clear_full("next journal")
        old.close()
        due_times.sync_s = inf
        self._start_job(old)

    def _start_job(self, old: Journal | UnavailableJournal | None = None) -> None:
        """Start a job that flushes all waiting batches; with ``old``, a complete journal file, the job is a checkpoint.

        After a failure the job also syncs what it flushes. It flushes nothing if the folder is gone or another process
        may write to it.
        """
        is_last_resort = bool(self._guard.failure)
        if is_last_resort and not self._watch.is_writable():
            self._jobs.discard()  # a write would create a new folder
        self._due_times.flush_s = inf
        completed = (old.path, old.position) if isinstance(old, Journal) else None
        stopping = self._root if self._phase is Phase.ENDING else None
        checkpoint_s = None
        if old is not None:
            self._counters.checkpoints += 1
            checkpoint_s = self._clock()
        done = partial(self._finish_job, checkpoint_s)
        self._jobs.start(done, completed, self._journals.completed, syncs=is_last_resort, stopping=stopping)

    def _finish_job(self, checkpoint_s: float | None, result: FileJobResult) -> None:
        """``checkpoint_s``: when the checkpoint started, if the job was one."""
        if checkpoint_s is not None:
            self._counters.checkpoint_seconds += self._clock() - checkpoint_s
        if result.error is not None:
            self._guard.fail(str(result.error) or repr(result.error))
        else:
            self._journals.completed = result.journals
        if result.no_room:
            self._room.set_full("partition files", result.no_room)
            self._due_times.flush_s = self._clock() + PROBE_INTERVAL_S
            self._due_times.checkpoint_s = max(self._due_times.checkpoint_s, self._due_times.flush_s)
        else:
            self._room.clear_full("partition files")
        if self._jobs.waiting_bytes + self._jobs.job_bytes < WAITING_BYTES:
            self._room.clear_full("memory")
        if self._phase is Phase.ENDING:
            self._close_files()
        elif self._phase is Phase.CLOSING:
            self._close()
        elif self._jobs.tasks:
            self._start_job()

    def _close(self) -> None:
        """Start the last job once no other runs. After a failure the journal stays for the next start."""
        self._phase = Phase.CLOSING
        if self._jobs.is_running:
            return
        self._phase = Phase.ENDING
        self._guard.check_journal()
        self._start_job(None if self._guard.failure else self._journals.current)

    def _close_files(self) -> None:
        self._phase = Phase.CLOSED
        self._journals.current.close()
        self._partitions.close()
        self._watch.close()


def _call_done(done: DoneCallback, outcomes: Sequence[Appended]) -> None:
    """Call ``done``; its failure must not stop the log."""
    try:
        done(outcomes)
    except Exception:
        log.exception("callback of a round failed")
