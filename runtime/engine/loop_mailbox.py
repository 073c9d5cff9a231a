"""LoopMailbox: a mailbox on an event loop, whose actor can answer callbacks of the loop without a queue."""

from __future__ import annotations

from typing import Any, Protocol

from ...actors.engine_ports import NOT_HANDLED
from ...actors.turn import run_at_once
from .counters import TurnCounters
from .mailbox import Mailbox, MailboxHost


class LoopHost(MailboxHost, Protocol):
    """The part of a ``LoopDispatcher`` that its mailboxes use."""

    turn_counters: TurnCounters


class LoopMailbox(Mailbox):
    """Actors and the callbacks of sockets share one thread, so no actor is in a turn while such a callback runs."""

    __slots__ = ("_host",)

    def __init__(self, dispatcher: LoopHost) -> None:
        super().__init__(dispatcher)
        self._host = dispatcher

    def answer_at_once(self, message: Any) -> Any:
        """See ``actors.base.Inbox``. The mailbox counts as scheduled meanwhile, so new messages wait as usual."""
        actor = self.actor
        if actor is None or self.scheduled or self.queue or not self.started or self._host.tracer is not None:
            return NOT_HANDLED
        self.scheduled = True
        reply = run_at_once(actor, message)
        if reply is not NOT_HANDLED:
            self._host.turn_counters.handled[type(actor)] += 1
        if self.interrupt:
            self._handle_interrupt(actor)
        if self._release() if self.actor is not None else self._end_turn():
            self._host.ready(self)
        return reply
