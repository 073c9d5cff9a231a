"""The engines: eight ways to see to it that one thread at a time is inside of a group. All else is the same for all.

An engine gives each group a ``Cell``, takes requests from clients on any thread of theirs, and sees that requests, what
the writer reports and what the timer rings reach the cell one at a time, and the writer's reports in their order. What
is compared is that, with the hand-overs between threads that it needs, on one load (see ``clients.py``). What a real
coordinator has besides, sockets, bytes and the search for a group that is not there, is left out: it is the same for
all, and would make the differences look smaller than they are.

What each engine does with what does not come from a client:

- Locks: the writer's and the timer's own threads take the group's lock. They must not go through the pool: two of its
  threads could take two reports of the writer in one order and get the lock in the other.
- Actors, partitions' loops, pykka: messages in the same mailbox or queue as the requests.
- asyncio.Lock: a task each, as for a request; tasks start in order, and the lock is fair.

The table names the classes in words, so that a run imports only what it measures.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from callboard.actors.engine_ports import ReplyTo
from callboard.actors.records import GroupValue
from callboard.bench.concurrency.cell import Append, Cell, CellEnvironment, Request
from callboard.bench.concurrency.clients import Client, Crew, Stage, ThreadCrew
from callboard.bench.concurrency.services import LabClock, LoopTimer, ThreadTimer, Writer
from callboard.runtime.engine.clock import SystemRandom

WORKERS = 4
"""Threads of a pool, and loops of the engine with one a partition."""

CLIENT_THREADS = 2
"""Threads that the clients of an engine of threads live on; Kafka has three network threads before eight handlers."""

BARRIER_S = 30.0
"""How long to wait for an engine to have done what it was given."""


class EngineSpec(NamedTuple):
    """``max_groups`` None: any number. ``place``: module and class, imported by ``make_engine``."""

    label: str
    max_groups: int | None
    has_locks: bool
    has_loop: bool
    place: str


ENGINES: dict[str, EngineSpec] = {
    "actor-loop": EngineSpec("actor a group, on the loop", None, False, True, "actor_engines:ActorLoop"),
    "actor-threads": EngineSpec(
        f"actor a group, on {WORKERS} threads", None, False, False, "actor_engines:ActorThreads"
    ),
    # One thread of the operating system a group: 32,768 is where Linux ends, long waits begin far below.
    "pykka-threads": EngineSpec("pykka ThreadingActor a group", 2000, False, False, "pykka_engine:PykkaThreads"),
    "lock-group": EngineSpec("one RLock a group, pool of threads", None, True, False, "lock_engines:LockGroup"),
    "lock-global": EngineSpec("one global lock, pool of threads", None, True, False, "lock_engines:LockGlobal"),
    "lock-striped": EngineSpec("64 striped locks, pool of threads", None, True, False, "lock_engines:LockStriped"),
    "asyncio-lock": EngineSpec("asyncio.Lock a group, task a request", None, True, True, "loop_engines:AsyncioLock"),
    "loop-partition": EngineSpec(
        "one event loop a partition (how Kafka does it)", None, False, True, "loop_engines:LoopPartition"
    ),
}


class Seed(NamedTuple):
    """A group as it is before the measured time: loaded with members, or empty."""

    group_id: str
    value: GroupValue | None


class Engine:
    """Base of all. A subclass says how a request, the writer's report and the timer's ring reach a cell.

    ``seat`` gives a cell its lock, its mailbox or its loop. ``lock_wait_s`` and ``loop_pause_s`` are None for an engine
    that has no such thing.
    """

    timer: ThreadTimer | LoopTimer

    def __init__(self, clock: LabClock | None = None) -> None:
        self.clock = clock or LabClock()
        self.cells: list[Cell] = []
        self.writer = Writer(self.written)
        self.prepare()
        self._environment = CellEnvironment(self.clock, SystemRandom(), self.writer, self.timer)

    def prepare(self) -> None:
        """Make the timer, and what serialises. Called before there are cells."""
        raise NotImplementedError

    def on_home(self, work: Callable[[], Any]) -> Any:
        """Do ``work`` on the thread where cells are made, and wait for what it returns."""
        return work()

    def build(self, seeds: Iterable[Seed]) -> None:
        """Make the groups. Time stands still meanwhile, and there are no clients yet."""
        self.on_home(lambda: self._build(seeds))

    def _build(self, seeds: Iterable[Seed]) -> None:
        for group_id, value in seeds:
            cell = Cell(group_id, self._environment)
            self.cells.append(cell)
            self.seat(cell)
            if value is not None:
                cell.load(value)

    def seat(self, cell: Cell) -> None:
        raise NotImplementedError

    def crews(self, stage: Stage, clients: Sequence[Client]) -> list[Crew]:
        """The clients, where they live for this engine."""
        return [ThreadCrew(stage, clients[first::CLIENT_THREADS], self.submit) for first in range(CLIENT_THREADS)]

    # What comes to a cell --------------------------------------------------------------------------------------------

    def submit(self, request: Request, reply_to: ReplyTo) -> None:
        """A client's request, on the client's thread. Does not wait."""
        raise NotImplementedError

    def written(self, appends: Sequence[Append]) -> None:
        """A round of the writer is done. Called on the writer's thread."""
        raise NotImplementedError

    def expired(self, cell: Cell, names: Sequence[Hashable]) -> None:
        """Deadlines of a cell are due. Called where the timer lives."""
        raise NotImplementedError

    # The end ---------------------------------------------------------------------------------------------------------

    def barrier(self) -> bool:
        """Wait until everything that was handed in before has been done; False if that takes too long."""
        raise NotImplementedError

    def quiesce(self) -> bool:
        """Wait until nothing moves any more, when no client asks: what is due has rung, what was decided is written.

        A ring may decide to write, and what is written may end a turn that waits; nothing follows from that.
        """
        at_rest = True
        for _ in range(2):
            at_rest &= bool(self.on_home(self.timer.settle)) and self.barrier()
            at_rest &= self.writer.settle() and self.barrier()
        return at_rest

    def close(self) -> None:
        """End the engine's threads."""
        self.writer.close()
        self.on_home(self.timer.close)
        self.end()

    def end(self) -> None:
        """End what ``prepare`` began."""
        raise NotImplementedError

    @property
    def lock_wait_s(self) -> float | None:
        """Time that threads or tasks have waited for the engine's locks, all together."""
        return None

    @property
    def loop_pause_s(self) -> float | None:
        """The longest time that something that was due on a loop had to wait for its turn."""
        return None

    def watch(self) -> None:
        """The measured time begins: what was waited for before does not count."""


def make_engine(name: str) -> Engine:
    """An engine by its id. Raises KeyError for an unknown one."""
    module, _, class_name = ENGINES[name].place.partition(":")
    engine: Engine = getattr(import_module(f"{__package__}.{module}"), class_name)()
    return engine
