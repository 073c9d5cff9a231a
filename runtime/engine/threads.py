"""The threads dispatcher: worker threads run the mailboxes that have messages. For programs without an event loop.

An actor runs on one thread at a time, but not always on the same. One worker is the default, and with CPython's GIL the
fastest: four workers reach 0.7 to 0.9 of its rate, because they contend for the GIL. More workers pay where handlers
block on something outside, and on builds without the GIL.
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
from .counters import TurnCounters
from .dispatcher import MESSAGES_A_TURN, Dispatcher, current_cause, tell_with_cause
from .mailbox import Mailbox, SharedMailbox
from .reply import Reply, block_until_done
from .waiting_workers import WaitingWorkers

_numbers = itertools.count(1)


class Runnable(Protocol):
    """A mailbox, or a delayed message in the same queue."""

    def run(self, budget: int, counters: TurnCounters) -> bool: ...


class ThreadsDispatcher(Dispatcher):
    """``workers`` daemon threads with one queue of ready mailboxes. Stop the actors before ``close``."""

    def __init__(self, workers: int = 1) -> None:
        if workers < 1:
            raise ValueError(f"workers is {workers}; expected at least 1 thread to run actors on")
        super().__init__()
        self._queue: SimpleQueue[Runnable | None] = SimpleQueue()
        self._mailbox_class = Mailbox if workers == 1 else SharedMailbox
        self._alarms: list[ThreadAlarm] = []
        self._is_closed = False
        self._waiting_workers = WaitingWorkers(workers)
        number = next(_numbers)
        self._threads = [
            threading.Thread(
                target=self._work, args=(self.counters.new_worker(),), name=f"callboard-{number}-{index}", daemon=True
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
        self._queue.put(_AfterTurnMessage(current_cause(self.tracer), ref, message))

    def new_mailbox(self) -> Mailbox:
        return self._mailbox_class(self)

    def new_alarm(self, clock: Clock) -> Alarm:
        alarm = ThreadAlarm(clock)
        self._alarms.append(alarm)
        return alarm

    def is_own_thread(self) -> bool:
        return threading.current_thread() in self._threads

    def check_blocking_wait(self, receiver: object | None = None) -> None:
        """In a handler, a blocking wait is allowed if another worker is left to run the actor that is asked."""
        if self.is_own_thread():
            self._waiting_workers.check(receiver)

    def wait_for(self, reply: Reply, timeout_s: float) -> None:
        if not self.is_own_thread():
            block_until_done(reply, timeout_s)
            return
        with self._waiting_workers.waiting_for(reply):
            block_until_done(reply, timeout_s)

    def close(self, *, wait: bool = True) -> None:
        """End the threads when the queue is empty. Must be called from another thread.

        Actors that have not stopped are dead afterwards: asks of them fail at once. Without ``wait`` a thread that is
        stuck in a handler runs on until the process ends.
        """
        for alarm in self._alarms:
            alarm.close()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads if wait else ():
            thread.join()
        self._is_closed = True
        self.abandon_all()

    def _work(self, counters: TurnCounters) -> None:
        set_current_dispatcher(self)
        get, put, clock = self._queue.get, self._queue.put, time.perf_counter_ns
        running, number = self._waiting_workers.running, threading.get_ident()
        while (runnable := get()) is not None:
            running[number] = runnable
            began_ns = clock()
            try:
                must_requeue = runnable.run(MESSAGES_A_TURN, counters)
            except BaseException as error:
                must_requeue = isinstance(runnable, Mailbox) and self.handle_broken_turn(runnable, error)
            if must_requeue:
                put(runnable)
            counters.count_turn(clock() - began_ns)


class _AfterTurnMessage:
    """A message that is sent after the turns of all mailboxes that are ready now."""

    def __init__(self, cause: Context | None, ref: pykka.ActorRef[Any], message: Any) -> None:
        self._cause = cause
        self._ref = ref
        self._message = message

    def run(self, budget: int, counters: TurnCounters) -> bool:
        tell_with_cause(self._cause, self._ref, self._message)
        return False
