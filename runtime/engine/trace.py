"""Tracing: every message of a system with its cause, for who wants to see what led to what.

A message that an actor sends while it handles another is caused by that one; a message from outside has no cause and
begins a correlation, which all that it leads to inherit. Tracing is off until a hook is set; then every message takes
the slow way into its mailbox, and nothing else changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

from ...actors.base import Actor, Envelope


class Traced(NamedTuple):
    """A message and its story. ``moment`` is "sent", "handled" or "dead" (nobody will read it).

    ``cause`` is the ``number`` of the message in whose handling it was sent, and ``sender`` that message's receiver;
    None for a message from outside of the system. ``correlation`` is the number of the first in the chain.
    """

    moment: str
    number: int
    cause: int | None
    correlation: int
    sender: str | None
    receiver: str
    message: Any
    is_asked: bool


Hook = Callable[[Traced], object]


class TracedEnvelope(Envelope[Any]):
    """An envelope that remembers why it was sent."""

    __slots__ = ("cause", "correlation", "number", "receiver", "sender", "tracer")

    tracer: Tracer  # whose number it has
    number: int
    cause: int | None
    correlation: int
    sender: str | None
    receiver: str

    def story(self, moment: str) -> Traced:
        return Traced(
            *(moment, self.number, self.cause, self.correlation, self.sender, self.receiver),
            *(self.message, self.reply_to is not None),
        )


_in_hand: ContextVar[TracedEnvelope | None] = ContextVar("callboard_in_hand", default=None)


class Tracer:
    """Calls the hook, on the thread where it happens, at each moment of each message.

    A hook that raises is taken off: it must not do harm to the actors.
    """

    def __init__(self, hook: Hook, take_off: Callable[[Exception], None]) -> None:
        self._hook = hook
        self._take_off = take_off
        self._is_off = False
        self._numbers = itertools.count(1)

    def sent(self, receiver: str, plain: Envelope[Any]) -> Envelope[Any]:
        """``plain``, numbered and with its cause. ``receiver`` is the label of the mailbox."""
        cause = _in_hand.get()
        if cause is not None and cause.tracer is not self:  # of another system, or of the tracer before this one
            cause = None
        envelope = TracedEnvelope(plain.message, plain.reply_to)
        envelope.tracer = self
        envelope.number = next(self._numbers)
        envelope.cause = None if cause is None else cause.number
        envelope.correlation = envelope.number if cause is None else cause.correlation
        envelope.sender = None if cause is None else cause.receiver
        envelope.receiver = receiver
        self._call(envelope, "sent")
        return envelope

    def handler(self, actor: Actor) -> Callable[[Envelope[Any]], None]:
        """``actor.handle``, with what it sends marked as caused by what it handles."""

        def handle(envelope: Envelope[Any]) -> None:
            if not isinstance(envelope, TracedEnvelope):  # it was sent before the tracer came
                actor.handle(envelope)
                return
            self._call(envelope, "handled")
            token = _in_hand.set(envelope)
            try:
                actor.handle(envelope)
            finally:
                _in_hand.reset(token)

        return handle

    def dead(self, envelope: Envelope[Any]) -> None:
        if isinstance(envelope, TracedEnvelope):
            self._call(envelope, "dead")

    def _call(self, envelope: TracedEnvelope, moment: str) -> None:
        if self._is_off:
            return
        try:
            self._hook(envelope.story(moment))
        except Exception as error:
            self._is_off = True  # a turn that has begun keeps its tracer to the end
            self._take_off(error)


def as_line(traced: Traced) -> str:
    """One line of text, the same for the same story: "7<4 Coordinator-1 -> Group-3 asks JoinGroup(...)"."""
    cause = "" if traced.cause is None else f"<{traced.cause}"
    verb = "asks" if traced.is_asked else "tells"
    sender = traced.sender or "outside"
    return f"{traced.moment} {traced.number}{cause} {sender} -> {traced.receiver} {verb} {traced.message!r}"
