"""What is done with the partition files while rounds go on: batches are laid in, files synced, old journals dropped.

All of it is one job at a time, outside of the log's thread, so no round ever waits for a partition file. The syncs of a
checkpoint run side by side, because fifty of them one after the other take 141 ms and together 6 (the file system's own
journal merges them).

A partition whose file fails is left alone from then on, see ``Partition.fail``: the journal files that hold something
of it stay, so nothing that was answered is lost, and the others go on.
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
from .recovery.clean_stop import leave_note

log = get_logger("callboard.log")


class OldJournal(NamedTuple):
    """A journal file that is not written any more, and the partitions of which it may hold what they have not."""

    path: Path
    size: int
    partitions: frozenset[int]


class FileReport(NamedTuple):
    """How a job went. ``journals`` are those that had to stay, ``no_room`` is what a full disk said."""

    waiting_bytes: int = 0
    no_room: str = ""
    journals: tuple[OldJournal, ...] = ()
    error: BaseException | None = None


class FileJob:
    """One such job. ``old``: the journal file that ends here, and its size; None to lay in and no more.

    ``syncs``: sync the partition files also where no journal file ends. ``stopping``: the data folder, for the last job
    of a clean stop. The note is left there before the journal goes; if it cannot be written, the journal stays.
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

    def run(self) -> FileReport:
        try:
            for batches in self._rounds:
                self._partitions.gather(batches)
            no_room = self._partitions.lay_in()
        finally:  # somebody waits for each of them
            for task in self._tasks:
                task()
        if self._old is not None:
            no_room = self._checkpoint(*self._old) or no_room
        elif self._syncs:
            no_room = sync_partitions(self._disk, self._threads, self._partitions) or no_room
        return FileReport(self._partitions.waiting_bytes, no_room, self._journals)

    def _checkpoint(self, old: Path, size: int) -> str:
        """What kept it from syncing all for want of a file descriptor; empty when nothing did."""
        touched = self._partitions.take_touched()
        no_room = sync_partitions(self._disk, self._threads, self._partitions)
        unsafe = self._partitions.not_on_disk()
        journals = (*self._journals, OldJournal(old, size, touched))
        self._journals = tuple(journal for journal in journals if journal.partitions & unsafe)
        if self._stopping is not None and not self._journals:
            is_noted = leave_note(self._disk, self._stopping, self._partitions.clean_ends())
            self._journals = () if is_noted else journals
        try:
            remove_journals(self._disk, [journal.path for journal in journals if journal not in self._journals])
        except OSError as error:  # they only take room: what they hold is in the partition files
            log.warning("old journal files cannot be removed", reason=str(error), folder=str(old.parent))
        return no_room


def sync_partitions(disk: Disk, threads: Threads, partitions: Partitions) -> str:
    """Make all that was laid in durable. A partition for which that fails has failed.

    Where a file or folder could not be opened for want of a file descriptor, the partition is to be synced again; then
    the answer is what the system said, else nothing.
    """
    jobs, no_room = partitions.sync_jobs()
    errors = dict(zip(jobs, threads.each([_sync_call(disk, job) for job in jobs]), strict=True))
    folders = sorted({folder for job in jobs for folder in job.folders})
    folder_errors = dict(zip(folders, threads.each([_folder_call(disk, folder) for folder in folders]), strict=True))
    for job in jobs:
        error = next(filter(None, (errors[job], *(folder_errors[folder] for folder in job.folders))), None)
        if isinstance(error, OSError) and is_out_of_descriptors(error):
            partitions[job.partition].not_synced(job)
            no_room = no_space_reason(error)
        elif error is not None:
            partitions[job.partition].fail(error)
    return no_room


def remove_journals(disk: Disk, paths: Sequence[Path]) -> None:
    """Remove journal files, all of one folder, durably. OSError."""
    for path in paths:
        disk.remove(path)
    if paths:
        disk.sync_folder(paths[0].parent)


def _sync_call(disk: Disk, job: SyncJob) -> Call:
    return lambda: job.run(disk)


def _folder_call(disk: Disk, folder: Path) -> Call:
    return lambda: disk.sync_folder(folder)
