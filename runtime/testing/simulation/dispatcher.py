"""Runs the actors, the log's work and the alarms of a simulated coordinator on a virtual loop.

The seed decides every order that may vary on a real server: the mailbox whose message runs next, with network and disk
events in between; the time of each call and sync of the log; whether a checkpoint's job or a round is first.
"""

from __future__ import annotations

import random
import uuid
from asyncio import TimerHandle
from collections.abc import Callable
from contextvars import copy_context
from math import inf
from typing import Any

import pykka

from ....actors.base import set_current_dispatcher
from ....actors.engine_ports import Clock
from ...disk.disk import Disk
from ...disk.threads import Call, InlineThreads, LogWork, Then, always_long
from ...engine.alarm import Alarm
from ...engine.dispatcher import Dispatcher, current_cause, tell_with_cause
from ...engine.mailbox import Mailbox
from ..disk.faulty import PowerLoss
from .loop import VirtualLoop

DISK_MS = (0.0, 0.1, 1.0, 8.0)
"""Durations of a log operation: none, an SSD with power-loss protection, an SSD, a hard disk."""

SLOW_DISK_MS = 700.0  # a disk that hangs for a moment
SLOW_DISK_CHANCE = 0.002

STEP_NS = 2_000_000  # the longest time between two looks at the clock in a long turn


class SeededDispatcher(Dispatcher):
    """Runs one message per callback of the loop, from a mailbox that the seed chooses.

    ``on_power_loss`` is called when a disk without power was used, which ends the process.
    """

    def __init__(self, loop: VirtualLoop, order: random.Random, on_power_loss: Callable[[], None]) -> None:
        self.loop = loop
        super().__init__()
        self._order = order
        self._on_power_loss = on_power_loss
        self._ready: list[Mailbox] = []
        self._is_pumping = False
        self._worked_ns = 0
        self._tally = self.counters.new_worker()
        self._context = copy_context()
        self._context.run(set_current_dispatcher, self)

    def ready(self, mailbox: Mailbox) -> None:
        self._ready.append(mailbox)
        if not self._is_pumping:
            self._is_pumping = True
            self.loop.call_soon(self._pump, context=self._context)

    def _pump(self) -> None:
        """Run one message, then yield to other callbacks of the loop."""
        ready = self._ready
        index = int(self._order.random() * len(ready))
        ready[index], ready[-1] = ready[-1], ready[index]
        mailbox = ready.pop()
        try:
            has_more = mailbox.run(1, self._tally)
        except PowerLoss:
            self._on_power_loss()
            return
        except BaseException as error:
            has_more = self.handle_broken_turn(mailbox, error)
        if has_more:
            ready.append(mailbox)
        self._is_pumping = bool(ready)
        if ready:
            self.loop.call_soon(self._pump, context=self._context)

    def tell_after_turn(self, ref: pykka.ActorRef[Any], message: Any) -> None:
        self.loop.call_soon(tell_with_cause, current_cause(self.tracer), ref, message, context=self._context)

    def new_alarm(self, clock: Clock) -> Alarm:
        return VirtualAlarm(self.loop, clock)

    def new_urn(self) -> str:
        return uuid.UUID(int=self._order.getrandbits(128), version=4).urn

    def monotonic_ms(self) -> int:
        return self.loop.now_ms()

    def clock_ns(self) -> int:
        """A time that advances between any two pieces of work, so that long turns pause after a few of them."""
        self._worked_ns += int(STEP_NS * self._order.random())
        return self._worked_ns

    def is_own_thread(self) -> bool:
        return True


class VirtualAlarm(Alarm):
    """An alarm without clock checks: on a virtual loop nothing stalls by itself."""

    def __init__(self, loop: VirtualLoop, clock: Clock) -> None:
        super().__init__(clock)
        self._loop = loop
        self._handle: TimerHandle | None = None

    def set(self, due_ms: int) -> None:
        self.clear()
        self._handle = self._loop.call_at(due_ms / 1000, self.fire)

    def clear(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class SimulatedThreads(InlineThreads):
    """Runs the log's calls and jobs as callbacks of the loop, after a delay and in an order that the seed chooses."""

    def __init__(self, loop: VirtualLoop, draw: random.Random, on_power_loss: Callable[[], None]) -> None:
        super().__init__(draw.randrange)
        self._loop = loop
        self._draw = draw
        self._on_power_loss = on_power_loss
        self._pace_ms = draw.choice(DISK_MS)
        self._due: TimerHandle | None = None
        self._log_work: LogWork | None = None

    def start(self, work: LogWork, clock: Callable[[], float]) -> None:
        super().start(work, clock)
        self._log_work = work

    def put(self, call: Call, is_short: Callable[[], bool] = always_long) -> None:
        super().put(call, is_short)
        self._step_later()

    def sync(self, disk: Disk, fd: int, then: Then) -> None:
        super().sync(disk, fd, then)
        self._step_later()

    def submit(self, job: Call) -> None:
        super().submit(job)
        self._step_later()

    def _step_later(self) -> None:
        delay_ms = self._pace_ms * self._draw.random()
        if self._draw.random() < SLOW_DISK_CHANCE:
            delay_ms += SLOW_DISK_MS
        self._loop.call_later(delay_ms / 1000, self._step_now)

    def _step_now(self) -> None:
        try:
            self.step()
        except PowerLoss:
            self._on_power_loss()
        else:
            self._watch()

    def _watch(self) -> None:
        """Schedule the time at which the log's work is due without a call."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        work = self._log_work
        if work is not None and not work.is_closed and work.due < inf:
            self._due = self._loop.call_at(max(work.due, self._loop.time()), self._step_now)
