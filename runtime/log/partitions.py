"""All partitions of a log together, and what is waiting to be laid into their files.

They are numbered through: first those of ``__consumer_offsets``, then those of ``__transaction_state``.

A round touches up to fifty files. To write them at once would cost more than the round's sync, so the batches of many
rounds are gathered and each file gets one write for all of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ...actors.records import Record
from ..common.errors import StartError
from ..disk.disk import Disk, NoSpace, no_space_reason
from .counts import Counts, repair_command
from .folder import INFO_NAME
from .format.batch import LOG_OFFSET_MAX, offsets_of
from .partition import SEGMENT_MS, TOPIC, TRANSACTIONS_TOPIC, Partition, Salvage, SyncJob
from .recovery.clean_stop import CleanEnd, Note
from .recovery.quarantine import Quarantine
from .stats import PartitionStats

BLOCK_BYTES = 4096  # what most file systems give to files at once


class Partitions(list[Partition]):
    """The partitions by number. ``count`` are of the offsets topic, ``transactions`` of the transactions topic."""

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
        self.quarantine = Quarantine()
        for partition in self:
            partition.quarantine = self.quarantine
        self._counts = {TOPIC: count, TRANSACTIONS_TOPIC: transactions}
        self._disk = disk
        self._root = root
        self._waiting: dict[int, list[bytes]] = {}
        self._touched: set[int] = set()
        self.waiting_bytes = 0

    def open(self, journal_from: Mapping[int, int | None], salvage: Salvage | None = None) -> None:
        """Open all. ``journal_from``: where the journal begins, by partition, for those of which it knows.

        ``salvage`` as in ``Partition.open``. StartError for a folder of a partition that there should not be.
        """
        self._refuse_surplus()
        for partition in self:
            partition.open(journal_from.get(partition.number), salvage)

    @property
    def counts(self) -> Counts:
        return Counts(*self._counts.values())

    def expect(self, ends: Mapping[str, CleanEnd]) -> None:
        """What the note of a clean stop says, by the name of a partition's folder. Before ``open``.

        An end that no partition can have is passed over: then the partition's files are examined, as after a crash.
        """
        possible = {name: end for name, end in ends.items() if max(end.base, end.end_offset) <= LOG_OFFSET_MAX + 1}
        for partition in self:
            partition.clean_end = possible.get(partition.folder.name)

    def clean_ends(self) -> Note:
        """What the next such note is to say, when all is durable."""
        damaged = {damage.path.parent for damage in self.quarantine.damages()}
        ends = ((partition, partition.last_segment()) for partition in self if partition.folder not in damaged)
        counts = self.counts if self.counts.transactions else None  # a server's log always has partitions for both
        return Note({partition.folder.name: end for partition, end in ends if end is not None}, counts)

    def gather(self, batches: Iterable[tuple[int, bytes]]) -> None:
        """Keep a round's batches until ``lay_in``."""
        for number, batch in batches:
            self._waiting.setdefault(number, []).append(batch)

    def lay_in(self) -> str:
        """Write all that was gathered into the partition files, unsynced.

        What finds no room waits for the next time; then the answer is what the disk said, else nothing. A partition
        whose file cannot be written has failed, and gets no more.
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
            except Exception as error:  # whatever it is, the other partitions go on
                partition.fail(error)
        self.waiting_bytes = sum(len(batch) for batches in self._waiting.values() for batch in batches)
        return no_room

    def read(self, number: int) -> Iterator[tuple[int, int, Record]]:
        """What a partition holds, see ``Partition.read``. OSError when it does not hold all that it should."""
        partition = self[number]
        if partition.failure:
            raise OSError(f"{partition.folder} has failed ({partition.failure}); start again to read it")
        if number in self._waiting:
            raise OSError(f"{partition.folder}: there is no room to write what belongs there; make room on the disk")
        return partition.read()

    def stats(self) -> tuple[PartitionStats, ...]:
        """From any thread."""
        return tuple(partition.stats() for partition in self if partition.end_offset or partition.failure)

    def take_touched(self) -> frozenset[int]:
        """The partitions for which something was to be laid in since this was asked last."""
        touched, self._touched = frozenset(self._touched), set()
        return touched

    def not_on_disk(self) -> set[int]:
        """The partitions of which, after a sync, something is in the journal only."""
        return {each.number for each in self if each.failure or each.needs_sync} | set(self._waiting)

    def end_offsets(self) -> dict[int, int]:
        """Where each partition that has records ends on disk."""
        return {partition.number: partition.end_offset for partition in self if partition.end_offset}

    def sync_jobs(self) -> tuple[list[SyncJob], str]:
        """What must be synced so that all files are durable as they are now; and what was said where a file cannot be
        opened for want of a file descriptor. A partition whose file cannot be opened otherwise has failed."""
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
        """How much room what waits takes, in whole blocks."""
        sizes = (sum(len(batch) for batch in batches) for batches in self._waiting.values())
        return sum(-(-size // BLOCK_BYTES) * BLOCK_BYTES for size in sizes)

    def drop_waiting(self) -> None:
        """Forget what was gathered and is not written: the journal has it."""
        self._waiting.clear()
        self.waiting_bytes = 0

    def close(self) -> None:
        for partition in self:
            partition.close()

    def _refuse_surplus(self) -> None:
        for name in self._disk.names(self._root):
            topic, _, number = name.rpartition("-")
            if topic in self._counts and number.isdecimal() and int(number) >= self._counts[topic]:
                raise StartError(
                    f"{self._root}: found {name}, expected partitions 0 to {self._counts[topic] - 1} only; what lies"
                    f" in which depends on their number: put back the {INFO_NAME} that belongs to this folder, or"
                    f" write a new one with {repair_command(self._root)}"
                )
