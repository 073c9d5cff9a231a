"""Mailbox: a pykka inbox that is queued on a dispatcher while it has messages.

No lock is needed with one worker: ``put`` appends and then looks at ``scheduled``, ``run`` clears ``scheduled`` and
then looks at the queue, so one of the two sees the message. A mailbox that is queued twice costs an empty turn, never
two turns at once.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any

import pykka
from pykka import messages
from pykka._envelope import Envelope

if TYPE_CHECKING:
    from ..actors.base import Actor
    from .dispatcher import Dispatcher


log = logging.getLogger("callboard.runtime")


class Mailbox:
    """An actor's inbox; it holds the actor, since pykka's reference is a weak one."""

    __slots__ = ("actor", "closed", "dispatcher", "queue", "scheduled", "started")

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        self.queue: deque[Envelope[Any]] = deque()
        self.actor: Actor | None = None
        self.scheduled = True  # held back until the actor starts
        self.started = False
        self.closed = False

    def put(self, envelope: Envelope[Any], /) -> None:
        self.queue.append(envelope)
        if not self.scheduled:
            self.scheduled = True
            self.dispatcher.ready(self)
        elif self.closed:
            self._refuse_all()

    def get(self) -> Envelope[Any]:
        return self.queue.popleft()

    def empty(self) -> bool:
        return not self.queue

    def bind(self, actor: Actor) -> None:
        """Start to deliver to ``actor``; what came before waits until now."""
        self.actor = actor
        self.dispatcher.ready(self)

    def run(self, budget: int) -> bool:
        """Handle at most ``budget`` messages. True if it is to be queued again."""
        actor = self.actor
        if actor is None or not (self.started or self._start(actor)):
            return False
        queue, handle, stopped = self.queue, actor.handle, actor.actor_stopped
        while queue and budget:
            budget -= 1
            handle(queue.popleft())
            if stopped.is_set():
                self._close()
                return False
        self.scheduled = False
        if queue and not self.scheduled:
            self.scheduled = True
            return True
        return False

    def _start(self, actor: Actor) -> bool:
        self.started = True
        actor._actor_loop_setup()
        if actor.actor_stopped.is_set():
            self._close()
            return False
        return True

    def _close(self) -> None:
        self.scheduled = True  # for ever: nobody queues it again
        self.closed = True
        self.actor = None  # breaks the cycle of actor and inbox
        self._refuse_all()

    def _refuse_all(self) -> None:
        while True:
            try:
                envelope = self.queue.popleft()
            except IndexError:  # asked once, not looked at first: another thread may be here too
                return
            self.dispatcher.dead_letters += 1
            if envelope.reply_to is not None:
                try:
                    _refuse(envelope)
                except Exception:
                    log.exception("a refusal could not be delivered")


def _refuse(envelope: Envelope[Any]) -> None:
    assert envelope.reply_to is not None
    if isinstance(envelope.message, messages._ActorStop):
        envelope.reply_to.set(None)
        return
    error = pykka.ActorDeadError("the actor stopped before it handled the message")
    envelope.reply_to.set_exception((pykka.ActorDeadError, error, None))
