"""Dispatchers run actors. This one runs them on an event loop's own thread, between the callbacks of its sockets.

One thread for sockets and actors is the fastest form that CPython allows: a message costs no hand-over between threads
(8 us against 70 us a round trip), and more workers are slower. See docs/runtime.md.
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
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any

import pykka

from ...actors.base import Actor, Envelope, MailboxFull, set_current_dispatcher
from ...actors.engine_ports import Clock
from .alarm import Alarm, LoopAlarm
from .dead_letters import DeadLetters
from .mailbox import Mailbox, mailbox_of
from .registry import Registry
from .reply import ASK_TIMEOUT_S, Reply, WouldDeadlock, wait_blocking
from .stats import Tally
from .trace import Tracer

log = logging.getLogger("callboard.runtime")

MESSAGES_A_TURN = 64
"""How many messages a mailbox may handle before the next one has its turn: batches pay, and waits stay short."""

SLICE_NS = 2_000_000
"""How long actors run before the sockets are looked at again."""

WATCH_S = 24 * 3600
"""How often a watchman looks whether his dispatcher is still there. Seldom: he is there for the end of the loop."""


class Dispatcher:
    """What all dispatchers share: who lives, what is counted, and how one waits."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.dead_letters = DeadLetters(self.monotonic_ms)
        self.tracer: Tracer | None = None
        self.tallies: list[Tally] = []
        self.restarts = 0
        self.late_replies = 0  # answers that came when nobody waited any more
        self.ask_timeout_s = ASK_TIMEOUT_S
        self._serials = itertools.count(1)

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
        """The one wake-up of a TimerActor on this dispatcher."""
        raise NotImplementedError

    def ends_program(self, error: BaseException) -> bool:
        """See ``actors.base.Dispatcher``. A cancelled task is the trouble of whoever looked at its result."""
        return not isinstance(error, Exception | CancelledError)

    def end(self, error: BaseException) -> None:
        """See ``actors.base.Dispatcher``."""
        log.warning("all actors are told to stop, after %r in one of them", error)
        self.registry.stop_all(block=False)

    def close(self, *, wait: bool = True) -> None:
        """Give back what the dispatcher itself has: threads. The actors should have stopped."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def new_mailbox(self) -> Mailbox:
        return Mailbox(self)

    def new_reply(self) -> Reply:
        return Reply(self)

    def new_urn(self) -> str:
        return uuid.uuid4().urn

    def new_serial(self) -> int:
        return next(self._serials)

    def new_tally(self) -> Tally:
        """For one worker."""
        tally = Tally()
        self.tallies.append(tally)
        return tally

    def register(self, ref: Any) -> None:
        self.registry.register(ref)

    def unregister(self, ref: Any) -> None:
        self.registry.unregister(ref)

    def check_blocking_wait(self) -> None:
        """Raises WouldDeadlock where a blocking wait would keep the answer from coming."""
        if self.is_own_thread():
            raise WouldDeadlock("a blocking wait on the actors' own thread: await the reply, or use on_done()")

    def wait_for(self, reply: Reply, timeout_s: float) -> None:
        """Block until the reply is settled. Raises pykka.Timeout, and WouldDeadlock where that could never be."""
        self.check_blocking_wait()
        wait_blocking(reply, timeout_s)

    def break_down(self, mailbox: Mailbox, error: BaseException) -> bool:
        """Something got out of a turn, from ``on_start`` perhaps: that actor is lost, the others are not."""
        log.error("%s is lost: its turn broke down", mailbox.label, exc_info=error)
        mailbox.abandon()
        if self.ends_program(error):
            self.end(error)
        return False

    def abandon_all(self) -> None:
        """Nobody runs actors here any more: whoever asks them hears so at once."""
        for ref in self.registry.own():
            mailbox_of(ref).abandon()

    def cause_now(self) -> Context | None:
        """What a message that is sent later is caused by, if somebody wants to know."""
        return None if self.tracer is None else copy_context()

    def dead_letter(self, mailbox: Mailbox, envelope: Envelope[Any]) -> None:
        """Nobody will read this message."""
        self.dead_letters.add(mailbox.label, envelope.message)
        if self.tracer is not None:
            self.tracer.dead(envelope)

    def trace(self, tracer: Tracer | None) -> None:
        """From now on (or no longer) every message passes the tracer."""
        self.tracer = tracer
        for ref in self.registry.own():
            mailbox_of(ref).door = self.door_of(ref.actor_class)

    def door_of(self, actor_class: type[Actor]) -> int:
        """The number of unread messages from which on a mailbox takes a second look at the next."""
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
        self._tally = self.new_tally()
        # Turns run in a context of their own, where actors that are made belong here; entering it costs nothing.
        self._context = copy_context()
        self._context.run(set_current_dispatcher, self)
        with suppress(RuntimeError):  # it is closed already: ``ready`` will find out
            loop.call_soon_threadsafe(_Watchman(self), context=Context())

    def ready(self, mailbox: Mailbox) -> None:
        self._queue.append(mailbox)
        if not self._pumping:
            self._pumping = True
            try:
                if _get_running_loop() is self.loop:  # not the thread's number: a loop may move to another thread
                    self.loop.call_soon(self._pump, context=self._context)
                else:
                    self.loop.call_soon_threadsafe(self._pump, context=self._context)
            except RuntimeError:
                self._pumping = False
                if not self.loop.is_closed():
                    raise
                self.abandon_all()
        elif self.loop.is_closed():  # and has forgotten the pump that was on its list
            self.abandon_all()

    def abandon_all(self) -> None:
        self._pumping = False
        with suppress(IndexError):  # another thread may be here too
            while True:
                self._queue.popleft().abandon()
        super().abandon_all()

    def tell_after_turn(self, ref: pykka.ActorRef[Any], message: Any) -> None:
        self.loop.call_soon(tell_if_alive, ref, message)

    def new_alarm(self, clock: Clock) -> Alarm:
        return LoopAlarm(self.loop, clock)

    def end(self, error: BaseException) -> None:
        super().end(error)
        if isinstance(error, KeyboardInterrupt | SystemExit):  # a loop lets no other out of a callback
            self._end = error

    def is_own_thread(self) -> bool:
        """The thread on which the loop runs; while it does not run, the last one. Nobody needs a closed one's."""
        if _get_running_loop() is self.loop:
            return True
        is_last = threading.get_ident() == self._thread_id
        return is_last and not self.loop.is_running() and not self.loop.is_closed()

    def _pump(self) -> None:
        self._thread_id = threading.get_ident()
        try:
            self._run_for(SLICE_NS)
        finally:  # whatever got out of a turn, the others have theirs
            self._pumping = False
            if self._queue and not self._pumping:
                self._pumping = True
                self.loop.call_soon(self._pump, context=self._context)
        if self._end is not None:
            end, self._end = self._end, None
            raise end

    def _run_for(self, slice_ns: int) -> None:
        queue, tally, clock = self._queue, self._tally, time.perf_counter_ns
        now = clock()
        deadline = now + slice_ns
        while queue and now < deadline:
            mailbox, began = queue.popleft(), now
            try:
                again = mailbox.run(MESSAGES_A_TURN, tally)
            except BaseException as error:
                again = self.break_down(mailbox, error)
            if again:
                queue.append(mailbox)
            now = clock()
            tally.turn(now - began)


class _Watchman:
    """Sees that a loop is closed, at no cost for the messages: it sits on the loop's list of timers.

    A loop that is closed tells nobody, but it drops its list, and whoever is on it goes.
    """

    def __init__(self, dispatcher: LoopDispatcher) -> None:
        self._dispatcher = weakref.ref(dispatcher)

    def __call__(self) -> None:
        dispatcher = self._dispatcher()
        if dispatcher is not None:
            dispatcher.loop.call_later(WATCH_S, self, context=Context())

    def __del__(self) -> None:
        dispatcher = self._dispatcher()
        if dispatcher is not None and dispatcher.loop.is_closed():
            dispatcher.abandon_all()


def tell_because(cause: Context | None, ref: pykka.ActorRef[Any], message: Any) -> None:
    """``tell_if_alive``, with what a tracer shows as the message's cause."""
    if cause is None:
        tell_if_alive(ref, message)
    else:
        cause.run(tell_if_alive, ref, message)


def tell_if_alive(ref: pykka.ActorRef[Any], message: Any) -> None:
    """For messages that one's own past has sent. Nobody is there to hear of a refusal."""
    try:
        ref.tell(message)
    except pykka.ActorDeadError:
        pass  # it has stopped meanwhile
    except MailboxFull:
        inbox = ref.actor_inbox
        inbox.dispatcher.dead_letter(inbox, Envelope(message))  # type: ignore[attr-defined]
