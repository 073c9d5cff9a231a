"""Environment: a node's disk, clock, random numbers, threads and dispatcher.

The defaults are those of a server. Tests and simulations replace them: the node reaches the outside only through the
environment and its event loop.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ...actors.assignors.base import AssignFunction
from ...actors.engine_ports import Clock
from ...actors.group.event_log import GroupObserver
from ...actors.ports import Random
from ..disk.disk import Disk
from ..disk.loop_threads import new_threads
from ..disk.threads import InlineThreads, Threads
from ..engine.alarm import WhenRead
from ..engine.clock import SystemClock, SystemRandom
from ..engine.dispatcher import Dispatcher, LoopDispatcher
from ..kafka.authorization.authorizer import Authorizer

if TYPE_CHECKING:
    from ..log.folder import DataFolder
    from ..log.pieces import LoadJob, PieceHandler
    from ..log.store import LogStore, Ownership
    from .cluster import Cluster

T = TypeVar("T")

MEMORY = Path("/memory")
"""The data folder of a node whose disk is in memory."""


class CheckpointTriggers(NamedTuple):
    """A checkpoint is made when the journal has ``journal_bytes``, or after ``interval_ms``."""

    journal_bytes: int = 64 * 1024 * 1024
    interval_ms: int = 60_000


class WorkClocks(NamedTuple):
    """``log_s``: monotonic, for the log's intervals. ``slice_ns``: measures how long work has held the event loop.

    ``budget_ns``: measures how long the requests of all connections have held it in one iteration.
    """

    log_s: Callable[[], float] = time.monotonic
    slice_ns: Callable[[], int] = time.perf_counter_ns
    budget_ns: Callable[[], int] = time.perf_counter_ns


@dataclass(frozen=True)
class Environment:
    """The node's connections to the outside.

    ``threads``: creates the threads of the log; None: those of ``disk.loop_threads``. ``dispatcher``: creates the
    dispatcher of the actors, for a loop. ``work_clocks``: for the node's own work. ``allows_workers``: whether the
    node may use other threads and processes, for blocking work, to load large logs and to compact; else all work is
    done on the loop, and nothing is compacted. ``load``: loads the log in the background, instead of subprocesses.
    ``store``: creates a store of the log instead of local files, and the ownership of its partitions. ``cluster``:
    the cluster that the node belongs to, which has both. ``checkpoints``: when the journal is checkpointed.
    ``group_observer`` is notified of the events of all groups. ``authorizer`` decides what clients may do; None:
    the one that the settings name. ``assignors``: functions that assign partitions in groups of the consumer
    protocol, by name, besides Kafka's. ``when_read``, in a simulation without sockets: calls back once all input of
    clients that is there now has been read.
    """

    disk: Disk = field(default_factory=Disk)
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=SystemRandom)
    threads: Callable[[], Threads] | None = None
    work_clocks: WorkClocks = field(default_factory=WorkClocks)
    dispatcher: Callable[[AbstractEventLoop], Dispatcher] = LoopDispatcher
    allows_workers: bool = True
    load: Callable[[Sequence[LoadJob], PieceHandler], Awaitable[None]] | None = None
    store: Callable[[DataFolder], tuple[LogStore, Ownership]] | None = None
    cluster: Cluster | None = None
    checkpoints: CheckpointTriggers = field(default_factory=CheckpointTriggers)
    group_observer: GroupObserver | None = None
    authorizer: Authorizer | None = None
    assignors: Mapping[str, AssignFunction] = field(default_factory=dict)
    when_read: WhenRead | None = None

    @property
    def may_use_subprocesses(self) -> bool:
        """Whether subprocesses are allowed, and can open the files."""
        return self.allows_workers and self.disk.is_real

    def log_threads(self, loop: AbstractEventLoop) -> Threads:
        """New threads for the log of a node on this loop."""
        return new_threads(loop, self.disk) if self.threads is None else self.threads()

    async def run_blocking(self, call: Callable[[], object]) -> None:
        """Run a blocking call in another thread if that is allowed."""
        if self.allows_workers:
            await run_in_thread(call)
        else:
            call()


def in_memory(disk: Disk | None = None) -> Environment:
    """An environment in memory and on one thread. Use it with ``Options(data=MEMORY)``."""
    from ..disk.memory import MemoryDisk

    return Environment(disk=disk or MemoryDisk(), threads=InlineThreads, allows_workers=False)


async def run_in_thread(call: Callable[[], T]) -> T:
    """``asyncio.to_thread``. On the loop's own thread if Python's pool, which other loops have, refuses the work."""
    context = copy_context()
    try:
        running = asyncio.get_running_loop().run_in_executor(None, lambda: context.run(call))
    except RuntimeError:
        return call()
    return await running
