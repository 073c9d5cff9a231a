"""The threads dispatcher: a few worker threads take the mailboxes that have messages. For programs without a loop.

An actor runs on one thread at a time, perhaps on another the next time. One worker is the default, and on CPython with
its lock the fastest: more of them hand that lock to each other (0.7 to 0.9 of the rate with four). They pay where
handlers wait for something outside, and on builds without the lock.
"""

from __future__ import annotations

import itertools
import threading
import time
from contextvars import Context
from queue import SimpleQueue
from typing import Any, Protocol

import pykka

from ...actors.base import set_current_dispatcher
from ...actors.engine_ports import Clock
from .alarm import Alarm, ThreadAlarm
from .dispatcher import MESSAGES_A_TURN, Dispatcher, tell_because
from .mailbox import Mailbox, SharedMailbox
from .stats import Tally

_numbers = itertools.count(1)


class Runnable(Protocol):
    """A mailbox, or something that waits in line like one."""

    def run(self, budget: int, tally: Tally) -> bool: ...


class ThreadsDispatcher(Dispatcher):
    """``workers`` daemon threads over one queue of ready mailboxes. ``close`` ends them; stop the actors first."""

    def __init__(self, workers: int = 1) -> None:
        if workers < 1:
            raise ValueError(f"workers is {workers}; expected at least 1 thread to run actors on")
        super().__init__()
        self._queue: SimpleQueue[Runnable | None] = SimpleQueue()
        self._mailbox_class = Mailbox if workers == 1 else SharedMailbox
        self._alarms: list[ThreadAlarm] = []
        self._is_closed = False
        number = next(_numbers)
        self._threads = [
            threading.Thread(
                target=self._work, args=(self.new_tally(),), name=f"callboard-{number}-{index}", daemon=True
            )
            for index in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def ready(self, mailbox: Mailbox) -> None:
        self._queue.put(mailbox)
        if self._is_closed:
            mailbox.abandon()

    def tell_after_turn(self, ref: pykka.ActorRef[Any], message: Any) -> None:
        self._queue.put(_Later(self.cause_now(), ref, message))

    def new_mailbox(self) -> Mailbox:
        return self._mailbox_class(self)

    def new_alarm(self, clock: Clock) -> Alarm:
        alarm = ThreadAlarm(clock)
        self._alarms.append(alarm)
        return alarm

    def is_own_thread(self) -> bool:
        return threading.current_thread() in self._threads

    def close(self, *, wait: bool = True) -> None:
        """End the threads when they have done what is queued. Called from outside of them.

        Actors that are left are dead afterwards: whoever asks them hears so at once. Without ``wait`` a thread that is
        stuck in a handler is left to itself; it ends with the process.
        """
        for alarm in self._alarms:
            alarm.close()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads if wait else ():
            thread.join()
        self._is_closed = True
        self.abandon_all()

    def _work(self, tally: Tally) -> None:
        set_current_dispatcher(self)
        take, put, clock = self._queue.get, self._queue.put, time.perf_counter_ns
        while (one := take()) is not None:
            began = clock()
            try:
                again = one.run(MESSAGES_A_TURN, tally)
            except BaseException as error:
                again = isinstance(one, Mailbox) and self.break_down(one, error)
            if again:
                put(one)
            tally.turn(clock() - began)


class _Later:
    """A message that waits behind all mailboxes that are ready now."""

    def __init__(self, cause: Context | None, ref: pykka.ActorRef[Any], message: Any) -> None:
        self._cause = cause
        self._ref = ref
        self._message = message

    def run(self, budget: int, tally: Tally) -> bool:
        tell_because(self._cause, self._ref, self._message)
        return False
