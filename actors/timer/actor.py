"""TimerActor: the one owner of the timing wheel. Others send it ``Schedule`` and ``Cancel``; it sends them ``Expired``.

One event-loop timer serves all deadlines of the process: the ``Alarm`` port holds a single wake-up, that of the
earliest. (One asyncio timer a member has turns of 600 ms at a million members.) All deadlines of an owner that are due
in a turn go out in one message.

A heartbeat should not come here. A group moves its own ``due``, and when ``Expired`` arrives it files the rest again.
A name in ``Expired`` may also have been cancelled or moved while the message was on its way; the owner, who knows what
it wants, must check.
"""

from __future__ import annotations

import pykka

from ..base import ResilientActor
from ..engine_ports import Alarm, Clock
from .messages import Cancel, Expired, Schedule, Wake
from .timers import Timers

# Deadlines a turn; what is left over is the next turn's, after everybody else's. Fewer than the messages that a mailbox
# may handle in a turn: when twenty thousand groups lose their members together, each tells the coordinator and the
# writer, and those two keep up with fifty at a time. With a thousand they fell behind, and all others with them.
TURN_LIMIT = 50


class TimerActor(ResilientActor):
    """Delivers deadlines: not before they are due, once, and to living owners only."""

    handlers = {Schedule: "on_schedule", Cancel: "on_cancel", Wake: "on_wake"}

    def __init__(self, clock: Clock, alarm: Alarm) -> None:
        super().__init__()
        self._clock = clock
        self._alarm = alarm
        self._timers = Timers(clock.monotonic_ms())
        self._wake_ms: int | None = None  # what the alarm is set to

    def on_schedule(self, message: Schedule) -> None:
        self._timers.schedule(message.owner, message.name, message.due_ms)
        if self._wake_ms is None or message.due_ms < self._wake_ms:
            self._set_alarm()

    def on_cancel(self, message: Cancel) -> None:
        """The alarm stays as it is: a wake-up for nothing is cheaper than a new alarm for each cancel."""
        self._timers.cancel(message.owner, message.name)

    def on_wake(self, _message: Wake) -> None:
        self._wake_ms = None
        for owner, names in self._timers.expired(self._clock.monotonic_ms(), TURN_LIMIT).items():
            try:
                owner.tell(Expired(tuple(names)))
            except pykka.ActorDeadError:
                self._timers.forget(owner)
        self._set_alarm()

    def on_stop(self) -> None:
        self._alarm.clear()

    def _set_alarm(self) -> None:
        """Set the alarm to the earliest deadline, unless it would ring before anyway."""
        due_ms = self._timers.next_due_ms()
        if due_ms is not None and (self._wake_ms is None or due_ms < self._wake_ms):
            self._wake_ms = due_ms
            self._alarm.set(due_ms)
