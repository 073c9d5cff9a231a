"""Environment: a node's disk, clock, random numbers, threads, and what runs its actors.

A server's are the defaults. A test or a simulation gives others: the node reaches the outside by these alone, and by
the event loop that it lives on.
"""

from __future__ import annotations

import time
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ...actors.engine_ports import Clock
from ...actors.ports import Random
from ..disk.disk import Disk
from ..disk.threads import Inline, OwnThreads, Threads
from ..engine.clock import SystemClock, SystemRandom
from ..engine.dispatcher import Dispatcher, LoopDispatcher

if TYPE_CHECKING:
    from ..loading.loader import Take
    from ..loading.pieces import Job

MEMORY = Path("/memory")
"""The data folder of a node whose disk is in memory."""


class LocalChannel(Protocol):
    """A channel of a member in this process, as the node sees it."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Environment:
    """``threads``: makes what the log's work runs on. ``dispatcher``: makes what runs actors, for a loop.

    ``log_clock``: monotonic seconds, for what the log does now and then. ``has_children``: whether there may be other
    processes and threads, to load what is large, to compact, and for what blocks; else all of that is done on the loop,
    and nothing is compacted. ``load``: reads the log while the node serves already, in place of processes beside it.
    A checkpoint is made when the journal has so many bytes, or after so long.
    """

    disk: Disk = field(default_factory=Disk)
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=SystemRandom)
    threads: Callable[[], Threads] = OwnThreads
    log_clock: Callable[[], float] = time.monotonic
    dispatcher: Callable[[AbstractEventLoop], Dispatcher] = LoopDispatcher
    has_children: bool = True
    load: Callable[[Sequence[Job], Take], Awaitable[None]] | None = None
    checkpoint_bytes: int = 64 * 1024 * 1024
    checkpoint_interval_ms: int = 60_000


def in_memory(disk: Disk | None = None) -> Environment:
    """Everything in memory and on one thread; give ``Options(data=MEMORY)`` with it."""
    from ..disk.faulty import FaultyDisk

    return Environment(disk=disk or FaultyDisk(), threads=Inline, has_children=False)
