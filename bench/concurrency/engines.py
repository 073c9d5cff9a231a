"""The engines: nine ways to ensure that only one thread at a time accesses a group.

An engine gives each group a ``Cell``, accepts requests from the clients' threads, and delivers requests, results of the
writer and expired timers to the cell one at a time, the writer's results in order. The comparison includes the
hand-overs between threads that each design needs (see ``clients.py``). Sockets, encoding and the lookup of groups are
left out: they are the same for all engines, and would hide the differences.

Events that do not come from clients are handled as follows:

- Locks: the threads of the writer and of the timer take the group's lock themselves. In the pool, two threads could
  take two results of the writer in order and acquire the lock in the opposite order.
- Actors, partition loops, pykka: messages in the same mailbox or queue as the requests.
- The plain loop: calls in the same queue as the requests.
- asyncio.Lock: a task each, as for a request; tasks start in order, and the lock is fair.

The table has the classes' import paths, so that a run imports only the engine that it measures.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from importlib import import_module
from inspect import isabstract
from typing import Any, NamedTuple

from callboard.actors.engine_ports import ReplyTo
from callboard.actors.records import GroupValue
from callboard.bench.concurrency.cell import Append, Cell, CellEnvironment, Request
from callboard.bench.concurrency.clients import Client, ClientRunner, RunState, ThreadClientRunner
from callboard.bench.concurrency.own_code import UnknownName, import_object
from callboard.bench.concurrency.services import LabClock, LoopTimer, ThreadTimer, Writer
from callboard.runtime.engine.clock import SystemRandom

WORKERS = 4
"""Threads of a pool, and loops of the partition-loop engine."""

CLIENT_THREADS = 2
"""Client threads of a threaded engine. Kafka has three network threads and eight handler threads."""

BARRIER_S = 30.0
"""How long to wait until an engine has handled all events."""


class EngineSpec(NamedTuple):
    """``max_groups`` None: any number. ``import_path``: module and class, imported by ``make_engine``."""

    label: str
    max_groups: int | None
    has_locks: bool
    has_loop: bool
    import_path: str


ENGINES: dict[str, EngineSpec] = {
    "actor-loop": EngineSpec("an actor per group, on the loop", None, False, True, "actor_engines:LoopActorEngine"),
    "actor-threads": EngineSpec(
        f"an actor per group, on {WORKERS} threads", None, False, False, "actor_engines:ThreadActorEngine"
    ),
    "plain-loop": EngineSpec("calls on one loop, without actors", None, False, True, "loop_engines:PlainLoopEngine"),
    # One operating-system thread per group: Linux allows 32,768, and becomes slow far below that.
    "pykka-threads": EngineSpec("a pykka ThreadingActor per group", 2000, False, False, "pykka_engine:PykkaEngine"),
    "lock-group": EngineSpec("an RLock per group, thread pool", None, True, False, "lock_engines:GroupLockEngine"),
    "lock-global": EngineSpec("one global lock, thread pool", None, True, False, "lock_engines:GlobalLockEngine"),
    "lock-striped": EngineSpec("64 striped locks, thread pool", None, True, False, "lock_engines:StripedLockEngine"),
    "asyncio-lock": EngineSpec(
        "asyncio.Lock per group, task per request", None, True, True, "loop_engines:AsyncioLockEngine"
    ),
    "loop-partition": EngineSpec(
        "an event loop per partition (Kafka's design)", None, False, True, "loop_engines:PartitionLoopEngine"
    ),
}


class Seed(NamedTuple):
    """A group's initial state: loaded with members, or empty."""

    group_id: str
    value: GroupValue | None


class Engine(ABC):
    """Base class. A subclass defines how requests, the writer's results and expired timers reach a cell.

    ``add_cell`` gives a cell its lock, mailbox or loop. ``lock_wait_s`` and ``loop_pause_s`` are None for engines
    without locks or loops.

    For an engine that is not in ``ENGINES``: ``label`` describes it in the report, and ``max_groups`` is how many
    groups it can have (None: any number).
    """

    label = ""
    max_groups: int | None = None

    timer: ThreadTimer | LoopTimer

    def __init__(self, clock: LabClock | None = None) -> None:
        self.clock = clock or LabClock()
        self.cells: list[Cell] = []
        self.writer = Writer(self.written)
        self.prepare()
        self._environment = CellEnvironment(self.clock, SystemRandom(), self.writer, self.timer)

    @abstractmethod
    def prepare(self) -> None:
        """Create the timer, and the threads or loops. Called before there are cells."""

    def run_on_engine_thread(self, work: Callable[[], Any]) -> Any:
        """Run ``work`` on the thread that creates cells, and return its result."""
        return work()

    def build(self, seeds: Iterable[Seed]) -> None:
        """Create the groups. The clock is paused meanwhile, and there are no clients yet."""
        self.run_on_engine_thread(lambda: self._build(seeds))

    def _build(self, seeds: Iterable[Seed]) -> None:
        for group_id, value in seeds:
            cell = Cell(group_id, self._environment)
            self.cells.append(cell)
            self.add_cell(cell)
            if value is not None:
                cell.load(value)

    @abstractmethod
    def add_cell(self, cell: Cell) -> None:
        """Create what serialises the requests to this cell."""

    def runners(self, run_state: RunState, clients: Sequence[Client]) -> list[ClientRunner]:
        """The clients' runners, on the threads that suit this engine."""
        return [
            ThreadClientRunner(run_state, clients[first::CLIENT_THREADS], self.submit)
            for first in range(CLIENT_THREADS)
        ]

    # Events for a cell -----------------------------------------------------------------------------------------------

    @abstractmethod
    def submit(self, request: Request, reply_to: ReplyTo) -> None:
        """Submit a client's request. Called on the client's thread; does not block."""

    @abstractmethod
    def written(self, appends: Sequence[Append]) -> None:
        """Deliver a written round. Called on the writer's thread."""

    @abstractmethod
    def expired(self, cell: Cell, names: Sequence[Hashable]) -> None:
        """Deliver a cell's expired timers. Called on the timer's thread."""

    # Shutdown --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def barrier(self) -> bool:
        """Wait until all events submitted before are handled; False after a timeout."""

    def quiesce(self) -> bool:
        """Wait until the engine is idle, when no client sends requests: due timers have expired, records are written.

        An expiry may append records, and written records may complete a turn; nothing follows from these.
        """
        at_rest = True
        for _ in range(2):
            at_rest &= bool(self.run_on_engine_thread(self.timer.settle)) and self.barrier()
            at_rest &= self.writer.settle() and self.barrier()
        return at_rest

    def close(self) -> None:
        """Stop the engine's threads."""
        self.writer.close()
        self.run_on_engine_thread(self.timer.close)
        self.end()

    @abstractmethod
    def end(self) -> None:
        """Stop what ``prepare`` started."""

    @property
    def lock_wait_s(self) -> float | None:
        """Total time that threads or tasks have waited for the engine's locks."""
        return None

    @property
    def loop_pause_s(self) -> float | None:
        """The longest delay of a due callback on a loop."""
        return None

    def reset_counters(self) -> None:  # noqa: B027 (most engines have no counters)
        """Reset ``lock_wait_s`` and ``loop_pause_s``; called when the measured time begins."""


def make_engine(name: str) -> Engine:
    """Create an engine by its id, or by MODULE:CLASS. Raises UnknownName."""
    if name not in ENGINES:
        return engine_class(name)()
    module, _, class_name = ENGINES[name].import_path.partition(":")
    engine: Engine = getattr(import_module(f"{__package__}.{module}"), class_name)()
    return engine


def find_engine(name: str) -> EngineSpec:
    """An engine by its id, or by MODULE:CLASS. Raises UnknownName."""
    if name in ENGINES:
        return ENGINES[name]
    found = engine_class(name)
    has_locks, has_loop = (
        getattr(found, name) is not getattr(Engine, name) for name in ("lock_wait_s", "loop_pause_s")
    )
    return EngineSpec(found.label or found.__name__, found.max_groups, has_locks, has_loop, name)


def engine_class(path: str) -> type[Engine]:
    """The class of an engine of the user's own, by MODULE:CLASS. Raises UnknownName."""
    found = import_object("engine", path, list(ENGINES))
    if not (isinstance(found, type) and issubclass(found, Engine)):
        raise UnknownName(f"bad engine {path!r}: found {found!r}, expected a subclass of {Engine.__module__}.Engine")
    if isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise UnknownName(f"bad engine {path!r}: expected a class that defines {missing}")
    return found
