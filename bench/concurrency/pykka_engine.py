"""The engine that pykka offers by itself: a ThreadingActor, and so a thread of the operating system, for each group.

Requests are told with a place for their answer. Pykka's own ``ask`` would make a future with a lock and a condition for
each, and somebody would have to wait for it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import pykka

from callboard.actors.engine_ports import ReplyTo
from callboard.actors.timer.messages import Expired
from callboard.bench.concurrency.cell import Append, Cell, Request, deliver
from callboard.bench.concurrency.engines import BARRIER_S, Engine
from callboard.bench.concurrency.services import ThreadTimer


class Asked(NamedTuple):
    """A request and where its answer goes."""

    request: Request
    reply_to: ReplyTo


class CellThread(pykka.ThreadingActor):
    """A cell on a thread of its own."""

    use_daemon_thread = True

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.cell = cell

    def on_receive(self, message: Any) -> None:
        if type(message) is Asked:
            deliver(self.cell.handle(message.request, message.reply_to))
        elif type(message) is Append:
            deliver(self.cell.written(message))
        elif type(message) is Expired:
            deliver(self.cell.expired(message.names))


class PykkaThreads(Engine):
    """A thread a group."""

    def prepare(self) -> None:
        self.timer = ThreadTimer(self.clock, self.expired)
        self._refs: dict[str, pykka.ActorRef[CellThread]] = {}

    def seat(self, cell: Cell) -> None:
        self._refs[cell.group_id] = CellThread.start(cell)

    def submit(self, request: Request, reply_to: ReplyTo) -> None:
        self._refs[request.group_id].tell(Asked(request, reply_to))

    def written(self, appends: Sequence[Append]) -> None:
        for append in appends:
            self._refs[append.cell.group_id].tell(append)

    def expired(self, cell: Cell, names: Sequence[Hashable]) -> None:
        self._refs[cell.group_id].tell(Expired(tuple(names)))

    def barrier(self) -> bool:
        """A message of no known kind is answered with None, after all that came before it."""
        answers = [ref.ask(None, block=False) for ref in self._refs.values()]
        try:
            for answer in answers:
                answer.get(timeout=BARRIER_S)
        except pykka.Timeout:
            return False
        return True

    def end(self) -> None:
        for answer in [ref.stop(block=False) for ref in self._refs.values()]:
            answer.get(timeout=BARRIER_S)
