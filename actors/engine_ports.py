"""Protocols that the environment of any actor implements: clock, reply destination, alarm. Nothing here is Kafka's.

The implementations are in ``runtime/``. ports.py has the protocols of Kafka's actors: the log, random ids, settings.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

NOT_HANDLED: Final = object()
"""Instead of a reply: the message was not handled at once and has to be sent. See ``base.Inbox.answer_at_once``."""


class Clock(Protocol):
    """Monotonic time for deadlines, wall-clock time for timestamps in records."""

    def monotonic_ms(self) -> int: ...

    def wall_ms(self) -> int: ...


class ReplyTo(Protocol):
    """Destination of a reply: a pykka future, or the slot that a connection reserves for a response."""

    def set(self, value: Any = None) -> None: ...

    def set_exception(self, exc_info: Any = None) -> None: ...


class FutureReply(Awaitable[Any], ReplyTo, Protocol):
    """The future of an ``ask``. Implemented in ``runtime/engine/reply.py``.

    ``timeout_s``: how long ``get`` and ``await`` wait without a timeout of their own. ``receiver``: the mailbox of the
    actor that was asked; None if it is not known.
    """

    timeout_s: float
    receiver: object | None

    def done(self) -> bool: ...

    def get(self, *, timeout: float | None = None) -> Any:
        """Block until there is a result. Raises pykka.Timeout, or the error of the reply."""

    def on_done(self, callback: Callable[[Any], object]) -> None:
        """Call ``callback(self)`` when the reply is there, at once if it is."""

    def converted(self, convert: Callable[[BaseException | None], Any]) -> FutureReply:
        """A reply with the result of ``convert``, which gets the error of this one, or None."""


class Alarm(Protocol):
    """One scheduled wake-up of the TimerActor. Setting it again replaces the previous one."""

    def set(self, due_ms: int) -> None:
        """Send ``Wake`` to the actor at ``due_ms`` on the monotonic clock or soon after, never before.

        First all input is read that is there when the alarm fires.
        """

    def clear(self) -> None: ...
