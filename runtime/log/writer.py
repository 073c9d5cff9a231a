"""The log's work: journal, sync, answer, and the orders for what is done with the partition files meanwhile.

There is never a second sync of the journal in flight; what arrives during one waits. This part does as little as it can
for each round, because every step of it competes with the loop for the interpreter, and nothing of it ever waits for a
partition file: that is ``checkpoint.FileJob``, one at a time, elsewhere. It knows no thread, see ``threads``.

What goes wrong with the disk is handled by what is known afterwards:

* *No room*, in the journal or for a file: nothing is lost. What was written short is taken back, commits are refused as
  long as they cannot be kept, and a look once a second finds out when there is room again.
* *The journal fails*, above all its sync: nothing is known about its end, and a later sync that succeeds proves
  nothing. So nothing more is promised, until the next start reads what is there. What was answered before is written to
  the partition files and synced at once: of a journal file that somebody has removed nothing would be left.
* *The folder or its lock is lost*: as a failed journal. The partition files are written only as long as they are where
  they were and no other process can write them.
* *A partition's file fails*: what belongs there stays in the journal, see ``Partition.fail``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from ...actors.errors import ErrorCode
from ...actors.ports import Appended
from ..common.logs import get_logger
from ..disk.disk import Disk, NoSpace, is_full, no_space_reason
from ..disk.threads import Call, Threads
from .checkpoint import FileJob, FileReport, OldJournal
from .folder_watch import FolderWatch
from .journal import FOLDER, FileHeader, Journal, random_salt
from .journal_files import NoJournal, Settings, first_journal, journal_loss, restore_journal
from .partitions import Partitions
from .rounds import Done, Round, failed
from .stats import Counters, LogStats
from .task import Task

T = TypeVar("T")
Full = Literal["journal", "next journal", "partition files", "memory"]

LAY_IN_BYTES = 1024 * 1024  # what waits in memory for the partition files before a job is begun for it
LAY_IN_SECONDS = 0.25  # and for how long: a few writes a second and partition instead of thousands
WAITING_BYTES = 64 * 1024 * 1024
"""What may wait in memory when the partition files cannot be written, or not fast enough; then commits are refused."""
LAY_IN_FIRST: frozenset[Full] = frozenset({"journal", "partition files"})
"""Where there is no room for these, what is left is for what waits: without that no journal file can go."""
PROBE_SECONDS = 1.0  # between two looks at a full disk: a client that is refused tries again about as often

log = get_logger("callboard.log")


class Reset(NamedTuple):
    """Rounds were refused that had offsets already: those that come are numbered from ``ends`` on, by partition.

    A round that was encoded before it knew of reset ``number`` follows one that was refused, and is refused too.
    """

    number: int
    ends: Mapping[int, int]


class RoundWork:
    """Takes rounds and makes them durable. ``clock`` is monotonic, in seconds. ``new_salt``: 8 random bytes a call."""

    def __init__(
        self,
        disk: Disk,
        root: Path,
        partitions: Partitions,
        settings: Settings,
        clock: Callable[[], float],
        threads: Threads,
        new_salt: Callable[[], bytes] = random_salt,
        watch: FolderWatch | None = None,
    ) -> None:
        """``watch`` sees whether the data folder is still there, and whose it is."""
        self._disk = disk
        self._folder = root / FOLDER
        self._new_salt = new_salt
        self._watch = watch or FolderWatch(disk, root)
        self._partitions = partitions
        self._settings = settings
        self._clock = clock
        self._threads = threads
        self._journal: Journal | NoJournal
        self._ends: dict[int, int] = {}
        self._first_ends = 0
        self._checkpoint_begun: float | None = None
        self._counters = Counters()
        self.reset = Reset(0, {})
        self.failure = ""
        self.is_closed = False
        self._is_busy = self._is_closing = self._is_ending = self._is_lost = False
        self._full: set[Full] = set()
        self._full_since = 0.0
        self._waiting: list[Sequence[tuple[int, bytes]]] = []
        self._waiting_bytes = self._handed_bytes = 0
        self._tasks: list[Call] = []
        self._old_journals: tuple[OldJournal, ...] = ()
        self._lay_in_due = self._sync_due = self._checkpoint_due = self._probe_due = inf
        self._watch_due = self.due = inf

    # From outside ----------------------------------------------------------------------------------------------------

    def begin_journal(self, journal_number: int) -> None:
        """Make the journal file of that number, which says where all partitions end. OSError when that fails.

        Without room for it there is no journal: commits are refused until it can be made.
        """
        self._watch.open()
        self._ends = self._partitions.end_offsets()
        self._first_ends = sum(self._ends.values())
        try:
            self._journal = first_journal(self._disk, self._folder, partial(self._new_journal, journal_number))
        except OSError as error:
            if not is_full(error):
                raise
            self._journal = NoJournal(self._folder, journal_number - 1)
            self._room_ended("journal", no_space_reason(error))
            self._probe_due = self._clock() + PROBE_SECONDS

    def start(self) -> None:
        """Take rounds, with the journal that was begun."""
        if self._watch.interval_s is not None:
            self._watch_due = self._clock() + self._watch.interval_s
        self._reckon()
        self._threads.start(self, self._clock)

    def _new_journal(self, number: int) -> Journal:
        header = FileHeader(self._ends, self._settings.sync, self._partitions.counts)
        return Journal(self._disk, self._folder, number, header, self._new_salt())

    def put(self, item: Round) -> None:
        self._threads.put(partial(self._write, item))

    def call_settled(self, work: Callable[[], T]) -> T:
        """Do ``work`` when all rounds so far are in the partition files, and wait for it. Raises what it raises."""
        task = Task(work)
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
            waiting_bytes=self._waiting_bytes + self._handed_bytes,
            failure=self.failure,
            full=tuple(sorted(self._full)),
            partitions=self._partitions.stats(),
        )

    def close(self) -> None:
        """Finish what was put, make it durable in the partition files, remove the journal."""
        self._threads.put(self._close)
        self._threads.close()

    def halt(self) -> None:
        """Let go of everything as a process does that dies: what was put and not begun is lost, nothing is tidied."""
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
                self._catch_up()
        except Exception as error:  # a bug of ours; whoever waits for this work would wait for ever if it ended
            log.exception("the log's work failed")
            self._fail(str(error) or repr(error))
            self._lay_in_due = inf
        self._reckon()

    def _write(self, item: Round) -> None:
        had_failed = bool(self.failure)
        error = self._refusal(item) if self.failure or self._is_ending or item.batches else None
        if error is None and item.batches:
            error = self._write_journal(item.frame)
        if error is not None:
            self._refuse(item, error, ends_the_log=bool(self.failure) and not had_failed)
            return
        _answer(item.done, item.outcomes)
        if item.batches:
            self._counters.rounds += 1
            self._ends.update(item.ends)
            self._waiting.append(item.batches)
            self._waiting_bytes += len(item.frame)
            self._plan()

    def _refusal(self, item: Round) -> ErrorCode | None:
        """Why a round is not even tried. Behind the last job nobody would lay it in, and its journal file goes."""
        if self.failure or self._is_ending:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._waiting_bytes + self._handed_bytes >= WAITING_BYTES:
            self._room_ended("memory", f"{WAITING_BYTES} bytes wait for the partition files")
        elif "journal" not in self._full and item.reset == self.reset.number:
            return None
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _refuse(self, item: Round, error: ErrorCode, *, ends_the_log: bool) -> None:
        """Its offsets, and those of all that were encoded behind it, are free again.

        ``ends_the_log``: answer when the partition files have all that was answered before; the journal may be gone.
        """
        self._counters.refused_rounds += 1
        if item.batches:
            self.reset = Reset(self.reset.number + 1, self._ends.copy())
        answer = partial(_answer, item.done, failed(item.outcomes, error))
        self._add_task(answer) if ends_the_log else answer()

    def _write_journal(self, frame: bytes) -> ErrorCode | None:
        try:
            self._journal.write(frame)
            if self._settings.sync == "always":
                begun = self._clock()
                self._journal.sync()
                self._counters.count_sync(self._clock() - begun)
        except NoSpace as error:
            self._room_ended("journal", no_space_reason(error))
            self._probe_due = self._clock() + PROBE_SECONDS
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        except Exception as error:
            self._fail(str(error) or repr(error))
            return ErrorCode.KAFKA_STORAGE_ERROR
        return None

    def _plan(self) -> None:
        """A round was written: say when which of the works that it leaves behind is due."""
        now, settings = self._clock(), self._settings
        if self._waiting_bytes >= LAY_IN_BYTES and "partition files" not in self._full:
            self._lay_in_due = now
        elif self._lay_in_due == inf:
            self._lay_in_due = now + LAY_IN_SECONDS
        if settings.sync == "interval" and self._sync_due == inf:
            self._sync_due = now + settings.flush_interval_s
        if self._journal.position >= settings.checkpoint_bytes and "next journal" not in self._full:
            self._checkpoint_due = now
        elif self._checkpoint_due == inf:
            self._checkpoint_due = now + settings.checkpoint_interval_s

    def _reckon(self) -> None:
        """When the next thing is due. What needs the partition files waits until nobody has them."""
        due = min(self._sync_due, self._probe_due, self._watch_due)
        self.due = due if self._is_busy else min(due, self._lay_in_due, self._checkpoint_due)

    def _catch_up(self) -> None:
        """Do what is due."""
        now = self._clock()
        if self._watch_due <= now:
            self._see_lock()
            self._watch_due = inf if self._is_lost else now + (self._watch.interval_s or inf)
        if self._sync_due <= now:
            self._sync_due = inf
            self._sync_journal()
        if self._probe_due <= now:
            self._probe(now)
        if not self._is_busy and min(self._checkpoint_due, self._lay_in_due) <= now:
            self._see_journal()
            must_wait = self._full & LAY_IN_FIRST and self._waiting_bytes + self._handed_bytes
            if must_wait or self._checkpoint_due > now:
                self._start_job()
            else:
                self._checkpoint(now)

    def _sync_journal(self) -> None:
        try:
            begun = self._clock()
            self._journal.sync()
            self._counters.count_sync(self._clock() - begun)
        except OSError as error:
            self._fail(str(error))

    # The partition files ---------------------------------------------------------------------------------------------

    def _add_task(self, task: Call) -> None:
        self._tasks.append(task)
        if not self._is_busy:
            self._start_job()

    def _checkpoint(self, now: float) -> None:
        """Begin the next journal file, so that rounds go on, and have the partition files synced meanwhile.

        The old file is synced first, whatever the policy: so only the last journal file can ever be torn. (Where every
        round is synced, that is free, unless a round that found no room was taken back.) Without room for the next file
        the old one goes on.
        """
        self._checkpoint_due = inf
        self._see_lock()
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
            self._checkpoint_due = now + PROBE_SECONDS
            self._room_ended("next journal", no_space_reason(error))
            self._start_job()
            return
        self._room_again("next journal")
        old.close()
        self._sync_due = inf
        self._start_job(old)

    def _next_journal(self, old: Journal | NoJournal) -> Journal:
        try:
            return self._new_journal(old.number + 1)
        except OSError as error:
            if not is_full(error) or "journal" not in self._full:
                raise
        old.give_back()  # it takes no round anyway, and the partition files have all of it, in the last free byte too
        return self._new_journal(old.number + 1)

    def _start_job(self, old: Journal | NoJournal | None = None) -> None:
        """Have all that waits laid in; with ``old``, a journal file that has ended, make a checkpoint of it.

        After a failure what is laid in is synced, too, unless it would not be found or another process may write there.
        """
        is_last_resort = bool(self.failure)
        if is_last_resort and not self._watch.is_writable():
            self._waiting.clear()  # written, it would make a folder where there is none; the journal has it
            self._partitions.drop_waiting()
        rounds, self._waiting = self._waiting, []
        tasks, self._tasks = self._tasks, []
        self._handed_bytes += self._waiting_bytes
        self._waiting_bytes = 0
        self._lay_in_due = inf
        self._is_busy = True
        ended = (old.path, old.position) if isinstance(old, Journal) else None
        work = rounds, tasks, ended, self._old_journals
        stopping = self._folder.parent if self._is_ending else None
        job = FileJob(self._disk, self._threads, self._partitions, *work, syncs=is_last_resort, stopping=stopping)
        self._threads.submit(partial(self._run_job, job))
        if old is not None:
            self._counters.checkpoints += 1
            self._checkpoint_begun = self._clock()

    def _run_job(self, job: FileJob) -> None:
        """Not in the log's thread."""
        try:
            report = job.run()
        except Exception as error:  # a bug of ours
            log.exception("the log's work with the partition files failed")
            report = FileReport(error=error)
        self._threads.put(partial(self._job_done, report))

    def _job_done(self, report: FileReport) -> None:
        self._is_busy = False
        if self._checkpoint_begun is not None:
            self._counters.checkpoint_seconds += self._clock() - self._checkpoint_begun
            self._checkpoint_begun = None
        self._handed_bytes = report.waiting_bytes
        if report.error is not None:
            self._fail(str(report.error) or repr(report.error))
        else:
            self._old_journals = report.journals
        self._see_room(report.no_room)
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
        if not self._is_busy:
            self._finish()

    def _finish(self) -> None:
        """The last job. After a failure the journal stays, for the next start to read."""
        self._is_ending = True
        self._see_journal()
        self._start_job(None if self.failure else self._journal)

    # Trouble ---------------------------------------------------------------------------------------------------------

    def _see_room(self, no_room: str) -> None:
        """How a job has found the disk."""
        if no_room:
            self._room_ended("partition files", no_room)
            self._lay_in_due = self._clock() + PROBE_SECONDS
            self._checkpoint_due = max(self._checkpoint_due, self._lay_in_due)
        else:
            self._room_again("partition files")
        if self._waiting_bytes + self._handed_bytes < WAITING_BYTES:
            self._room_again("memory")

    def _probe(self, now: float) -> None:
        """See whether the journal may go on; if not, a checkpoint may make room, since it drops the old journal."""
        try:
            if isinstance(self._journal, NoJournal):
                self._journal = first_journal(
                    self._disk, self._folder, partial(self._new_journal, self._journal.number + 1)
                )
            self._journal.probe()
        except OSError as error:
            if not is_full(error):
                self._fail(str(error))
                return
            self._probe_due = now + PROBE_SECONDS
            if self._journal.has_rounds and "partition files" not in self._full:
                self._checkpoint_due = min(self._checkpoint_due, now)
        else:
            self._probe_due = inf
            self._room_again("journal")

    def _room_ended(self, where: Full, reason: str) -> None:
        if not self._full:
            self._full_since = self._clock()
            log.error(
                "the log has no room",
                where=where,
                reason=reason,
                consequence="commits that cannot be kept are refused, and clients try them again",
            )
        self._full.add(where)

    def _room_again(self, where: Full) -> None:
        if where in self._full:
            self._full.remove(where)
            if not self._full:
                log.warning("the log has room again", after_s=round(self._clock() - self._full_since, 1))

    def _see_lock(self) -> None:
        """Another process may have the folder now, or may get it; or somebody has moved it away."""
        if not self._is_lost and (loss := self._watch.loss()):
            self._is_lost = True
            self._lose(loss)
            self._watch.on_lost()

    def _see_journal(self) -> None:
        """Somebody may have removed, moved or cut it: it can be written as before, and a start would not find all."""
        self._see_lock()
        if self.failure:
            return
        reason = journal_loss(self._journal)
        if reason:
            self._lose(f"{self._journal.path}: {reason}")

    def _lose(self, reason: str) -> None:
        """End with all that was answered where a next start finds it. The partition files follow, see ``_fail``."""
        self._fail(reason)
        self._sync_journal()
        try:
            if not self._journal.is_in_place() and self._watch.is_writable():
                restore_journal(self._disk, self._journal)
        except OSError as error:
            log.error("the journal file cannot be written again", file=str(self._journal.path), reason=str(error))

    def _fail(self, reason: str) -> None:
        """Nothing is known of the journal from here on, so nothing more is promised. Said once.

        What was answered before goes to the partition files as soon as nobody has them.
        """
        self._sync_due = self._probe_due = self._checkpoint_due = inf
        if not self.failure:
            self.failure = reason
            self._lay_in_due = self._clock()
            log.error(
                "the log has failed",
                reason=reason,
                consequence="every commit from now on is refused",
                advice="remove the cause, then start the server again",
            )


def _answer(done: Done, outcomes: Sequence[Appended]) -> None:
    """A caller that fails must not stop the log."""
    try:
        done(outcomes)
    except Exception:
        log.exception("the caller failed to take the outcomes of a round")
