"""The simulation dispatcher: actors on the caller's thread, in an order drawn from a seed, on a virtual clock.

Actors run only inside of ``step``, ``run`` and ``advance``, one message per turn, so every interleaving that a real
dispatcher could produce is possible. The same program with the same seed does the same, message by message and byte by
byte: the order and the URNs are drawn from the seed, and nothing reads the system clock. Without a seed mailboxes run
in the order in which they became ready.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import uuid
from collections import deque
from contextvars import Context
from typing import Any

import pykka

from ...actors.base import running_on
from ...actors.engine_ports import Clock
from ...actors.steps import SLICE_NS
from .alarm import Alarm
from .dispatcher import Dispatcher, current_cause, tell_with_cause
from .mailbox import Mailbox
from .reply import Reply, WouldDeadlock

STEPS_MAX = 1_000_000  # a run that takes more has actors that never become idle
START_WALL_MS = 1_700_000_000_000


class VirtualClock:
    """``actors.engine_ports.Clock`` that moves only when ``now_ms`` is set. Wall time moves with monotonic time."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return START_WALL_MS + self.now_ms


class _Order:
    """The choices of a simulation, drawn from its seed. Without a seed mailboxes run in the order of their messages."""

    def __init__(self, seed: int | None) -> None:
        self._seed = seed
        self._random = None if seed is None else random.Random(seed)
        self._urn_random = random.Random(seed or 0)  # separate, so that reading a URN does not change the order

    def take(self, ready: deque[Mailbox]) -> Mailbox:
        """Remove the mailbox that became ready first, or with a seed a random one."""
        if self._random is None:
            return ready.popleft()
        index = self._random.randrange(len(ready))
        ready[index], ready[-1] = ready[-1], ready[index]
        return ready.pop()

    def new_urn(self) -> str:
        return uuid.UUID(int=self._urn_random.getrandbits(128), version=4).urn

    def never_idle_error(self, problem: str) -> AssertionError:
        return AssertionError(f"the actors {problem} in {STEPS_MAX} steps (seed {self._seed})")


class _AlarmQueue:
    """The alarms of a simulation, in the order of their times."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self._alarms: list[tuple[int, int, SimulatedAlarm]] = []
        self._numbers = itertools.count()

    @property
    def is_empty(self) -> bool:
        return not self._alarms

    def add(self, due_ms: int, alarm: SimulatedAlarm) -> None:
        heapq.heappush(self._alarms, (due_ms, next(self._numbers), alarm))

    def fire_next(self, until_ms: float) -> bool:
        """Move the clock to the first alarm that is due by ``until_ms`` and fire it. False if there is none."""
        while self._alarms and self._alarms[0][0] <= until_ms:
            due_ms, _, alarm = heapq.heappop(self._alarms)
            if alarm.due_ms == due_ms:
                self.clock.now_ms = max(self.clock.now_ms, due_ms)
                alarm.due_ms = None
                alarm.fire()
                return True
        return False


class Simulation(Dispatcher):
    """A dispatcher without threads, event loop or real time. A blocking ``get`` runs it until the answer is there."""

    clock_ns = staticmethod(itertools.count(step=SLICE_NS // 2).__next__)  # two pieces of a long turn are a slice

    def __init__(self, seed: int | None = None, messages_a_turn: int = 1) -> None:
        self.clock = VirtualClock()
        super().__init__()
        self._order = _Order(seed)
        self._messages_a_turn = messages_a_turn
        self._ready: deque[Mailbox] = deque()
        self._after_turn: deque[tuple[Context | None, pykka.ActorRef[Any], Any]] = deque()
        self._alarms = _AlarmQueue(self.clock)
        self._is_in_turn = False
        self._end: BaseException | None = None
        self._thread_id = threading.get_ident()
        self.counters.new_worker()

    def ready(self, mailbox: Mailbox) -> None:
        self._ready.append(mailbox)

    def tell_after_turn(self, ref: pykka.ActorRef[Any], message: Any) -> None:
        self._after_turn.append((current_cause(self.tracer), ref, message))

    def new_alarm(self, clock: Clock) -> Alarm:
        return SimulatedAlarm(self._alarms)

    def new_urn(self) -> str:
        return self._order.new_urn()

    def monotonic_ms(self) -> int:
        return self.clock.now_ms

    def is_own_thread(self) -> bool:
        return threading.get_ident() == self._thread_id

    def end(self, error: BaseException) -> None:
        """Raise the error from ``step`` when the turn ends, so that a test sees it."""
        super().end(error)
        self._end = error

    def step(self) -> bool:
        """Run one turn of one mailbox. False if nothing can run before the clock moves."""
        if not self._ready and self._after_turn:
            tell_with_cause(*self._after_turn.popleft())
        if not self._ready:
            return False
        mailbox = self._order.take(self._ready)
        self._is_in_turn = True
        try:
            with running_on(self):
                if mailbox.run(self._messages_a_turn, self.counters.workers[0]):
                    self._ready.append(mailbox)
        except BaseException as error:
            self.handle_broken_turn(mailbox, error)
            self._end = error
        finally:
            self._is_in_turn = False
        if self._end is not None:
            end, self._end = self._end, None
            raise end
        return True

    def run(self) -> None:
        """Run until all mailboxes are empty. The clock does not move. Raises AssertionError if that never happens."""
        for _ in range(STEPS_MAX):
            if not self.step():
                return
        raise self._order.never_idle_error("did not become idle")

    def advance(self, ms: int) -> None:
        """Move the clock by ``ms``: run, fire each alarm at its time, and run again after each."""
        until_ms = self.clock.now_ms + ms
        self.run()
        while self._alarms.fire_next(until_ms):
            self.run()
        self.clock.now_ms = until_ms

    def check_blocking_wait(self, receiver: object | None = None) -> None:
        if self._is_in_turn:
            raise WouldDeadlock("a blocking wait inside a handler: use on_done(), or answer later")

    def wait_for(self, reply: Reply, timeout_s: float) -> None:
        """Run until the reply is settled; when nothing can run, move the clock. Raises like the other dispatchers.

        Raises AssertionError if there is no answer and the actors do not become idle either.
        """
        self.check_blocking_wait()
        until_ms = self.clock.now_ms + max(timeout_s, 0) * 1000
        for _ in range(STEPS_MAX):
            if reply.done():
                return
            if self.step() or self._alarms.fire_next(until_ms):
                continue
            if self._alarms.is_empty:
                raise WouldDeadlock("nothing can run and no alarm is set: this answer will never come")
            self.clock.now_ms = int(until_ms)
            raise reply.mark_timed_out(timeout_s)
        if not reply.done():
            raise self._order.never_idle_error("did not answer, and did not become idle,")


class SimulatedAlarm(Alarm):
    """An alarm on the simulation's clock."""

    def __init__(self, queue: _AlarmQueue) -> None:
        super().__init__(queue.clock)
        self.due_ms: int | None = None
        self._queue = queue

    def set(self, due_ms: int) -> None:
        self.due_ms = due_ms
        self._queue.add(due_ms, self)

    def clear(self) -> None:
        self.due_ms = None
