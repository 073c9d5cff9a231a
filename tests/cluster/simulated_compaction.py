"""Compactors of a simulated cluster: processes without a session, and what the owner of a partition runs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import NamedTuple

from callboard.runtime.cluster.compaction.cleaner import ClusterCleaner
from callboard.runtime.cluster.compaction.compactor import Compactor
from callboard.runtime.cluster.content import Superseded, read_content
from callboard.runtime.cluster.keys import REGISTER
from callboard.runtime.cluster.manifest import newest_manifest
from callboard.runtime.cluster.patient_store import PatientStore
from callboard.runtime.cluster.store import Store
from callboard.runtime.disk.memory import MemoryDisk
from callboard.runtime.log.compaction.job import CompactionReport
from callboard.runtime.log.compaction.swap import CompactionSettings
from callboard.runtime.settings.table import Settings

from .simulated_node import SimulatedNode, WrongContent, read_values

FOLDER = Path("/scratch")
ClockS = Callable[[], float]


class CompactionPlace(NamedTuple):
    """What a compactor needs of its process. ``settings``: as of now."""

    store: Store
    settings: Callable[[], CompactionSettings]
    token: Callable[[], bytes]

    async def compact(self, partition: int) -> CompactionReport:
        compactor = Compactor(PatientStore(self.store), MemoryDisk(), FOLDER, self.settings(), self.token)
        return await compactor.compact(partition, f"partition {partition}")


class InlineWorkers:
    """``Workers`` of an owner: on its loop, with its connection to the store."""

    def __init__(self, place: CompactionPlace) -> None:
        self._place = place

    async def compact(
        self, partitions: list[int], settings: CompactionSettings
    ) -> AsyncGenerator[CompactionReport, None]:
        for partition in partitions:
            yield await self._place.compact(partition)

    def name_of(self, partition: int) -> str:
        return str(partition)

    def kill(self) -> None:
        """Its task is cancelled."""


async def compact_owned(node: SimulatedNode, place: CompactionPlace, settings: Settings, now: ClockS) -> None:
    """The cleaner of a node, for ever."""
    workers = InlineWorkers(place)
    cleaner = ClusterCleaner(node, workers, settings, now, lambda: place.settings().now_ms)
    while True:
        await asyncio.sleep(settings.log_cleaner_backoff_ms / 1000)
        await cleaner.compact_due_partitions()


class SimulatedCompactor:
    """Compacts one partition after the other, and reads it as anybody may. ``damages``: what was wrong."""

    def __init__(self, place: CompactionPlace, partitions: int, draw: random.Random, pause_s: float) -> None:
        self.damages: list[str] = []
        self.compacted = 0
        self._place = place
        self._partitions = partitions
        self._draw = draw
        self._pause_s = pause_s

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._draw.expovariate(1 / self._pause_s))
            partition = self._draw.randrange(self._partitions)
            if await PatientStore(self._place.store).list(REGISTER):  # else there is no cluster yet
                report = await self._place.compact(partition)
                self.compacted += report.status == "compacted"
                if report.status == "damaged":
                    self.damages.append(report.reason)
                await self._read(partition)

    async def _read(self, partition: int) -> None:
        store = PatientStore(self._place.store)
        try:
            contents = await read_content(store, await newest_manifest(store, partition))
            read_values([data for _, data in contents])
        except Superseded:
            pass  # a reader begins again
        except WrongContent as error:
            self.damages.append(f"partition {partition}: {error}")
