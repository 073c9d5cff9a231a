"""The TimerActor's one wake-up, on the event loop."""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle

from ..actors.base import ActorRef
from ..actors.messages import Wake
from ..actors.ports import Clock


class LoopAlarm:
    """``actors.ports.Alarm`` on an asyncio loop. Its actor is set once, after both are made."""

    def __init__(self, loop: AbstractEventLoop, clock: Clock) -> None:
        self.actor: ActorRef
        self._loop = loop
        self._clock = clock
        self._handle: TimerHandle | None = None

    def set(self, due_ms: int) -> None:
        self.clear()
        in_s = max(due_ms - self._clock.monotonic_ms(), 0) / 1000
        self._handle = self._loop.call_later(in_s, self._ring)

    def clear(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _ring(self) -> None:
        self._handle = None
        self.actor.tell(Wake())
