"""All partitions of a log, and the batches that wait to be written to their files.

Partitions are numbered consecutively: first those of ``__consumer_offsets``, then those of ``__transaction_state``.

A round touches up to fifty files. Writing to them at once would cost more than the round's sync, so the batches of
many rounds are queued, and each file gets one write for all of its batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ...actors.records import Record
from ..common.errors import StartError
from ..disk.disk import Disk, NoSpace, no_space_reason
from .folder import INFO_NAME
from .format.batch import LOG_OFFSET_MAX, offsets_of
from .partition import SEGMENT_MS, TOPIC, TRANSACTIONS_TOPIC, Partition, SalvageCallback, SyncJob
from .partition_counts import PartitionCounts, repair_command
from .recovery.clean_stop import CleanEnd, CleanStopNote
from .recovery.quarantine import DamageRegistry
from .stats import PartitionStats

BLOCK_BYTES = 4096  # the allocation unit of most file systems


class Partitions(list[Partition]):
    """The partitions by number: ``count`` of the offsets topic, then ``transactions`` of the transactions topic."""

    def __init__(
        self,
        disk: Disk,
        root: Path,
        count: int,
        segment_bytes: int,
        transactions: int = 0,
        *,
        segment_ms: int = SEGMENT_MS,
    ) -> None:
        super().__init__(Partition(disk, root, number, segment_bytes, segment_ms=segment_ms) for number in range(count))
        for number in range(count, count + transactions):
            self.append(Partition(disk, root, number, segment_bytes, TRANSACTIONS_TOPIC, count, segment_ms=segment_ms))
        self.damage_registry = DamageRegistry()
        for partition in self:
            partition.damage_registry = self.damage_registry
        self._counts = {TOPIC: count, TRANSACTIONS_TOPIC: transactions}
        self._disk = disk
        self._root = root
        self._waiting: dict[int, list[bytes]] = {}
        self._touched: set[int] = set()
        self.waiting_bytes = 0

    def open(self, journal_from: Mapping[int, int | None], salvage: SalvageCallback | None = None) -> None:
        """Open all. ``journal_from``: the journal's first offset, by partition, where it is known.

        ``salvage`` as in ``Partition.open``. Raises StartError for a partition folder whose number is too high.
        """
        self._refuse_surplus_folders()
        for partition in self:
            partition.open(journal_from.get(partition.number), salvage)

    @property
    def counts(self) -> PartitionCounts:
        return PartitionCounts(*self._counts.values())

    def expect_ends(self, ends: Mapping[str, CleanEnd]) -> None:
        """Set the ends that the clean-stop note states, by the name of a partition's folder. Called before ``open``.

        An impossible end is ignored: the partition's files are then examined as after a crash.
        """
        possible = {name: end for name, end in ends.items() if max(end.base, end.end_offset) <= LOG_OFFSET_MAX + 1}
        for partition in self:
            partition.clean_end = possible.get(partition.folder.name)

    def clean_stop_note(self) -> CleanStopNote:
        """The content of the next clean-stop note, once everything is durable."""
        damaged = {damage.path.parent for damage in self.damage_registry.damages()}
        ends = ((partition, partition.segment_end()) for partition in self if partition.folder not in damaged)
        counts = self.counts if self.counts.transactions else None  # a server's log has both topics
        return CleanStopNote({partition.folder.name: end for partition, end in ends if end is not None}, counts)

    def queue_batches(self, batches: Iterable[tuple[int, bytes]]) -> None:
        """Queue a round's batches until ``flush``."""
        for number, batch in batches:
            self._waiting.setdefault(number, []).append(batch)

    def flush(self) -> str:
        """Write all queued batches to the partition files, without a sync.

        Batches for which there is no room stay queued; then the disk's error text is returned, else an empty string.
        A partition whose file cannot be written has failed, and is not written any more.
        """
        no_room = ""
        for number in list(self._waiting):
            self._touched.add(number)
            partition, batches = self[number], self._waiting.pop(number)
            if partition.failure:
                continue
            try:
                partition.append(batches)
            except NoSpace as error:
                no_room = no_space_reason(error)
                self._waiting[number] = [batch for batch in batches if offsets_of(batch)[0] >= partition.end_offset]
            except Exception as error:  # whatever the error is, the other partitions must go on
                partition.fail(error)
        self.waiting_bytes = sum(len(batch) for batches in self._waiting.values() for batch in batches)
        return no_room

    def read(self, number: int) -> Iterator[tuple[int, int, Record]]:
        """A partition's records, see ``Partition.read``. Raises OSError when its file is incomplete."""
        partition = self[number]
        if partition.failure:
            raise OSError(f"{partition.folder} has failed ({partition.failure}); start again to read it")
        if number in self._waiting:
            raise OSError(f"{partition.folder}: there is no room to write all of its records; make room on the disk")
        return partition.read()

    def check(self) -> None:
        """Assert what holds between two calls."""
        for partition in self:
            partition.check()
        for number, batches in self._waiting.items():
            firsts = [offsets_of(batch)[0] for batch in batches]
            assert firsts == sorted(set(firsts)), f"waiting batches of partition {number} are not in order: {firsts}"

    def stats(self) -> tuple[PartitionStats, ...]:
        """From any thread."""
        return tuple(partition.stats() for partition in self if partition.end_offset or partition.failure)

    def pop_touched(self) -> frozenset[int]:
        """The partitions that ``flush`` had batches for since the last call."""
        touched, self._touched = frozenset(self._touched), set()
        return touched

    def unsynced_partitions(self) -> set[int]:
        """The partitions of which, after a sync, something is durable only in the journal."""
        return {partition.number for partition in self if partition.failure or partition.needs_sync} | set(
            self._waiting
        )

    def end_offsets(self) -> dict[int, int]:
        """The end offset on disk of each partition that has records."""
        return {partition.number: partition.end_offset for partition in self if partition.end_offset}

    def sync_jobs(self) -> tuple[list[SyncJob], str]:
        """The syncs that make all files durable as they are now, and an error text, or an empty string.

        The text is set when a file could not be opened because there was no file descriptor left. A partition whose
        file cannot be opened for another reason has failed.
        """
        jobs, no_room = [], ""
        for partition in self:
            try:
                job = partition.sync_job()
            except NoSpace as error:
                no_room = no_space_reason(error)
            except OSError as error:
                partition.fail(error)
            else:
                jobs += [job] if job is not None else []
        return jobs, no_room

    def missing_bytes(self) -> int:
        """The disk space that queued batches need, in whole blocks."""
        sizes = (sum(len(batch) for batch in batches) for batches in self._waiting.values())
        return sum(-(-size // BLOCK_BYTES) * BLOCK_BYTES for size in sizes)

    def drop_waiting(self) -> None:
        """Forget the queued batches: the journal has them."""
        self._waiting.clear()
        self.waiting_bytes = 0

    def close(self) -> None:
        for partition in self:
            partition.close()

    def _refuse_surplus_folders(self) -> None:
        for name in self._disk.names(self._root):
            topic, _, number = name.rpartition("-")
            if topic in self._counts and number.isascii() and number.isdecimal() and int(number) >= self._counts[topic]:
                raise StartError(
                    f"{self._root}: found {name}, expected partitions 0 to {self._counts[topic] - 1} only; groups are"
                    f" assigned to partitions by their number: put back the {INFO_NAME} that belongs to this folder, or"
                    f" write a new one with {repair_command(self._root)}"
                )
