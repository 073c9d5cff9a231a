"""The alarm of a TimerActor: one time at which the actor gets ``Wake``. On an event loop, or on a thread."""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pykka

from ...actors.base import ActorRef
from ...actors.engine_ports import Clock
from ...actors.timer.messages import Wake
from .clock import CLOCK_CHECK_INTERVAL_MS, SystemClock

WhenRead = Callable[[Callable[[], None]], object]
"""Calls back once all input that was there at the call has been read and is in the mailboxes of actors."""


def without_input(callback: Callable[[], None]) -> None:
    """The ``WhenRead`` of a system without input."""
    callback()


class Alarm:
    """``actors.engine_ports.Alarm``. ``actor`` is set once, after both are created and before the alarm is set.

    When the alarm fires, the input that is there is read first, see ``when_read``. So a deadline that input would move
    does not pass because the input was not read in time.
    """

    def __init__(self, clock: Clock) -> None:
        self.actor: ActorRef | None = None
        self.when_read: WhenRead = without_input
        self.wakes_pending = 0  # the alarm has fired, and input is being read
        self._clock = clock
        self._system_clock = clock if isinstance(clock, SystemClock) else None
        self._is_set = False

    def _mark_set(self, is_set: bool) -> None:
        """Register with the clock while the alarm is set, because it then reads the clock regularly."""
        if is_set is not self._is_set:
            self._is_set = is_set
            if self._system_clock is not None:
                (self._system_clock.add_watcher if is_set else self._system_clock.remove_watcher)()

    def set(self, due_ms: int) -> None:
        raise NotImplementedError

    def clear(self) -> None:
        raise NotImplementedError

    def fire(self) -> None:
        self.wakes_pending += 1
        self.when_read(partial(self._wake, self._clock.monotonic_ms()))

    def _wake(self, until_ms: int) -> None:
        self.wakes_pending -= 1
        assert self.actor is not None, "only its actor sets an alarm"
        with suppress(pykka.ActorDeadError):  # the actor has stopped
            self.actor.tell(Wake(until_ms))


class LoopAlarm(Alarm):
    """On an asyncio loop."""

    def __init__(self, loop: AbstractEventLoop, clock: Clock) -> None:
        super().__init__(clock)
        self._loop = loop
        self._due_ms = 0
        self._handle: TimerHandle | None = None

    def set(self, due_ms: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._mark_set(True)
        self._due_ms = due_ms
        self._wait(due_ms - self._clock.monotonic_ms())

    def clear(self) -> None:
        self._mark_set(False)
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _wait(self, left_ms: int) -> None:
        """Wait in short intervals, so that the clock can tell a stall from a long wait."""
        self._handle = self._loop.call_later(min(max(left_ms, 0), CLOCK_CHECK_INTERVAL_MS) / 1000, self._check)

    def _check(self) -> None:
        left_ms = self._due_ms - self._clock.monotonic_ms()
        if left_ms > 0:
            self._wait(left_ms)
        else:
            self._handle = None
            self._mark_set(False)
            self.fire()


class ThreadAlarm(Alarm):
    """For systems without an event loop: a thread that waits until the alarm is due. ``close`` ends it."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._changed = threading.Condition()
        self._due_ms: int | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="callboard-alarm", daemon=True)
        self._thread.start()

    def set(self, due_ms: int) -> None:
        with self._changed:
            self._due_ms = due_ms
            self._mark_set(True)
            self._changed.notify()

    def clear(self) -> None:
        with self._changed:
            self._due_ms = None
            self._mark_set(False)
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while self._wait():
            self.fire()

    def _wait(self) -> bool:
        """Wait until the alarm is due. False when it is closed."""
        with self._changed:
            while not self._is_closed:
                left_ms = None if self._due_ms is None else self._due_ms - self._clock.monotonic_ms()
                if left_ms is not None and left_ms <= 0:
                    self._due_ms = None
                    self._mark_set(False)
                    return True
                self._changed.wait(None if left_ms is None else min(left_ms, CLOCK_CHECK_INTERVAL_MS) / 1000)
        return False
