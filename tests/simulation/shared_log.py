"""A log on a shared store that outlives the coordinator's processes, and whose partitions move between owners.

An append lands some time after it was sent and is answered some time after that: a process that dies in between leaves
appends that land later. The other owners of a partition write nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from contextvars import Context

from log.toy_store import Done, ToyOwnership, ToyStore

from callboard.actors.ports import NO_EPOCHS, Appended, Entry
from callboard.actors.records import Record
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.partition_counts import PartitionCounts
from callboard.runtime.testing.simulation.scenario import Sim

DELAY_MAX_S = 0.02
TOLD = 0.5
AWAY_S = (0.01, 1.0, 12.0)
"""The longest time that a partition has another owner: shorter and longer than a session."""


class SharedLog(ToyStore):
    """``LogStore`` with delays."""

    def __init__(self, counts: PartitionCounts, draw: random.Random) -> None:
        super().__init__(counts)
        self._draw = draw

    def append(
        self, entries: Sequence[Entry], timestamp_ms: int, done: Done, epochs: Mapping[int, int] = NO_EPOCHS
    ) -> None:
        loop, outcomes = asyncio.get_running_loop(), list[Appended]()
        lands_s = DELAY_MAX_S * self._draw.random()
        loop.call_later(lands_s, self._land_round, entries, dict(epochs), outcomes, context=Context())
        loop.call_later(lands_s + DELAY_MAX_S * self._draw.random(), done, outcomes)

    def _land_round(self, entries: Sequence[Entry], epochs: Mapping[int, int], outcomes: list[Appended]) -> None:
        outcomes += [self._land(entry, epochs) for entry in entries]

    def offsets_partitions_with_data(self) -> list[int]:
        return [number for number in range(self.counts.offsets) if self.records[number]]

    def transactions_partitions_with_data(self) -> list[int]:
        return [number for number in range(self.counts.offsets, sum(self.counts)) if self.records[number]]

    def read(self, partition: int) -> Iterator[tuple[int, int, Record]]:
        """Yield the log offset, the timestamp (0) and the record of each record."""
        for offset, record in enumerate(self.records[partition]):
            yield offset, 0, record


class ProcessOwnership(ToyOwnership):
    """The ownership of one process. Its start takes all partitions from the process before it."""

    def __init__(self, store: ToyStore) -> None:
        super().__init__(store)
        self._store.epochs = [epoch + 1 for epoch in store.epochs]

    def has_lost(self, partition: int) -> bool:
        """Whether another owner has the partition, or this process was told so."""
        return self._reported[partition] != self._store.epochs[partition]


class MovingPartitions:
    """The shared store of a scenario, and the actions that move its partitions."""

    def __init__(self, sim: Sim) -> None:
        self._sim = sim
        self._draw = random.Random(sim.random.random())
        self.log: SharedLog | None = None
        self._ownership: ProcessOwnership | None = None

    def make(self, folder: DataFolder) -> tuple[SharedLog, ProcessOwnership]:
        """Make the store of the next process: an argument of ``Environment``."""
        if self.log is None:
            self.log = SharedLog(PartitionCounts(folder.offsets_partitions, folder.transactions_partitions), self._draw)
        self._ownership = ProcessOwnership(self.log)
        return self.log, self._ownership

    def move(self) -> None:
        """Give a partition to another owner for a while. The process is told, or finds out when it appends."""
        ownership, log = self._ownership, self.log
        if ownership is None or log is None or self._sim.coordinator.current is None:
            return
        partition = self._draw.randrange(sum(log.counts))
        if ownership.has_lost(partition):
            return
        is_told = self._draw.random() < TOLD
        self._sim.tell(f"partition {partition} is {'lost' if is_told else 'stolen'}")
        (ownership.lose if is_told else ownership.steal)(partition)
        self._sim.loop.call_later(self._draw.random() * self._draw.choice(AWAY_S), self._gain, ownership, partition)

    def _gain(self, ownership: ProcessOwnership, partition: int) -> None:
        """Give the partition back to the process, unless another process has taken all partitions meanwhile."""
        if ownership is self._ownership and self._sim.coordinator.current is not None:
            self._sim.tell(f"partition {partition} is gained")
            self._sim.generations.restarted()  # as after a restart, a generation that was not durable may be repeated
            ownership.gain(partition)

    def are_complete(self) -> bool:
        """Whether the process owns and serves all partitions."""
        ownership, log, incarnation = self._ownership, self.log, self._sim.coordinator.current
        if ownership is None or log is None or incarnation is None:
            return False
        return not incarnation.node.is_loading and not any(map(ownership.has_lost, range(sum(log.counts))))
