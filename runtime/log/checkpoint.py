"""Work on the partition files while rounds go on: write batches, sync files, remove old journal files.

One job runs at a time, outside of the log's thread, so no round ever waits for a partition file. The syncs of a
checkpoint run in parallel: fifty of them take 141 ms one after the other and 6 ms together, because the file system's
own journal merges them.

A partition whose file fails is not written any more, see ``Partition.fail``. The journal files with batches of it stay,
so nothing acknowledged is lost, and the other partitions go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..common.logs import get_logger
from ..disk.disk import Disk, is_out_of_descriptors, no_space_reason
from ..disk.threads import Call, Threads
from .partition import SyncJob
from .partitions import Partitions
from .recovery.clean_stop import write_note

log = get_logger("callboard.log")


class OldJournal(NamedTuple):
    """A complete journal file, and the partitions for which it may have batches that their files lack."""

    path: Path
    size: int
    partitions: frozenset[int]


class FileJobResult(NamedTuple):
    """The result of a job. ``journals``: those that had to stay. ``no_room``: error text of a full disk, or empty."""

    waiting_bytes: int = 0
    no_room: str = ""
    journals: tuple[OldJournal, ...] = ()
    error: BaseException | None = None


class FileJob:
    """One job. ``old``: the journal file that this checkpoint completes, and its size; None for a flush alone.

    ``syncs``: sync the partition files even if ``old`` is None. ``stopping``: the data folder, for the last job of a
    clean stop. The clean-stop note is written there before the journal is removed; if that fails, the journal stays.
    """

    def __init__(
        self,
        disk: Disk,
        threads: Threads,
        partitions: Partitions,
        rounds: Sequence[Sequence[tuple[int, bytes]]],
        tasks: Sequence[Call],
        old: tuple[Path, int] | None,
        journals: tuple[OldJournal, ...],
        *,
        syncs: bool = False,
        stopping: Path | None = None,
    ) -> None:
        self._disk = disk
        self._threads = threads
        self._partitions = partitions
        self._rounds = rounds
        self._tasks = tasks
        self._old = old
        self._journals = journals
        self._syncs = syncs
        self._stopping = stopping

    def run(self) -> FileJobResult:
        try:
            for batches in self._rounds:
                self._partitions.queue_batches(batches)
            no_room = self._partitions.flush()
        finally:  # a thread waits for each of them
            for task in self._tasks:
                task()
        if self._old is not None:
            no_room = self._checkpoint(*self._old) or no_room
        elif self._syncs:
            no_room = sync_partitions(self._disk, self._threads, self._partitions) or no_room
        return FileJobResult(self._partitions.waiting_bytes, no_room, self._journals)

    def _checkpoint(self, old: Path, size: int) -> str:
        """Returns the error text if there was no file descriptor left to sync a file; else an empty string."""
        touched = self._partitions.pop_touched()
        no_room = sync_partitions(self._disk, self._threads, self._partitions)
        unsynced = self._partitions.unsynced_partitions()
        journals = (*self._journals, OldJournal(old, size, touched))
        self._journals = tuple(journal for journal in journals if journal.partitions & unsynced)
        if self._stopping is not None and not self._journals:
            is_written = write_note(self._disk, self._stopping, self._partitions.clean_stop_note())
            self._journals = () if is_written else journals
        try:
            remove_journals(self._disk, [journal.path for journal in journals if journal not in self._journals])
        except OSError as error:  # harmless: the partition files have all of their batches
            log.warning("cannot remove old journal files", reason=str(error), folder=str(old.parent))
        return no_room


def sync_partitions(disk: Disk, threads: Threads, partitions: Partitions) -> str:
    """Make everything that was written durable. A partition for which that fails has failed.

    If a file or folder could not be opened because there was no file descriptor left, the partition stays marked as
    unsynced and the system's error text is returned; else an empty string.
    """
    jobs, no_room = partitions.sync_jobs()
    errors = dict(zip(jobs, threads.each([_sync_call(disk, job) for job in jobs]), strict=True))
    folders = sorted({folder for job in jobs for folder in job.folders})
    folder_errors = dict(zip(folders, threads.each([_folder_call(disk, folder) for folder in folders]), strict=True))
    for job in jobs:
        error = next(filter(None, (errors[job], *(folder_errors[folder] for folder in job.folders))), None)
        if isinstance(error, OSError) and is_out_of_descriptors(error):
            partitions[job.partition].mark_job_unsynced(job)
            no_room = no_space_reason(error)
        elif error is not None:
            partitions[job.partition].fail(error)
    return no_room


def remove_journals(disk: Disk, paths: Sequence[Path]) -> None:
    """Remove journal files, all in one folder, durably. Raises OSError."""
    for path in paths:
        disk.remove(path)
    if paths:
        disk.sync_folder(paths[0].parent)


def _sync_call(disk: Disk, job: SyncJob) -> Call:
    return lambda: job.run(disk)


def _folder_call(disk: Disk, folder: Path) -> Call:
    return lambda: disk.sync_folder(folder)
