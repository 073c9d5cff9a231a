"""RecordWriter: has the records of rebalances written to files, without holding up the event loop or the groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from ...actors.engine_ports import Clock
from ...actors.recorder.record import RebalanceRecord
from ..common.logs import get_logger
from ..disk.file_work import FileThread, FileWork
from .data import NodeData
from .environment import Environment
from .event_files import EventFiles, EventLimits

BUFFER_MS: Final = 1000
WAITING_MAX: Final = 5000
"""Records that wait for a slow disk. Beyond it further ones are left out."""

log = get_logger("callboard.runtime")


class RecordWriter:
    """``later`` calls back after milliseconds. ``may_write``: whether the data folder is still ours.

    Records that cannot be written are lost, which is logged once.
    """

    def __init__(
        self,
        sink: EventFiles,
        files: FileWork,
        clock: Clock,
        later: Callable[[int, Callable[[], None]], object],
        limits: EventLimits,
        may_write: Callable[[], bool],
    ) -> None:
        self._sink = sink
        self._files = files
        self._clock = clock
        self._later = later
        self._limits = limits
        self._may_write = may_write
        self._waiting: list[RebalanceRecord] = []
        self._is_scheduled = False
        self._has_failed = False
        self._is_closed = False

    def add(self, record: RebalanceRecord) -> None:
        """Write a record within about a second."""
        is_wanted = self._limits.events_retention_bytes > 0 and not self._is_closed
        if not is_wanted or len(self._waiting) >= WAITING_MAX:
            return
        self._waiting.append(record)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._later(BUFFER_MS, self._write)

    def _write(self) -> None:
        records, self._waiting = self._waiting, []
        if records and self._may_write():
            self._files.submit(partial(self._sink.append, records, self._clock.wall_ms()), self._written)
        else:
            self._is_scheduled = False

    def _written(self, error: OSError | None) -> None:
        if error is not None and not self._has_failed:
            log.warning("records of rebalances cannot be written, and are lost", reason=str(error))
        if error is None and self._has_failed:
            log.info("records of rebalances are written again")
        self._has_failed = error is not None
        self._is_scheduled = bool(self._waiting)
        if self._waiting:
            self._later(BUFFER_MS, self._write)

    async def close(self, timeout_s: float) -> None:
        """Write what waits, unless that takes too long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._files.wait_until_idle()
                self._is_closed = True
                self._write()
                await self._files.wait_until_idle()
        except TimeoutError:
            log.warning("records of rebalances are lost", reason=f"they could not be written within {timeout_s:g} s")
        self._is_closed = True
        self._files.close()

    def halt(self) -> None:
        """Write nothing more."""
        self._is_closed = True
        self._files.halt()


def open_writer(data: NodeData, environment: Environment, loop: asyncio.AbstractEventLoop) -> RecordWriter | None:
    """None for a node without files of its own: in memory, in a cluster, or in a simulation."""
    if not (environment.disk.is_real and environment.allows_workers and data.log.has_local_files):
        return None

    def later(delay_ms: int, callback: Callable[[], None]) -> object:
        return loop.call_later(delay_ms / 1000, callback)

    settings = data.configs.settings
    sink = EventFiles(environment.disk, data.folder.path, settings)
    return RecordWriter(sink, FileThread(loop), environment.clock, later, settings, data.log.may_write_folder)
