"""All offsets partitions of a log together, and what is waiting to be laid into their files.

A round touches up to fifty files. To write them at once would cost more than the round's sync, so the batches of many
rounds are gathered and each file gets one write for all of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import StartError
from .disk import Disk
from .partition import TOPIC, Partition, SyncJob


class Partitions(list[Partition]):
    """The partitions by number."""

    def __init__(self, disk: Disk, root: Path, count: int, segment_bytes: int) -> None:
        super().__init__(Partition(disk, root, number, segment_bytes) for number in range(count))
        self._disk = disk
        self._root = root
        self._waiting: list[Sequence[tuple[int, bytes]]] = []
        self.waiting_bytes = 0

    def open(self, journal_from: dict[int, int] | None) -> None:
        """Open all. ``journal_from``: where the journal begins, by partition, 0 if not named; None without a journal.

        StartError for damage that may not be cut, and for a folder of a partition that there should not be.
        """
        self._refuse_surplus()
        for partition in self:
            partition.open(None if journal_from is None else journal_from.get(partition.number, 0))

    def gather(self, batches: Sequence[tuple[int, bytes]], size: int) -> None:
        """Keep a round's batches, about ``size`` bytes, until ``lay_in``."""
        self._waiting.append(batches)
        self.waiting_bytes += size

    def lay_in(self) -> None:
        """Write all that was gathered into the partition files, unsynced. OSError when a disk fails."""
        by_partition: dict[int, list[bytes]] = {}
        for batches in self._waiting:
            for number, batch in batches:
                by_partition.setdefault(number, []).append(batch)
        self._waiting.clear()
        self.waiting_bytes = 0
        for number, batches_of_one in by_partition.items():
            self[number].append(batches_of_one)

    def end_offsets(self) -> dict[int, int]:
        """Where each partition that has records ends on disk."""
        return {partition.number: partition.end_offset for partition in self if partition.end_offset}

    def sync_jobs(self) -> list[SyncJob]:
        """What must be synced so that all files are durable as they are now."""
        return [job for partition in self if (job := partition.sync_job()) is not None]

    def close(self) -> None:
        for partition in self:
            partition.close()

    def _refuse_surplus(self) -> None:
        surplus = [name for name in self._disk.names(self._root) if self._is_surplus(name)]
        if surplus:
            raise StartError(
                f"{self._root}: found {surplus[0]}, expected partitions 0 to {len(self) - 1} only; a group's partition"
                " depends on their number, so set offsets_partitions to the number that wrote this folder"
            )

    def _is_surplus(self, name: str) -> bool:
        topic, _, number = name.rpartition("-")
        return topic == TOPIC and number.isdecimal() and int(number) >= len(self)


def merge_folders(jobs: Iterable[SyncJob]) -> list[SyncJob]:
    """The same work with each folder synced once: fifty new partitions share one folder above them."""
    seen: set[Path] = set()
    merged = []
    for job in jobs:
        merged.append(SyncJob(job.fd, tuple(folder for folder in job.folders if folder not in seen)))
        seen.update(job.folders)
    return merged
