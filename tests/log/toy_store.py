"""A store of the log in memory that loses and gains partitions while the node serves, as a shared store would.

The recipe "a store for the log" of docs/contributing.md names this file: a store is one file, and one argument of
``Environment``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from callboard.actors.errors import ErrorCode
from callboard.actors.ports import NO_EPOCHS, Appended, Entry
from callboard.actors.records import Record, TransactionRecord, TransactionValue
from callboard.actors.steps import Steps
from callboard.runtime.loading.loader import PartitionReplay
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.format.errors import Damage
from callboard.runtime.log.partition_counts import PartitionCounts
from callboard.runtime.log.pieces import (
    LoadJob,
    LoadReport,
    PackedGroups,
    PieceHandler,
    TransactionalIds,
    UnpackedGroups,
)
from callboard.runtime.log.stats import LogStats
from callboard.runtime.log.store import OwnershipListener

Done = Callable[[Sequence[Appended]], None]


class ToyStore:
    """``LogStore``. ``epochs``: the epoch of each partition's present owner, which may be another node.

    ``appends`` and ``loads`` are open gates unless a test closes them. ``unloaded``: partitions in the order in which
    the node has given them up.
    """

    def __init__(self, counts: PartitionCounts) -> None:
        self.has_local_files = False
        self.counts = counts
        self.records: list[list[Record]] = [[] for _ in range(sum(counts))]
        self.epochs = [0] * sum(counts)
        self.unloaded: list[int] = []
        self.failures: dict[int, str] = {}
        self.appends = asyncio.Event()
        self.loads = asyncio.Event()
        self.appends.set()
        self.loads.set()
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None: ...

    def append(
        self, entries: Sequence[Entry], timestamp_ms: int, done: Done, epochs: Mapping[int, int] = NO_EPOCHS
    ) -> None:
        task = asyncio.get_running_loop().create_task(self._append(entries, done, epochs))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def append_in_steps(
        self, entries: Sequence[Entry], timestamp_ms: int, done: Done, epochs: Mapping[int, int] = NO_EPOCHS
    ) -> Steps[None]:
        self.append(entries, timestamp_ms, done, epochs)
        yield

    async def _append(self, entries: Sequence[Entry], done: Done, epochs: Mapping[int, int]) -> None:
        await self.appends.wait()
        done([self._land(entry, epochs) for entry in entries])

    def _land(self, entry: Entry, epochs: Mapping[int, int]) -> Appended:
        if epochs.get(entry.partition) != self.epochs[entry.partition]:
            return Appended(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        records = self.records[entry.partition]
        records.extend(entry.records)
        return Appended(ErrorCode.NONE, len(records) - len(entry.records), "synced")

    def jobs(self, epochs: Mapping[int, int]) -> list[LoadJob]:
        return [
            LoadJob(partition, f"toy-{partition}", partition >= self.counts.offsets, 0, epoch=epoch)
            for partition, epoch in epochs.items()
            if self.records[partition] or partition in self.failures
        ]

    def loads_in_background(self, jobs: Sequence[LoadJob]) -> bool:
        return False

    async def load(self, jobs: Sequence[LoadJob], take: PieceHandler) -> None:
        for job in jobs:
            await self.loads.wait()
            records = tuple(self.records[job.partition])
            if job.partition in self.failures:
                take(job, LoadReport(failure=self.failures[job.partition]))
                continue
            if job.is_transactions:
                take(job, TransactionalIds(_transactions_of(records)))
            else:
                self._take_groups(job, records, take)
            take(job, LoadReport(len(records)))

    @staticmethod
    def _take_groups(job: LoadJob, records: Sequence[Record], take: PieceHandler) -> None:
        replay = PartitionReplay()
        for record in records:
            replay.replay(record)
        groups = {name: data for name, data in replay.groups.items() if not data.is_empty()}
        take(job, PackedGroups({name: data.pack() for name, data in groups.items() if data.is_packable()}))
        take(job, UnpackedGroups({name: data for name, data in groups.items() if not data.is_packable()}))

    def unload(self, partition: int) -> None:
        self.unloaded.append(partition)

    def stats(self) -> LogStats:
        return LogStats()

    def may_write_folder(self) -> bool:
        return True

    def add_damage(self, damage: Damage) -> None: ...

    def damages(self) -> list[Damage]:
        return []

    def close(self) -> None: ...

    def halt(self) -> None:
        for task in self._tasks:
            task.cancel()


def _transactions_of(records: Sequence[Record]) -> dict[str, TransactionValue]:
    newest = {record.transactional_id: record.value for record in records if isinstance(record, TransactionRecord)}
    return {name: value for name, value in newest.items() if value is not None}


class ToyOwnership:
    """``Ownership`` under the control of a test. At the start this node owns all partitions."""

    def __init__(self, store: ToyStore) -> None:
        self._store = store
        self._listener: OwnershipListener
        self._reported: list[int] = []  # the epochs that the node was told

    def start(self, listener: OwnershipListener) -> None:
        self._listener = listener
        self._reported = list(self._store.epochs)
        listener.gained(dict(enumerate(self._reported)))

    def refused(self, partition: int, epoch: int) -> None:
        if self._reported[partition] == epoch:
            self._listener.lost([partition])

    def stop(self) -> None: ...

    def gain(self, partition: int) -> None:
        """This node becomes the owner, with a higher epoch."""
        self._store.epochs[partition] += 1
        self._reported[partition] = self._store.epochs[partition]
        self._listener.gained({partition: self._reported[partition]})

    def lose(self, partition: int) -> None:
        """Another node becomes the owner, and this one is told."""
        self._store.epochs[partition] += 1
        self._listener.lost([partition])

    def steal(self, partition: int) -> None:
        """Another node becomes the owner, and this one is not told."""
        self._store.epochs[partition] += 1

    def fence(self) -> None:
        """All partitions are owned by others from now on."""
        self._store.epochs = [epoch + 1 for epoch in self._store.epochs]
        self._listener.fenced()


class Toy:
    """Makes the store for ``Environment.store``. It outlives the node, like a store on another machine."""

    store: ToyStore
    ownership: ToyOwnership

    def make(self, folder: DataFolder) -> tuple[ToyStore, ToyOwnership]:
        if not hasattr(self, "store"):
            self.store = ToyStore(PartitionCounts(folder.offsets_partitions, folder.transactions_partitions))
        self.ownership = ToyOwnership(self.store)
        return self.store, self.ownership
