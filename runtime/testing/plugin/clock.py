"""A clock that a test can move, with the alarms and the dispatcher that follow it.

It runs like the machine's clock, plus the time it was moved. During a move it is paused between two alarms, so that
all events happen in order and at their exact millisecond, regardless of their actual duration. The wall clock moves
with it, and so do the ages of offsets and the timestamps of records.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from time import monotonic_ns

from ....actors.engine_ports import Clock
from ...engine.alarm import Alarm, LoopAlarm
from ...engine.clock import SystemClock
from ...engine.dispatcher import LoopDispatcher


class MovableClock(SystemClock):
    """An ``actors.engine_ports.Clock`` with its alarms. A move is not reported as a stall of the loop."""

    def __init__(self, machine_ns: Callable[[], int] = monotonic_ns) -> None:
        super().__init__(machine_ns)
        self.alarms: list[MovableAlarm] = []
        self._ahead_ms = 0
        self._wall_ahead_ms = 0
        self._held_times: tuple[int, int] | None = None  # monotonic and wall time while the clock is held
        self.started_ms = self.monotonic_ms()

    def monotonic_ms(self) -> int:
        running_ms = super().monotonic_ms() + self._ahead_ms
        held_times = self._held_times
        return running_ms if held_times is None else held_times[0]

    def wall_ms(self) -> int:
        held_times = self._held_times
        return super().wall_ms() + self._wall_ahead_ms if held_times is None else held_times[1]

    def since_start_ms(self) -> int:
        """The coordinator's time since the clock was made."""
        return self.monotonic_ms() - self.started_ms

    def hold(self) -> None:
        """Stop the clock until ``release``."""
        self._held_times = self.monotonic_ms(), self.wall_ms()

    def move_to(self, monotonic_ms: int) -> None:
        """Move forward to a time, while the clock is held."""
        assert self._held_times is not None, "hold the clock first"
        held_ms, wall_ms = self._held_times
        moved_ms = max(monotonic_ms - held_ms, 0)
        self._held_times = held_ms + moved_ms, wall_ms + moved_ms

    def release(self) -> None:
        """Let the clock run on from its current time."""
        assert self._held_times is not None, "hold the clock first"
        held_ms, wall_ms = self._held_times
        self._held_times = None
        self._ahead_ms += held_ms - self.monotonic_ms()
        self._wall_ahead_ms += wall_ms - self.wall_ms()

    def next_due_ms(self) -> int | None:
        """The time of the earliest alarm; None if none is set."""
        return min((alarm.due_ms for alarm in self.alarms if alarm.due_ms is not None), default=None)

    @property
    def is_waking(self) -> bool:
        """Whether an alarm has fired, and input is read before its deadlines pass."""
        return any(alarm.wakes_pending for alarm in self.alarms)

    def fire_due_alarms(self) -> None:
        now_ms = self.monotonic_ms()
        for alarm in [alarm for alarm in self.alarms if alarm.due_ms is not None and alarm.due_ms <= now_ms]:
            alarm.check_now()

    def clear_alarms(self) -> None:
        """Clear all alarms, after the node that set them has ended."""
        for alarm in self.alarms:
            alarm.clear()
        self.alarms.clear()


class MovableAlarm(LoopAlarm):
    """A LoopAlarm that can fire before the machine's time has reached its due time."""

    def __init__(self, loop: AbstractEventLoop, clock: MovableClock) -> None:
        super().__init__(loop, clock)
        self._alarms = clock.alarms
        self._alarms.append(self)

    @property
    def due_ms(self) -> int | None:
        return self._due_ms if self._handle is not None else None

    def check_now(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._check()


class DelayedCall(MovableAlarm):
    """Calls a function once, after a delay on the coordinator's clock."""

    def __init__(
        self, loop: AbstractEventLoop, clock: MovableClock, delay_ms: int, callback: Callable[[], None]
    ) -> None:
        super().__init__(loop, clock)
        self._callback = callback
        self.set(clock.monotonic_ms() + delay_ms)

    def fire(self) -> None:
        self._alarms.remove(self)
        self._callback()


class MovableDispatcher(LoopDispatcher):
    """Runs actors on a loop, with movable alarms; reports when it is idle."""

    def new_alarm(self, clock: Clock) -> Alarm:
        return MovableAlarm(self.loop, clock) if isinstance(clock, MovableClock) else super().new_alarm(clock)

    @property
    def is_idle(self) -> bool:
        return not (self._pumping or self._queue)
