"""The simulation: actors on the caller's thread, in an order that a seed decides, on a clock that only tests move.

Nothing runs but in ``step``, ``run`` and ``advance``, one message a turn, so that every interleaving that a real
dispatcher could have can come. The same program with the same seed does the same, message by message and byte by byte:
what is drawn (the order, URNs) comes from the seed, and nothing reads a clock. Without a seed mailboxes have their turn
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
from .alarm import Alarm
from .dispatcher import Dispatcher, tell_because
from .mailbox import Mailbox
from .reply import Reply, WouldDeadlock

STEPS_MAX = 1_000_000  # a program that needs more in one go has actors that never come to rest
START_WALL_MS = 1_700_000_000_000


class VirtualClock:
    """``actors.engine_ports.Clock`` that stands still until somebody moves it; wall and monotonic time run together."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return START_WALL_MS + self.now_ms


class Simulation(Dispatcher):
    """A dispatcher without threads, loops or time of its own. A blocking ``get`` runs it until the answer is there."""

    def __init__(self, seed: int | None = None, messages_a_turn: int = 1) -> None:
        self.seed = seed
        self.clock = VirtualClock()
        super().__init__()
        self._order = None if seed is None else random.Random(seed)
        self._names = random.Random(seed or 0)  # apart, so that asking for a URN does not change the order
        self._messages_a_turn = messages_a_turn
        self._ready: deque[Mailbox] = deque()
        self._later: deque[tuple[Context | None, pykka.ActorRef[Any], Any]] = deque()
        self._alarms: list[tuple[int, int, SimulatedAlarm]] = []
        self._alarm_numbers = itertools.count()
        self._is_in_turn = False
        self._end: BaseException | None = None
        self._thread_id = threading.get_ident()
        self._tally = self.new_tally()

    def ready(self, mailbox: Mailbox) -> None:
        self._ready.append(mailbox)

    def tell_after_turn(self, ref: pykka.ActorRef[Any], message: Any) -> None:
        self._later.append((self.cause_now(), ref, message))

    def new_alarm(self, clock: Clock) -> Alarm:
        return SimulatedAlarm(self)

    def new_urn(self) -> str:
        return uuid.UUID(int=self._names.getrandbits(128), version=4).urn

    def monotonic_ms(self) -> int:
        return self.clock.now_ms

    def is_own_thread(self) -> bool:
        return threading.get_ident() == self._thread_id

    def end(self, error: BaseException) -> None:
        """A test should see who wanted the program to end: it is raised when the turn is over."""
        super().end(error)
        self._end = error

    def step(self) -> bool:
        """One turn of one mailbox. False when there is nothing to do, short of moving the clock."""
        if not self._ready and self._later:
            tell_because(*self._later.popleft())
        if not self._ready:
            return False
        mailbox = self._next()
        self._is_in_turn = True
        try:
            with running_on(self):
                if mailbox.run(self._messages_a_turn, self._tally):
                    self._ready.append(mailbox)
        except BaseException as error:
            self.break_down(mailbox, error)
            self._end = error
        finally:
            self._is_in_turn = False
        if self._end is not None:
            end, self._end = self._end, None
            raise end
        return True

    def _next(self) -> Mailbox:
        """The first that became ready, or one that the seed draws."""
        ready = self._ready
        if self._order is not None:
            drawn = self._order.randrange(len(ready))
            ready[drawn], ready[-1] = ready[-1], ready[drawn]
            return ready.pop()
        return ready.popleft()

    def run(self) -> None:
        """Until all mailboxes are empty. The clock stands still. Raises AssertionError if that never comes."""
        for _ in range(STEPS_MAX):
            if not self.step():
                return
        raise self._restless("did not come to rest")

    def _restless(self, what: str) -> AssertionError:
        return AssertionError(f"the actors {what} in {STEPS_MAX} steps (seed {self.seed})")

    def advance(self, ms: int) -> None:
        """Let so much time pass: run, ring each alarm at its time, run again."""
        until_ms = self.clock.now_ms + ms
        self.run()
        while self._ring_next(until_ms):
            self.run()
        self.clock.now_ms = until_ms

    def check_blocking_wait(self) -> None:
        if self._is_in_turn:
            raise WouldDeadlock("a blocking wait inside of a handler: use on_done(), or answer later")

    def wait_for(self, reply: Reply, timeout_s: float) -> None:
        """Run until the reply is settled, and let time pass if nothing else helps. Raises as the real ones do.

        Raises AssertionError where the answer does not come and the actors do not rest either.
        """
        self.check_blocking_wait()
        until_ms = self.clock.now_ms + max(timeout_s, 0) * 1000
        for _ in range(STEPS_MAX):
            if reply.done():
                return
            if self.step() or self._ring_next(until_ms):
                continue
            if not self._alarms:
                raise WouldDeadlock("nothing is left to run and no alarm is set: this answer will never come")
            self.clock.now_ms = int(until_ms)
            raise reply.give_up(timeout_s)
        if not reply.done():
            raise self._restless("did not answer, and did not come to rest,")

    def add_alarm(self, due_ms: int, alarm: SimulatedAlarm) -> None:
        heapq.heappush(self._alarms, (due_ms, next(self._alarm_numbers), alarm))

    def _ring_next(self, until_ms: float) -> bool:
        """Move the clock to the first alarm that is due by then, and ring it. False if there is none."""
        while self._alarms and self._alarms[0][0] <= until_ms:
            due_ms, _, alarm = heapq.heappop(self._alarms)
            if alarm.due_ms == due_ms:
                self.clock.now_ms = max(self.clock.now_ms, due_ms)
                alarm.due_ms = None
                alarm.ring()
                return True
        return False


class SimulatedAlarm(Alarm):
    """One wake-up on the simulation's clock."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation.clock)
        self.due_ms: int | None = None
        self._simulation = simulation

    def set(self, due_ms: int) -> None:
        self.due_ms = due_ms
        self._simulation.add_alarm(due_ms, self)

    def clear(self) -> None:
        self.due_ms = None
