"""Dispatchers run actors. ``LoopDispatcher`` runs them on an event loop's thread, between the callbacks of its sockets.

One thread for sockets and actors is the fastest design that CPython allows: a message needs no hand-over between
threads (8 us instead of 70 us per round trip), and more workers are slower. See docs/runtime.md.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
import weakref
from asyncio import AbstractEventLoop, CancelledError, _get_running_loop
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any

import pykka

from ...actors.base import Actor, Envelope, MailboxFull, set_current_dispatcher
from ...actors.engine_ports import Clock
from ...actors.steps import SLICE_NS
from .alarm import Alarm, LoopAlarm
from .counters import EngineCounters
from .dead_letters import DeadLetters
from .loop_mailbox import LoopMailbox
from .mailbox import Mailbox, mailbox_of
from .registry import Registry
from .reply import ASK_TIMEOUT_S, Reply, WouldDeadlock, block_until_done
from .trace import Tracer

log = logging.getLogger("callboard.runtime")

MESSAGES_A_TURN = 64
"""How many messages a mailbox handles before the next mailbox runs: large enough to pay, small enough to be fair."""

CLOSE_DETECTOR_INTERVAL_S = 24 * 3600
"""How often ``_LoopCloseDetector`` reschedules itself. Any long time will do: only the end of the loop matters."""


class Dispatcher:
    """What all dispatchers share: the registry, counters, and blocking waits."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.dead_letters = DeadLetters(self.monotonic_ms)
        self.tracer: Tracer | None = None
        self.counters = EngineCounters()
        self.ask_timeout_s = ASK_TIMEOUT_S
        self.serials: Iterator[int] = itertools.count(1)

    def ready(self, mailbox: Mailbox) -> None:
        """Queue a mailbox that has turned from empty to non-empty. May be called from any thread."""
        raise NotImplementedError

    def is_own_thread(self) -> bool:
        """Whether the caller runs on a thread that the actors need."""
        raise NotImplementedError

    def tell_after_turn(self, ref: pykka.ActorRef[Any], message: Any) -> None:
        """See ``actors.base.Dispatcher``."""
        raise NotImplementedError

    def new_alarm(self, clock: Clock) -> Alarm:
        """The alarm of a TimerActor on this dispatcher."""
        raise NotImplementedError

    def ends_program(self, error: BaseException) -> bool:
        """See ``actors.base.Dispatcher``. CancelledError is an error of the actor that read the task's result."""
        return not isinstance(error, Exception | CancelledError)

    def end(self, error: BaseException) -> None:
        """See ``actors.base.Dispatcher``."""
        log.warning("stopping all actors: one of them raised %r", error)
        self.registry.stop_all(block=False)

    def close(self, *, wait: bool = True) -> None:
        """Release the dispatcher's threads. The actors should have stopped."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def clock_ns(self) -> int:
        """See ``actors.base.Dispatcher``."""
        return time.perf_counter_ns()

    def new_mailbox(self) -> Mailbox:
        return Mailbox(self)

    def new_reply(self) -> Reply:
        return Reply(self)

    def new_urn(self) -> str:
        return uuid.uuid4().urn

    def register(self, ref: Any) -> None:
        self.registry.register(ref)

    def unregister(self, ref: Any) -> None:
        self.registry.unregister(ref)

    def check_blocking_wait(self, receiver: object | None = None) -> None:
        """Raises WouldDeadlock where a blocking wait for an answer of ``receiver`` (a mailbox) would prevent it."""
        if self.is_own_thread():
            raise WouldDeadlock("a blocking wait on the actors' own thread: await the reply, or use on_done()")

    def wait_for(self, reply: Reply, timeout_s: float) -> None:
        """Block until the reply is settled. Raises pykka.Timeout, or WouldDeadlock if it could never be settled."""
        self.check_blocking_wait(reply.receiver)
        block_until_done(reply, timeout_s)

    def handle_broken_turn(self, mailbox: Mailbox, error: BaseException) -> bool:
        """An exception escaped from a turn, for example from ``on_start``: drop that actor and keep the others."""
        log.error("%s is dropped: an exception escaped from its turn", mailbox.label, exc_info=error)
        mailbox.abandon()
        if self.ends_program(error):
            self.end(error)
        return False

    def abandon_all(self) -> None:
        """Drop all actors: nothing runs them any more, so pending and later asks fail at once."""
        for ref in self.registry.engine_refs():
            mailbox_of(ref).abandon()

    def dead_letter(self, mailbox: Mailbox, envelope: Envelope[Any]) -> None:
        """Record a message that no actor will handle."""
        self.dead_letters.add(mailbox.label, envelope.message)
        if self.tracer is not None:
            self.tracer.dead(envelope)

    def trace(self, tracer: Tracer | None) -> None:
        """Pass every message through the tracer from now on; None disables tracing."""
        self.tracer = tracer
        for ref in self.registry.engine_refs():
            mailbox_of(ref).admission_threshold = self.admission_threshold_of(ref.actor_class)

    def admission_threshold_of(self, actor_class: type[Actor]) -> int:
        """With at least so many unread messages a mailbox calls ``_admit`` for the next one."""
        return actor_class.high_water if self.tracer is None else 0


class LoopDispatcher(Dispatcher):
    """Runs ready mailboxes on an asyncio (or uvloop) loop. ``ready`` may be called from any thread."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        super().__init__()
        self.loop = loop
        self._thread_id: int | None = None
        self._queue: deque[Mailbox] = deque()
        self._pumping = False
        self._end: BaseException | None = None
        self.turn_counters = self.counters.new_worker()
        # Turns run in this context, so that actors made in a turn belong to this dispatcher. Entering it costs nothing.
        self._context = copy_context()
        self._context.run(set_current_dispatcher, self)
        with suppress(RuntimeError):  # the loop is closed already: ``ready`` will notice
            loop.call_soon_threadsafe(_LoopCloseDetector(self), context=Context())

    def ready(self, mailbox: Mailbox) -> None:
        self._queue.append(mailbox)
        if not self._pumping:
            self._pumping = True
            try:
                if _get_running_loop() is self.loop:  # not the thread id: a loop may move to another thread
                    self.loop.call_soon(self._pump, context=self._context)
                else:
                    self.loop.call_soon_threadsafe(self._pump, context=self._context)
            except RuntimeError:
                self._pumping = False
                if not self.loop.is_closed():
                    raise
                self.abandon_all()
        elif self.loop.is_closed():  # and has dropped the callback that was scheduled
            self.abandon_all()

    def new_mailbox(self) -> Mailbox:
        return LoopMailbox(self)

    def abandon_all(self) -> None:
        self._pumping = False
        with suppress(IndexError):  # another thread may run this too
            while True:
                self._queue.popleft().abandon()
        super().abandon_all()

    def tell_after_turn(self, ref: pykka.ActorRef[Any], message: Any) -> None:
        self.loop.call_soon(tell_if_alive, ref, message)

    def new_alarm(self, clock: Clock) -> Alarm:
        return LoopAlarm(self.loop, clock)

    def end(self, error: BaseException) -> None:
        super().end(error)
        if isinstance(error, KeyboardInterrupt | SystemExit):  # the only exceptions that a loop lets out of a callback
            self._end = error

    def is_own_thread(self) -> bool:
        """Whether this thread runs the loop; while the loop does not run, whether it was the last to run it."""
        if _get_running_loop() is self.loop:
            return True
        is_last_thread = threading.get_ident() == self._thread_id
        return is_last_thread and not self.loop.is_running() and not self.loop.is_closed()

    def _pump(self) -> None:
        self._thread_id = threading.get_ident()
        try:
            self._run_for(SLICE_NS)
        finally:  # even if an exception escaped, the other mailboxes must run
            self._pumping = False
            if self._queue and not self._pumping:
                self._pumping = True
                self.loop.call_soon(self._pump, context=self._context)
        if self._end is not None:
            end, self._end = self._end, None
            raise end

    def _run_for(self, slice_ns: int) -> None:
        queue, counters, clock = self._queue, self.turn_counters, time.perf_counter_ns
        now_ns = clock()
        deadline_ns = now_ns + slice_ns
        while queue and now_ns < deadline_ns:
            mailbox, began_ns = queue.popleft(), now_ns
            try:
                must_requeue = mailbox.run(MESSAGES_A_TURN, counters)
            except BaseException as error:
                must_requeue = self.handle_broken_turn(mailbox, error)
            if must_requeue:
                queue.append(mailbox)
            now_ns = clock()
            counters.count_turn(now_ns - began_ns)


class _LoopCloseDetector:
    """Detects that a loop was closed, without any cost per message: it is always one of the loop's timers.

    A loop has no hook for its end, but closing it drops its timers, so the detector is garbage-collected.
    """

    def __init__(self, dispatcher: LoopDispatcher) -> None:
        self._dispatcher = weakref.ref(dispatcher)

    def __call__(self) -> None:
        dispatcher = self._dispatcher()
        if dispatcher is not None:
            dispatcher.loop.call_later(CLOSE_DETECTOR_INTERVAL_S, self, context=Context())

    def __del__(self) -> None:
        dispatcher = self._dispatcher()
        if dispatcher is not None and dispatcher.loop.is_closed():
            dispatcher.abandon_all()


def current_cause(tracer: Tracer | None) -> Context | None:
    """The context that a delayed message is sent in, for the tracer; None without one."""
    return None if tracer is None else copy_context()


def tell_with_cause(cause: Context | None, ref: pykka.ActorRef[Any], message: Any) -> None:
    """Like ``tell_if_alive``, in the context of ``cause``, so that a tracer shows the cause of the message."""
    if cause is None:
        tell_if_alive(ref, message)
    else:
        cause.run(tell_if_alive, ref, message)


def tell_if_alive(ref: pykka.ActorRef[Any], message: Any) -> None:
    """Tell, for a message whose sender cannot handle an error: a refused message becomes a dead letter."""
    try:
        ref.tell(message)
    except pykka.ActorDeadError:
        pass  # the actor has stopped
    except MailboxFull:
        inbox = ref.actor_inbox
        inbox.dispatcher.dead_letter(inbox, Envelope(message))  # type: ignore[attr-defined]
