"""Protocols that the environment of any actor implements: clock, reply destination, alarm. Nothing here is Kafka's.

The implementations are in ``runtime/``. ports.py has the protocols of Kafka's actors: the log, random ids, settings.
"""

from __future__ import annotations

from typing import Any, Protocol


class Clock(Protocol):
    """Monotonic time for deadlines, wall-clock time for timestamps in records."""

    def monotonic_ms(self) -> int: ...

    def wall_ms(self) -> int: ...


class ReplyTo(Protocol):
    """Destination of a reply: a pykka future, or the slot that a connection reserves for a response."""

    def set(self, value: Any = None) -> None: ...

    def set_exception(self, exc_info: Any = None) -> None: ...


class Alarm(Protocol):
    """One scheduled wake-up of the TimerActor. Setting it again replaces the previous one."""

    def set(self, due_ms: int) -> None:
        """Send ``Wake`` to the actor at ``due_ms`` on the monotonic clock or soon after, never before."""

    def clear(self) -> None: ...
