"""A clock that a test can move, and what of a coordinator goes by it.

It runs as the machine's does, ahead of it by what it was moved. While it is moved it stands still between two alarms,
so that everything happens in its order and at its very millisecond, however long the machine takes for it. The wall
clock moves with it: ages of offsets and timestamps of records follow.
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
    """An ``actors.engine_ports.Clock`` with the alarms that go by it. A move is no stall: it looks at the machine."""

    def __init__(self, machine_ns: Callable[[], int] = monotonic_ns) -> None:
        super().__init__(machine_ns)
        self.alarms: list[MovableAlarm] = []
        self._ahead_ms = 0
        self._wall_ahead_ms = 0
        self._held_times: tuple[int, int] | None = None  # monotonic and wall time, while it is moved
        self.started_ms = self.monotonic_ms()

    def monotonic_ms(self) -> int:
        running_ms = super().monotonic_ms() + self._ahead_ms
        held = self._held_times
        return running_ms if held is None else held[0]

    def wall_ms(self) -> int:
        held = self._held_times
        return super().wall_ms() + self._wall_ahead_ms if held is None else held[1]

    def since_start_ms(self) -> int:
        """How much time has passed for the coordinator since the clock was made."""
        return self.monotonic_ms() - self.started_ms

    def hold(self) -> None:
        """Stand still until ``release``."""
        self._held_times = self.monotonic_ms(), self.wall_ms()

    def move_to(self, monotonic_ms: int) -> None:
        """Only while it is held, and never back."""
        assert self._held_times is not None, "hold the clock first"
        held_ms, wall_ms = self._held_times
        moved_ms = max(monotonic_ms - held_ms, 0)
        self._held_times = held_ms + moved_ms, wall_ms + moved_ms

    def release(self) -> None:
        """Run on from where it stands."""
        assert self._held_times is not None, "hold the clock first"
        held_ms, wall_ms = self._held_times
        self._held_times = None
        self._ahead_ms += held_ms - self.monotonic_ms()
        self._wall_ahead_ms += wall_ms - self.wall_ms()

    def next_due_ms(self) -> int | None:
        """When the earliest alarm rings; None if none is set."""
        return min((alarm.due_ms for alarm in self.alarms if alarm.due_ms is not None), default=None)

    def fire_due_alarms(self) -> None:
        now_ms = self.monotonic_ms()
        for alarm in [alarm for alarm in self.alarms if alarm.due_ms is not None and alarm.due_ms <= now_ms]:
            alarm.check_now()

    def clear_alarms(self) -> None:
        """Whoever set them is gone."""
        for alarm in self.alarms:
            alarm.clear()
        self.alarms.clear()


class MovableAlarm(LoopAlarm):
    """A LoopAlarm that need not wait for the machine's time."""

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
            self._look()


class DelayedCall(MovableAlarm):
    """One call, when the coordinator's clock says so."""

    def __init__(
        self, loop: AbstractEventLoop, clock: MovableClock, delay_ms: int, callback: Callable[[], None]
    ) -> None:
        super().__init__(loop, clock)
        self._callback = callback
        self.set(clock.monotonic_ms() + delay_ms)

    def ring(self) -> None:
        self._alarms.remove(self)
        self._callback()


class MovableDispatcher(LoopDispatcher):
    """Runs actors on a loop, with alarms that can be moved; says when there is nothing to run."""

    def new_alarm(self, clock: Clock) -> Alarm:
        return MovableAlarm(self.loop, clock) if isinstance(clock, MovableClock) else super().new_alarm(clock)

    @property
    def is_idle(self) -> bool:
        return not (self._pumping or self._queue)
