"""Tracing: every message of a system with its cause.

A message that an actor sends while it handles another message is caused by that message. A message from outside has no
cause and starts a correlation, which all messages that follow from it inherit. Tracing is off until a hook is set. With
a hook every message takes the slow path into its mailbox; nothing else changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

from ...actors.base import Actor, Envelope
from ...actors.turn import RemainingWork, run_turn


class Traced(NamedTuple):
    """One event of a message. ``moment`` is "sent", "handled" or "dead" (no actor will handle it).

    ``cause`` is the ``number`` of the message whose handler sent this one, and ``sender`` is the receiver of that
    message; both are None for a message from outside of the system. ``correlation`` is the number of the first message
    in the chain of causes.
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
    """An envelope with its number, sender and cause."""

    __slots__ = ("cause", "correlation", "number", "receiver", "sender", "tracer")

    def __init__(self, plain: Envelope[Any], tracer: Tracer, number: int, cause: TracedEnvelope | None, receiver: str):
        """``tracer`` has assigned the number. ``receiver``: the label of the mailbox."""
        super().__init__(plain.message, plain.reply_to)
        self.tracer = tracer
        self.number = number
        self.cause = None if cause is None else cause.number
        self.correlation: int = number if cause is None else cause.correlation
        self.sender = None if cause is None else cause.receiver
        self.receiver: str = receiver

    def traced(self, moment: str) -> Traced:
        return Traced(
            *(moment, self.number, self.cause, self.correlation, self.sender, self.receiver),
            *(self.message, self.reply_to is not None),
        )


_current_envelope: ContextVar[TracedEnvelope | None] = ContextVar("callboard_current_envelope", default=None)


class Tracer:
    """Calls the hook for each event of each message, on the thread of the event.

    A hook that raises is disabled, so that it cannot harm the actors. ``on_error`` then gets the error.
    """

    def __init__(self, hook: Hook, on_error: Callable[[Exception], None]) -> None:
        self._hook = hook
        self._on_error = on_error
        self._is_disabled = False
        self._numbers = itertools.count(1)

    def sent(self, receiver: str, plain: Envelope[Any]) -> Envelope[Any]:
        """``plain``, numbered and with its cause. ``receiver`` is the label of the mailbox."""
        cause = _current_envelope.get()
        if cause is not None and cause.tracer is not self:  # of another system, or of a previous tracer
            cause = None
        envelope = TracedEnvelope(plain, self, next(self._numbers), cause, receiver)
        self._call(envelope, "sent")
        return envelope

    def run_turn(self, actor: Actor, envelope: Envelope[Any]) -> None:
        """``run_turn`` with the handled message as the cause of all messages that it sends."""
        if not isinstance(envelope, TracedEnvelope):  # it was sent before tracing began
            run_turn(actor, envelope)
            return
        if not isinstance(envelope.message, RemainingWork):
            self._call(envelope, "handled")
        token = _current_envelope.set(envelope)
        try:
            run_turn(actor, envelope)
        finally:
            _current_envelope.reset(token)

    def dead(self, envelope: Envelope[Any]) -> None:
        if isinstance(envelope, TracedEnvelope):
            self._call(envelope, "dead")

    def _call(self, envelope: TracedEnvelope, moment: str) -> None:
        if self._is_disabled:
            return
        try:
            self._hook(envelope.traced(moment))
        except Exception as error:
            self._is_disabled = True  # a turn that has begun still uses this tracer
            self._on_error(error)


def as_line(traced: Traced) -> str:
    """One line of text, equal for equal events: "sent 7<4 Coordinator-1 -> Group-3 asks JoinGroup(...)"."""
    cause = "" if traced.cause is None else f"<{traced.cause}"
    verb = "asks" if traced.is_asked else "tells"
    sender = traced.sender or "outside"
    return f"{traced.moment} {traced.number}{cause} {sender} -> {traced.receiver} {verb} {traced.message!r}"
