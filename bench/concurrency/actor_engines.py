"""Engines with actors: each group's cell belongs to an actor, and its mailbox serialises access, without locks.

On the loop, actors, clients and timer share one thread. On threads, a few workers run the actors that have messages,
and the clients have their own threads.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import pykka

from callboard.actors.base import DEFERRED, Actor, ActorRef
from callboard.actors.engine_ports import ReplyTo
from callboard.actors.messages import Heartbeat, JoinGroup, LeaveGroup, OffsetCommit, OffsetFetch, SyncGroup
from callboard.actors.timer.messages import Expired
from callboard.bench.concurrency.cell import Append, Cell, Request, deliver
from callboard.bench.concurrency.engines import BARRIER_S, WORKERS, Engine
from callboard.bench.concurrency.loop_engines import LoopEngine
from callboard.bench.concurrency.services import ThreadTimer
from callboard.runtime.engine.dispatcher import LoopDispatcher
from callboard.runtime.engine.system import System
from callboard.runtime.engine.threads import ThreadsDispatcher


class BarrierReached(NamedTuple):
    """Replied to when all messages sent before are handled."""


class CellActor(Actor):
    """A cell behind a mailbox."""

    handlers = {
        Heartbeat: "request",
        OffsetCommit: "request",
        OffsetFetch: "request",
        JoinGroup: "request",
        SyncGroup: "request",
        LeaveGroup: "request",
        Append: "written",
        Expired: "expired",
        BarrierReached: "reached",
    }

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.cell = cell

    def request(self, request: Request) -> object:
        assert self.reply_to is not None, "requests are posted with a reply_to"
        deliver(self.cell.handle(request, self.reply_to))
        return DEFERRED

    def written(self, append: Append) -> None:
        deliver(self.cell.written(append))

    def expired(self, message: Expired) -> None:
        deliver(self.cell.expired(message.names))

    def reached(self, _message: BarrierReached) -> None:
        """The reply is the signal."""


class ActorEngine(Engine):
    """Common base: an actor reference for each group."""

    system: System

    def add_cell(self, cell: Cell) -> None:
        self._refs[cell.group_id] = self.system.spawn(CellActor, cell)

    def submit(self, request: Request, reply_to: ReplyTo) -> None:
        self._refs[request.group_id].post(request, reply_to)

    def expired(self, cell: Cell, names: Sequence[Hashable]) -> None:
        self._refs[cell.group_id].tell(Expired(tuple(names)))

    def _report(self, appends: Sequence[Append]) -> None:
        refs = self._refs
        for append in appends:
            refs[append.cell.group_id].tell(append)

    def _begin(self, system: System) -> None:
        self.system = system
        self._refs: dict[str, ActorRef] = {}


class LoopActorEngine(ActorEngine, LoopEngine):
    """All actors on one loop's thread."""

    def prepare(self) -> None:
        LoopEngine.prepare(self)
        self._begin(System(LoopDispatcher(self.loop)))

    def on_round_written(self, appends: Sequence[Append]) -> None:
        self._report(appends)

    def barrier(self) -> bool:
        return self.wait_for(self._all_reached())

    async def _all_reached(self) -> None:
        for answer in [ref.ask(BarrierReached(), block=False) for ref in self._refs.values()]:
            await answer


class ThreadActorEngine(ActorEngine):
    """Actors on worker threads."""

    workers = WORKERS

    def prepare(self) -> None:
        self.timer = ThreadTimer(self.clock, self.expired)
        self._dispatcher = ThreadsDispatcher(self.workers)
        self._begin(System(self._dispatcher))

    def written(self, appends: Sequence[Append]) -> None:
        self._report(appends)

    def barrier(self) -> bool:
        answers = [ref.ask(BarrierReached(), block=False) for ref in self._refs.values()]
        try:
            for answer in answers:
                answer.get(timeout=BARRIER_S)
        except pykka.Timeout:
            return False
        return True

    def end(self) -> None:
        self._dispatcher.close()
