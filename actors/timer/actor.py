"""TimerActor: owns the timing wheel. Other actors send it ``Schedule`` and ``Cancel``; it sends them ``Expired``.

One event-loop timer serves all deadlines of the process: the ``Alarm`` is set to the earliest deadline. (With one
asyncio timer per member, a million members cause turns of 600 ms.) All deadlines of an owner that are due in a turn are
sent in one message.

A heartbeat needs no message to this actor: a group changes its own ``due_ms``, and when ``Expired`` arrives, it
schedules the remaining time. A deadline in ``Expired`` may have been cancelled or moved while the message was in
flight, so the owner must check.
"""

from __future__ import annotations

import pykka

from ..base import ResilientActor
from ..engine_ports import Alarm, Clock
from .messages import Cancel, Expired, Schedule, Wake
from .timers import Timers

TURN_LIMIT = 50
"""Deadlines per turn; the rest follows in the next turn, after other actors. Fewer than the messages that a mailbox may
handle per turn: when 20,000 groups expire together, each sends messages to the coordinator and the writer, which can
handle 50 groups per turn. With 1000 they fall behind and delay all requests."""


class TimerActor(ResilientActor):
    """Delivers each deadline once, never early, and only to live owners."""

    handlers = {Schedule: "on_schedule", Cancel: "on_cancel", Wake: "on_wake"}

    def __init__(self, clock: Clock, alarm: Alarm) -> None:
        super().__init__()
        self._clock = clock
        self._alarm = alarm
        self._timers = Timers(clock.monotonic_ms())
        self._wake_ms: int | None = None  # the time that the alarm is set to

    def on_schedule(self, message: Schedule) -> None:
        self._timers.schedule(message.owner, message.name, message.due_ms)
        if self._wake_ms is None or message.due_ms < self._wake_ms:
            self._set_alarm()

    def on_cancel(self, message: Cancel) -> None:
        """Does not change the alarm: an unneeded wake-up is cheaper than setting the alarm at each cancel."""
        self._timers.cancel(message.owner, message.name)

    def on_wake(self, message: Wake) -> None:
        self._wake_ms = None
        for owner, names in self._timers.pop_expired(message.until_ms, TURN_LIMIT).items():
            try:
                owner.tell(Expired(tuple(names)))
            except pykka.ActorDeadError:
                self._timers.remove_owner(owner)
        due_ms = self._timers.next_due_ms()
        if due_ms is not None and due_ms <= message.until_ms:
            self._wake_ms = message.until_ms
            self.tell_self_after_turn(message)
        else:
            self._set_alarm()

    def on_stop(self) -> None:
        self._alarm.clear()

    def _set_alarm(self) -> None:
        """Set the alarm to the earliest deadline, unless it fires before that anyway."""
        due_ms = self._timers.next_due_ms()
        if due_ms is not None and (self._wake_ms is None or due_ms < self._wake_ms):
            self._wake_ms = due_ms
            self._alarm.set(due_ms)
