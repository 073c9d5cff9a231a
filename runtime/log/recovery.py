"""What happens when a log is opened: torn tails are cut, the journal is laid in, everything is synced.

All of it may be interrupted and done again: a batch in the journal carries its partition and its base offset, so what
is already in a partition is passed over. Journal files go only after the sync of what they held.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import structlog

from ..errors import StartError
from .batch import offsets_of
from .checkpoint import Checkpointer
from .disk import Disk, read_file
from .journal import FOLDER, Extent, journal_name, journal_number, measure, read_rounds
from .partitions import Partitions, merge_folders

log = structlog.get_logger()


class _File(NamedTuple):
    path: Path
    extent: Extent


class Recovery:
    """Opens the partitions of a log from what a run before left in its folder."""

    def __init__(self, disk: Disk, root: Path, partitions: Partitions) -> None:
        self._disk = disk
        self._folder = root / FOLDER
        self._partitions = partitions
        self._files: list[_File] = []
        self._laid_in = 0
        self._passed_over = 0

    def run(self) -> int:
        """Open everything; the number for the next journal file. StartError when the folder does not fit together."""
        numbers = [journal_number(name) for name in self._disk.names(self._folder)]
        known = [number for number in numbers if number is not None]
        self._files = [self._measured(self._folder / journal_name(number)) for number in known]
        self._refuse_damage()
        self._partitions.open(self._files[0].extent.starts if self._files else None)
        self._refuse_lost_ends()
        for file in self._files:
            self._lay_in(file)
        if self._files:
            self._make_durable()
        return known[-1] + 1 if known else 0

    def _measured(self, path: Path) -> _File:
        return _File(path, measure(read_file(self._disk, path)))

    def _refuse_damage(self) -> None:
        """Only the last file can be torn: a file is synced before the next one begins."""
        for file in self._files[:-1]:
            if file.extent.torn_bytes or file.extent.starts is None:
                raise StartError(
                    f"{file.path}: damaged frame at byte {file.extent.good_bytes} and a later journal behind it,"
                    " expected whole frames; put back a copy of this file, or move it away to lose what it holds"
                )

    def _refuse_lost_ends(self) -> None:
        """What lay in the partition files when the oldest journal began was synced: it must be there."""
        starts = (self._files[0].extent.starts or {}) if self._files else {}
        for partition in self._partitions:
            start = starts.get(partition.number, 0)
            if partition.end_offset < start:
                raise StartError(
                    f"{partition.folder}: ends at offset {partition.end_offset}, expected {start} or more by"
                    f" {self._files[0].path}; put back the partition's files as they were"
                )

    def _lay_in(self, file: _File) -> None:
        ends = {partition.number: partition.end_offset for partition in self._partitions}
        for frame in read_rounds(read_file(self._disk, file.path), file.extent):
            missing = [(number, bytes(batch)) for number, batch in frame if self._is_missing(file, number, batch, ends)]
            self._partitions.gather(missing, sum(len(batch) for _, batch in missing))
            self._laid_in += len(missing)
            self._passed_over += len(frame) - len(missing)
        self._partitions.lay_in()

    def _is_missing(self, file: _File, number: int, batch: memoryview, ends: dict[int, int]) -> bool:
        """Whether a batch belongs at the end of its partition, which then is moved in ``ends``."""
        if number not in ends:
            raise StartError(
                f"{file.path}: found a batch of partition {number}, expected 0 to {len(ends) - 1};"
                " set offsets_partitions and transactions_partitions to the numbers that wrote this folder"
            )
        first, last = offsets_of(batch)
        end = ends[number]
        if last < end:
            return False
        if first != end:
            raise StartError(
                f"{file.path}: partition {number} ends at offset {end}, but the journal goes on with offsets {first} to"
                f" {last}, expected {end}; put back the partition's files as they were"
            )
        ends[number] = last + 1
        return True

    def _make_durable(self) -> None:
        """Sync every partition, even an unchanged one: the run before may have died before it could."""
        for partition in self._partitions:
            partition.distrust()
        failures: list[Exception] = []
        checkpointer = Checkpointer(self._disk, failures.append)
        checkpointer.start(merge_folders(self._partitions.sync_jobs()), [file.path for file in self._files])
        checkpointer.wait()
        checkpointer.close()
        if failures:
            raise StartError(f"{self._folder.parent}: {failures[0]} while syncing the log; check the disk, start again")
        self._tell()

    def _tell(self) -> None:
        torn = self._files[-1].extent.torn_bytes
        if torn or self._laid_in or self._passed_over:
            tell = log.warning if torn else log.info
            tell(
                "journal laid in", batches=self._laid_in, already_there=self._passed_over, torn_bytes=torn,
                files=len(self._files),
            )  # fmt: skip
