"""Mailbox: a pykka inbox that is queued on a dispatcher while it has messages.

With one worker no lock is needed: ``put`` appends and then reads ``scheduled``; ``run`` clears ``scheduled`` and then
checks the queue. So one of the two sees the message. A mailbox that is queued twice costs an empty turn, and never runs
twice at the same time. With several workers ``SharedMailbox`` replaces the flag by a test-and-set.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, Protocol, cast

import pykka
from pykka import messages

from ...actors.base import (
    Actor,
    ActorFailed,
    ActorRef,
    ChildFailed,
    ChildPassivated,
    Dispatcher,
    Envelope,
    MailboxFull,
    Overflow,
)
from ...actors.engine_ports import NOT_HANDLED
from ...actors.timer.messages import Expired
from ...actors.turn import run_on_start, run_turn
from .counters import EngineCounters, TurnCounters
from .flag import Flag
from .incarnation import Incarnations
from .reply import Reply
from .trace import Tracer

log = logging.getLogger("callboard.runtime")

ALWAYS_ADMITTED = (messages._ActorStop, ChildFailed, ChildPassivated, Expired)
"""Messages that are admitted above ``high_water`` too: the engine sends each of them once, and to one actor."""

_creation_lock = threading.Lock()  # held while a mailbox creates an attribute on first use


class MailboxHost(Dispatcher, Protocol):
    """The part of a dispatcher that a mailbox uses, in addition to the part that its actor uses."""

    tracer: Tracer | None
    counters: EngineCounters
    serials: Iterator[int]
    """The numbers of the next actors."""

    def ready(self, mailbox: Mailbox) -> None:
        """Queue a mailbox that has turned from empty to non-empty. May be called from any thread."""

    def monotonic_ms(self) -> int: ...

    def new_reply(self) -> Reply: ...

    def new_urn(self) -> str: ...

    def admission_threshold_of(self, actor_class: type[Actor]) -> int:
        """With at least so many unread messages a mailbox calls ``_admit`` for the next one."""

    def dead_letter(self, mailbox: Mailbox, envelope: Envelope[Any]) -> None:
        """Record a message that no actor will handle."""


class TurnInterrupt(IntEnum):
    """Set while a message is handled: what ``run`` must do before the next message."""

    NONE = 0
    STOPPED = 1
    BUG = 2
    PASSIVATE = 3
    PAUSED = 4


class Mailbox:
    """An actor's inbox. It holds the actor, because pykka's reference to it is weak."""

    __slots__ = (
        *("actor", "actor_class", "admission_threshold", "closed", "dispatcher", "incarnations", "interrupt", "queue"),
        *("room_waiters", "scheduled", "serial", "started", "stopped", "_urn"),
    )

    def __init__(self, dispatcher: MailboxHost) -> None:
        self.dispatcher = dispatcher
        self.queue: deque[Envelope[Any]] = deque()
        self.actor: Actor | None = None
        self.actor_class: type[Actor] = Actor  # until ``bind``
        self.serial = 0
        self.incarnations: Incarnations | None = None
        self.stopped = Flag()
        self.admission_threshold = sys.maxsize  # with so many messages unread, ``_admit`` decides about the next
        self.room_waiters: deque[Reply] | None = None  # futures of ``room``
        self.interrupt = TurnInterrupt.NONE
        self.scheduled = True  # so that it is not queued before the actor starts
        self.started = False
        self.closed = False
        self._urn: str | None = None

    @property
    def urn(self) -> str:
        if self._urn is None:
            with _creation_lock:
                self._urn = self._urn or self.dispatcher.new_urn()
        return self._urn

    @property
    def label(self) -> str:
        """A short name that is the same in each run of a program: "GroupActor-17"."""
        return f"{self.actor_class.__name__}-{self.serial}"

    def put(self, envelope: Envelope[Any], /) -> None:
        queue = self.queue
        if len(queue) >= self.admission_threshold:
            admitted = self._admit(envelope)
            if admitted is None:
                return
            envelope = admitted
        queue.append(envelope)
        if not self.scheduled:
            self.scheduled = True
            self.dispatcher.ready(self)
        elif self.closed:
            self._reject_all()

    def get(self) -> Envelope[Any]:
        return self.queue.popleft()

    def empty(self) -> bool:
        return not self.queue

    def remember_constructor(self, args: tuple[Any, ...], kwargs: dict[str, Any], parent: ActorRef | None) -> None:
        """Keep what is needed to create another instance of the actor, and the parent to notify if that fails."""
        self.incarnations = Incarnations(args, kwargs, parent)

    def bind(self, actor: Actor) -> None:
        """Start to deliver to ``actor``, including the messages that were put before."""
        self.actor = actor
        self.actor_class = type(actor)
        self.serial = next(self.dispatcher.serials)
        self.admission_threshold = self.dispatcher.admission_threshold_of(type(actor))
        self.dispatcher.ready(self)

    def run(self, budget: int, counters: TurnCounters) -> bool:
        """Handle at most ``budget`` messages. True if the mailbox must be queued again."""
        actor = self.actor
        if (actor is None or not self.started) and (actor := self._start_or_activate()) is None:
            return self._end_turn()
        queue, left, tracer = self.queue, budget, self.dispatcher.tracer
        handle = run_turn if tracer is None else tracer.run_turn
        while queue and left:
            left -= 1
            handle(actor, queue.popleft())
            if self.interrupt:
                next_actor = self._handle_interrupt(actor)
                if next_actor is None:
                    break
                actor = next_actor
        actor.reply_to = None  # an idle actor must not keep a reply alive
        counters.handled[type(actor)] += budget - left
        if self.room_waiters and len(queue) <= self.actor_class.high_water // 2:
            _settle_room_waiters(self.room_waiters)
        if self.actor is not None:  # the usual case, without the cost of a call
            return self._release()
        return self._end_turn()

    def answer_at_once(self, message: Any) -> Any:
        """See ``actors.base.Inbox``. ``LoopMailbox`` may return a reply."""
        return NOT_HANDLED

    def _end_turn(self) -> bool:
        """True if the mailbox must be queued again. The parent is notified last, so that it may retire the actor."""
        incarnations = self.incarnations
        if incarnations is None:
            return not self.closed and self._release()
        passivated_ref = incarnations.take_newly_passivated()
        must_requeue = not self.closed and self._release()
        if passivated_ref is not None:
            incarnations.notify_parent_of_passivation(passivated_ref)
        return must_requeue

    def _release(self) -> bool:
        """End the turn. True if messages wait and no other thread has queued the mailbox for them."""
        self.scheduled = False
        if self.queue and not self.scheduled:
            self.scheduled = True
            return True
        return False

    # Start and stop --------------------------------------------------------------------------------------------------

    def _start_or_activate(self) -> Actor | None:
        """Start the actor in its first turn; after passivation make a new instance if it has messages.

        None if there is no actor.
        """
        if not self.started:
            self.started = True
            actor = self.actor
            assert actor is not None, "a mailbox is not queued before it is bound"
            run_on_start(actor)
            return self._handle_interrupt(actor) if self.interrupt else actor
        if self.closed:
            self._reject_all()
        elif self.queue and self.incarnations is not None:
            self.actor = self.incarnations.activate(self)
            if self.interrupt is TurnInterrupt.STOPPED:
                self._close()
        return self.actor

    def mark_stopped(self, ref: ActorRef) -> None:
        """The actor has stopped or failed: it handles no more messages."""
        self.dispatcher.unregister(ref)
        self.interrupt = TurnInterrupt.STOPPED
        self.stopped.set()

    def replace_after_bug(self, error: Exception) -> None:
        """A supervised actor has raised an error: another instance handles the next message."""
        assert self.incarnations is not None, "only started actors handle messages"
        if self.interrupt is not TurnInterrupt.STOPPED:
            self.incarnations.bug = error
            self.interrupt = TurnInterrupt.BUG

    def pause(self, rest: Envelope[Any]) -> None:
        """End the turn. ``rest`` is in front of the messages that the actor has put back itself."""
        self.queue.appendleft(rest)
        if self.interrupt is TurnInterrupt.NONE:
            self.interrupt = TurnInterrupt.PAUSED

    def passivate_after_turn(self) -> None:
        """Passivate the actor when its turn ends."""
        if self.interrupt is TurnInterrupt.NONE:
            self.interrupt = TurnInterrupt.PASSIVATE

    def _handle_interrupt(self, actor: Actor) -> Actor | None:
        """The instance that handles the next message in this turn; None if there is none, or the turn is over."""
        reason = self.interrupt
        if reason is TurnInterrupt.PAUSED:
            self.interrupt = TurnInterrupt.NONE
            return None
        if reason is TurnInterrupt.PASSIVATE:
            self.interrupt = TurnInterrupt.NONE
            if self.queue or self.incarnations is None:
                return actor
            self.incarnations.passivate(self, actor)
        elif reason is TurnInterrupt.BUG:
            self.interrupt = TurnInterrupt.NONE
            assert self.incarnations is not None
            self.actor = self.incarnations.restart(self, actor)
        if self.interrupt is TurnInterrupt.STOPPED:  # also set by a failed restart
            self._close()
        return self.actor

    def retire(self) -> Any:
        """Remove a passivated actor for good and return its snapshot. None if it is active or has messages."""
        incarnations = self.incarnations
        if incarnations is None or incarnations.passivated_ref is None or self.queue:
            return None
        self.dispatcher.unregister(incarnations.passivated_ref)
        self.stopped.set()
        self.closed = self.scheduled = True
        self._reject_all()
        return incarnations.retire()

    def abandon(self) -> None:
        """Nothing runs this mailbox any more: reject all messages that wait and all that will come."""
        actor = self.actor  # read once: another thread may run this too
        if actor is not None:
            self.mark_stopped(actor._actor_ref)
        elif self.incarnations is not None and self.incarnations.passivated_ref is not None:
            self.mark_stopped(self.incarnations.passivated_ref)
        self._close()

    def dead_error(self) -> pykka.ActorDeadError:
        """Why the actor does not answer. A new error each time, because each is raised in another place."""
        failure = self.incarnations.failure if self.incarnations is not None else None
        if failure is not None:
            return ActorFailed(*failure.args)
        return pykka.ActorDeadError(f"{self.actor_class.__name__} ({self.urn}) not found")

    def _close(self) -> None:
        self.scheduled = True  # for ever, so that it is never queued again
        self.closed = True
        self.actor = None  # breaks the cycle of actor and inbox
        self._reject_all()
        _settle_room_waiters(self.room_waiters)

    def _reject_all(self) -> None:
        while True:
            try:
                envelope = self.queue.popleft()
            except IndexError:  # not checked before, because another thread may run this too
                return
            if isinstance(envelope.message, messages._ActorStop):  # the actor has stopped already
                if envelope.reply_to is not None:
                    _settle(envelope.reply_to.set, None)
                continue
            self.dispatcher.dead_letter(self, envelope)
            if envelope.reply_to is not None:
                dead_error = self.dead_error()
                _settle(envelope.reply_to.set_exception, (type(dead_error), dead_error, None))

    # Above the admission threshold -----------------------------------------------------------------------------------

    def _admit(self, envelope: Envelope[Any]) -> Envelope[Any] | None:
        """The slow path of ``put``, for a tracer or a full mailbox: the envelope to queue.

        A message to a full mailbox is rejected: an ask gets the error and the result is None, a tell raises
        MailboxFull.
        """
        tracer = self.dispatcher.tracer
        if tracer is not None:
            envelope = tracer.sent(self.label, envelope)
        actor_class = self.actor_class
        if self.closed or len(self.queue) < actor_class.high_water or isinstance(envelope.message, ALWAYS_ADMITTED):
            return envelope
        reply_to = envelope.reply_to
        if actor_class.overflow is Overflow.PAUSE:
            wait_for_room = getattr(reply_to, "wait_for_room", None)
            if wait_for_room is not None:
                wait_for_room(self.room())
            return envelope
        error = MailboxFull(
            f"{self.label} has {len(self.queue)} unread messages, and its high_water is {actor_class.high_water}; "
            "send less, or wait for ActorRef.room()"
        )
        if tracer is not None:
            tracer.dead(envelope)
        if reply_to is None:
            raise error
        reply_to.set_exception((MailboxFull, error, None))
        return None

    def room(self) -> Reply:
        """A future that is settled at once below the high-water mark, else when the queue is half empty."""
        room = self.dispatcher.new_reply()
        if self.closed or len(self.queue) < self.actor_class.high_water:
            room.set()
            return room
        with _creation_lock:
            if self.room_waiters is None:
                self.room_waiters = deque()
        self.room_waiters.append(room)
        if not self.queue:  # another thread has emptied it meanwhile
            _settle_room_waiters(self.room_waiters)
        return room


def _settle(settle: Callable[[Any], object], answer: Any) -> None:
    try:
        settle(answer)
    except Exception:
        log.exception("a rejected message could not be answered")


def _settle_room_waiters(waiters: deque[Reply] | None) -> None:
    while waiters:
        try:
            room = waiters.popleft()
        except IndexError:  # another thread has settled the last one
            return
        room.set()


def mailbox_of(ref: ActorRef) -> Mailbox:
    """The mailbox of an actor that runs on one of these dispatchers."""
    return cast("Mailbox", ref.actor_inbox)


class SharedMailbox(Mailbox):
    """A mailbox for several workers: the thread that acquires ``_gate`` queues it. ``scheduled`` is not used."""

    __slots__ = ("_gate",)

    def __init__(self, dispatcher: MailboxHost) -> None:
        super().__init__(dispatcher)
        self._gate = threading.Lock()
        self._gate.acquire()

    def put(self, envelope: Envelope[Any], /) -> None:
        if len(self.queue) >= self.admission_threshold:
            admitted = self._admit(envelope)
            if admitted is None:
                return
            envelope = admitted
        self.queue.append(envelope)
        if self._gate.acquire(False):
            self.dispatcher.ready(self)
        elif self.closed:
            self._reject_all()

    def retire(self) -> Any:
        if not self._gate.acquire(False):
            return None  # a message has arrived
        snapshot = super().retire()
        if not self.closed and self._release():
            self.dispatcher.ready(self)
        return snapshot

    def _release(self) -> bool:
        self._gate.release()
        return bool(self.queue) and self._gate.acquire(False)
