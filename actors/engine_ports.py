"""What the outside supplies to any actor: time, a place for answers, one wake-up. Protocols; nothing here is Kafka's.

``runtime/`` has the real ones. What only Kafka's actors need (the log, random ids, settings) is in ports.py.
"""

from __future__ import annotations

from typing import Any, Protocol


class Clock(Protocol):
    """The only two times there are: ticks for deadlines, the wall for timestamps in records."""

    def monotonic_ms(self) -> int: ...

    def wall_ms(self) -> int: ...


class ReplyTo(Protocol):
    """Where an answer goes. A pykka future is one; so is the slot that a connection keeps for a response."""

    def set(self, value: Any = None) -> None: ...

    def set_exception(self, exc_info: Any = None) -> None: ...


class Alarm(Protocol):
    """One wake-up for the TimerActor. Setting it again replaces the one before."""

    def set(self, due_ms: int) -> None:
        """Send ``Wake`` to the actor at ``due_ms`` on the monotonic clock, or soon after; never before."""

    def clear(self) -> None: ...
