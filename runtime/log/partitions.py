"""All partitions of a log together, and what is waiting to be laid into their files.

They are numbered through: first those of ``__consumer_offsets``, then those of ``__transaction_state``.

A round touches up to fifty files. To write them at once would cost more than the round's sync, so the batches of many
rounds are gathered and each file gets one write for all of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import StartError
from .disk import Disk
from .folder import INFO_NAME
from .partition import TOPIC, TRANSACTIONS_TOPIC, Partition, SyncJob

SETTINGS = {TOPIC: "offsets_partitions", TRANSACTIONS_TOPIC: "transactions_partitions"}


class Partitions(list[Partition]):
    """The partitions by number. ``count`` are of the offsets topic, ``transactions`` of the transactions topic."""

    def __init__(self, disk: Disk, root: Path, count: int, segment_bytes: int, transactions: int = 0) -> None:
        super().__init__(Partition(disk, root, number, segment_bytes) for number in range(count))
        for number in range(count, count + transactions):
            self.append(Partition(disk, root, number, segment_bytes, TRANSACTIONS_TOPIC, count))
        self._counts = {TOPIC: count, TRANSACTIONS_TOPIC: transactions}
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
        for name in self._disk.names(self._root):
            topic, _, number = name.rpartition("-")
            if topic in self._counts and number.isdecimal() and int(number) >= self._counts[topic]:
                raise StartError(
                    f"{self._root}: found {name}, expected partitions 0 to {self._counts[topic] - 1} only; what lies"
                    f" in which depends on their number, so set {SETTINGS[topic]} in {INFO_NAME} to the number that"
                    " wrote this folder"
                )


def merge_folders(jobs: Iterable[SyncJob]) -> list[SyncJob]:
    """The same work with each folder synced once: fifty new partitions share one folder above them."""
    seen: set[Path] = set()
    merged = []
    for job in jobs:
        merged.append(SyncJob(job.fd, tuple(folder for folder in job.folders if folder not in seen)))
        seen.update(job.folders)
    return merged
