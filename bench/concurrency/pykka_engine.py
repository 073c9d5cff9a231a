"""The engine with pykka's ThreadingActor: an operating-system thread for each group.

Requests are sent with ``tell`` and a ``reply_to``. Pykka's ``ask`` would create a future with a lock and a condition
for each request, and a thread would have to wait for it.
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


class PykkaRequest(NamedTuple):
    """A request and the receiver of its reply."""

    request: Request
    reply_to: ReplyTo


class CellThread(pykka.ThreadingActor):
    """A cell on its own thread."""

    use_daemon_thread = True

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.cell = cell

    def on_receive(self, message: Any) -> None:
        if type(message) is PykkaRequest:
            deliver(self.cell.handle(message.request, message.reply_to))
        elif type(message) is Append:
            deliver(self.cell.written(message))
        elif type(message) is Expired:
            deliver(self.cell.expired(message.names))


class PykkaEngine(Engine):
    """A thread per group."""

    def prepare(self) -> None:
        self.timer = ThreadTimer(self.clock, self.expired)
        self._refs: dict[str, pykka.ActorRef[CellThread]] = {}

    def add_cell(self, cell: Cell) -> None:
        self._refs[cell.group_id] = CellThread.start(cell)

    def submit(self, request: Request, reply_to: ReplyTo) -> None:
        self._refs[request.group_id].tell(PykkaRequest(request, reply_to))

    def written(self, appends: Sequence[Append]) -> None:
        for append in appends:
            self._refs[append.cell.group_id].tell(append)

    def expired(self, cell: Cell, names: Sequence[Hashable]) -> None:
        self._refs[cell.group_id].tell(Expired(tuple(names)))

    def barrier(self) -> bool:
        """A message of unknown type gets the reply None, after all earlier messages."""
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
