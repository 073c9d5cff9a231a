"""Compactions of a simulated coordinator's log: in one step, or in subprocesses that outlive it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Protocol

from ....actors.engine_ports import Clock
from ...disk.disk import Disk
from ...log.compaction.garbage import publish_and_collect
from ...log.compaction.swap import CompactionSettings, compact
from ...log.format.errors import DamagedBatch
from ...log.partition import TOPIC, TRANSACTIONS_TOPIC, folder_name
from ...settings.table import Settings
from ..disk.faulty import FaultyDisk, PowerLoss
from .loop import VirtualLoop
from .stepped_process import SteppedProcess

DATA_FOLDER = Path("/data")
CHUNK_BYTES = 4096  # small, so that small logs have chunk boundaries
COMPACTED_BYTES = 1500  # of compacted files
PAUSE_MS = (0.1, 3.0, 50.0)  # the longest pause between two turns of a subprocess
STEPS_MAX = 6  # disk operations in one turn


class Setup(Protocol):
    """The part of a ``CoordinatorSetup`` that compactions use."""

    @property
    def settings(self) -> Settings: ...


class Machine(Protocol):
    """The coordinator's machine: ``SimulatedCoordinator``."""

    disk: FaultyDisk

    @property
    def clock(self) -> Clock: ...

    @property
    def setup(self) -> Setup: ...

    def compaction_failed(self, error: BaseException) -> None:
        """Handle an error of a compaction."""


class SimulatedCompactions:
    """The compactions on a machine. ``draw`` decides the ids, and the order of the subprocesses' operations."""

    def __init__(self, machine: Machine, loop: VirtualLoop, draw: random.Random) -> None:
        self._machine = machine
        self._loop = loop
        self._draw = draw
        self._subprocesses: list[SteppedProcess] = []

    @property
    def open_files(self) -> list[int]:
        """The descriptors of the subprocesses' files."""
        return [fd for subprocess in self._subprocesses for fd in subprocess.disk.fds]

    def use_disk(self, disk: FaultyDisk) -> None:
        """The machine's disk was opened again."""
        for subprocess in self._subprocesses:
            subprocess.disk.inner = disk

    def compact(self, retention_ms: int = 0, grace_ms: int = 0) -> int:
        """Compact all partitions, as the log cleaner does. Returns how many were compacted."""
        compacted = 0
        try:
            for folder in self._folders():
                compacted += self._compact(self._machine.disk, folder, retention_ms, grace_ms)
        except (PowerLoss, OSError, DamagedBatch) as error:
            self._machine.compaction_failed(error)
        return compacted

    def compact_in_subprocess(self, retention_ms: int = 0, grace_ms: int = 0) -> None:
        """Compact step by step in a subprocess, which may outlive the coordinator. Several may run at once."""

        def work(disk: Disk) -> None:
            for folder in folders:
                self._compact(disk, folder, retention_ms, grace_ms)

        try:
            folders = self._folders()
        except (PowerLoss, OSError) as error:
            self._machine.compaction_failed(error)
            return
        subprocess = SteppedProcess(self._machine.disk, work)
        self._subprocesses.append(subprocess)
        self._loop.call_soon(self._step, subprocess, self._draw.choice(PAUSE_MS))

    def kill_subprocesses(self) -> None:
        """Kill all subprocesses."""
        for subprocess in self._subprocesses:
            subprocess.kill()
        self._subprocesses.clear()

    def _compact(self, disk: Disk, folder: Path, retention_ms: int, grace_ms: int) -> bool:
        clock = self._machine.clock

        def new_id() -> str:
            return f"{self._draw.getrandbits(32):08x}"

        settings = CompactionSettings(
            clock.wall_ms(), "simulation", -1, retention_ms, COMPACTED_BYTES, chunk_bytes=CHUNK_BYTES
        )
        is_compacted = compact(disk, folder, settings, clock.wall_ms, new_id) is not None
        publish_and_collect(disk, folder, clock.wall_ms(), grace_ms, new_id)
        return is_compacted

    def _step(self, subprocess: SteppedProcess, pace_ms: float) -> None:
        """Run some operations of a subprocess, and schedule the next ones."""
        try:
            for _ in range(self._draw.randint(1, STEPS_MAX)):
                if subprocess.has_ended or not subprocess.step():
                    self._forget(subprocess)
                    return
        except (PowerLoss, OSError, DamagedBatch) as error:
            self._forget(subprocess)
            self._machine.compaction_failed(error)
        else:
            self._loop.call_later(pace_ms * self._draw.random() / 1000, self._step, subprocess, pace_ms)

    def _forget(self, subprocess: SteppedProcess) -> None:
        self._subprocesses = [remaining for remaining in self._subprocesses if remaining is not subprocess]

    def _folders(self) -> list[Path]:
        """The folders of partitions with files."""
        settings = self._machine.setup.settings
        numbers = settings.offsets_topic_num_partitions, settings.transaction_state_log_num_partitions
        folders = [
            DATA_FOLDER / folder_name(number, topic)
            for topic, count in zip((TOPIC, TRANSACTIONS_TOPIC), numbers, strict=True)
            for number in range(count)
        ]
        return [folder for folder in folders if self._machine.disk.names(folder)]
