"""LogLoading: loads the partitions that a node owns, at its start and whenever it gains or loses one."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from ...actors.callboard_error import CallboardError
from ..common.logs import get_logger
from ..loading.sink import LoadSink
from ..log.pieces import LoadJob
from .actors import NodeActors
from .data import NodeData
from .environment import Environment

log = get_logger("callboard.runtime")


class LogLoading:
    """Implements ``OwnershipListener``. ``sink`` has the figures of the start, and whether it is finished.

    ``is_in_background``: call ``load_in_background`` while the server listens, because the log is large; else
    ``load_now`` before.
    """

    def __init__(self, data: NodeData, actors: NodeActors, environment: Environment) -> None:
        self._store = data.log
        self._ownership = data.ownership
        self._clock = environment.clock
        self.sink = LoadSink(actors.groups, actors.transactions, data.topics, data.log, environment.clock)
        self.is_in_background = False
        self._jobs: Sequence[LoadJob] = ()
        self._is_started = False
        self._owned: dict[int, int] = {}  # epoch by partition, as reported last
        self._changes: dict[int, asyncio.Task[None]] = {}  # by partition, the last one
        self._loads: dict[int, asyncio.Task[None]] = {}  # by partition

    async def start(self) -> None:
        """Call it before requests are accepted: what is not loaded yet is refused."""
        self._ownership.start(self)
        epochs, self._is_started = dict(self._owned), True
        self._jobs = self._store.jobs(epochs)
        self.is_in_background = self._store.loads_in_background(self._jobs)
        await self.sink.start(epochs, {job.partition for job in self._jobs})

    async def load_now(self) -> None:
        """Raises MisplacedError for a group in a wrong partition."""
        await self._store.load(self._jobs, self.sink.accept)
        await self.sink.finish()

    async def load_in_background(self) -> None:
        """Requests to what is not loaded yet are refused meanwhile. Problems are logged, see also ``sink.failure``."""
        try:
            await self._store.load(self._jobs, self.sink.accept)
        except Exception as error:
            if self.sink.failure:
                return
            log.exception("the log could not be loaded")
            self.sink.fail_rest(repr(error))
        try:
            await self.sink.finish()
        except Exception:
            log.exception("loading could not be finished")

    async def stop(self) -> None:
        """Load and unload nothing any more."""
        self.halt()
        if self._changes:
            await asyncio.wait(list(self._changes.values()))

    def halt(self) -> None:
        """Stop as at the death of the process."""
        self._ownership.stop()
        for task in (*self._loads.values(), *self._changes.values()):
            task.cancel()

    # OwnershipListener -----------------------------------------------------------------------------------------------

    def gained(self, epochs: Mapping[int, int]) -> None:
        self.lost([partition for partition in epochs if partition in self._owned])
        self._owned.update(epochs)
        if self._is_started:
            for partition, epoch in epochs.items():
                self._run_next(partition, self._gain(partition, epoch))

    def lost(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            self._owned.pop(partition, None)
            if partition in self._loads:
                self._loads[partition].cancel()
            self._run_next(partition, self._lose(partition))

    def fenced(self) -> None:
        self.lost(list(self._owned))

    def _run_next(self, partition: int, change: Coroutine[Any, Any, None]) -> None:
        """Make a change of ownership when the earlier ones of the same partition are complete."""
        task = asyncio.get_running_loop().create_task(self._run_after(self._changes.get(partition), partition, change))
        self._changes[partition] = task
        task.add_done_callback(partial(self._forget, partition))

    def _forget(self, partition: int, change: asyncio.Task[None]) -> None:
        if self._changes.get(partition) is change:
            del self._changes[partition]

    async def _run_after(
        self, earlier: asyncio.Task[None] | None, partition: int, change: Coroutine[Any, Any, None]
    ) -> None:
        try:
            if earlier is not None:
                await asyncio.wait({earlier})
            await change
        except Exception:
            log.exception("a change of ownership could not be completed", partition=partition)
        finally:
            change.close()

    async def _gain(self, partition: int, epoch: int) -> None:
        if self._owned.get(partition) == epoch:  # else it was lost before its turn came
            await self.sink.gain(partition, epoch)
        if self._owned.get(partition) != epoch:
            return
        load = asyncio.get_running_loop().create_task(self._load(partition, epoch))
        self._loads[partition] = load
        await asyncio.wait({load})  # it is cancelled when the partition is lost
        del self._loads[partition]

    async def _load(self, partition: int, epoch: int) -> None:
        begun_ms = self._clock.monotonic_ms()
        try:
            jobs = self._store.jobs({partition: epoch})
            if jobs:
                await self._store.load(jobs, self.sink.accept)
            else:
                self.sink.finish_empty(partition)
        except CallboardError as error:
            log.error("a partition could not be loaded", partition=partition, reason=str(error))
            self.sink.fail(partition, str(error))
        except Exception as error:
            log.exception("a partition could not be loaded", partition=partition)
            self.sink.fail(partition, repr(error))
        else:
            seconds = (self._clock.monotonic_ms() - begun_ms) / 1000
            log.info("partition taken over", partition=partition, epoch=epoch, seconds=round(seconds, 3))

    async def _lose(self, partition: int) -> None:
        if partition in self.sink.epochs:
            await self.sink.lose(partition)
            self._store.unload(partition)
            log.info("partition given up", partition=partition)
