"""Mailbox: a pykka inbox that is queued on a dispatcher while it has messages.

No lock is needed with one worker: ``put`` appends and then looks at ``scheduled``, ``run`` clears ``scheduled`` and
then looks at the queue, so one of the two sees the message. A mailbox that is queued twice costs an empty turn, never
two turns at once. With several workers ``SharedMailbox`` makes a test-and-set of the flag.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from collections.abc import Callable
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
from ...actors.timer.messages import Expired
from .flag import Flag
from .incarnation import Life
from .reply import Reply
from .stats import Tally
from .trace import Tracer

log = logging.getLogger("callboard.runtime")

ALWAYS_TAKEN = (messages._ActorStop, ChildFailed, ChildPassivated, Expired)
"""What no mailbox is too full for: the runtime says it once, and to nobody else."""

_making = threading.Lock()  # held while a mailbox makes what it has not needed before


class MailboxHost(Dispatcher, Protocol):
    """What a mailbox needs of the dispatcher that runs it, besides what its actor needs."""

    tracer: Tracer | None
    restarts: int

    def ready(self, mailbox: Mailbox) -> None:
        """Queue a mailbox that has turned from empty to non-empty. May be called from any thread."""

    def monotonic_ms(self) -> int: ...

    def new_reply(self) -> Reply: ...

    def new_serial(self) -> int: ...

    def new_urn(self) -> str: ...

    def door_of(self, actor_class: type[Actor]) -> int:
        """The number of unread messages from which on a mailbox takes a second look at the next."""

    def dead_letter(self, mailbox: Mailbox, envelope: Envelope[Any]) -> None:
        """Nobody will read this message."""


class Attention(IntEnum):
    """Why the run of messages must look up."""

    NOTHING = 0
    STOPPED = 1
    BUG = 2
    SLEEPY = 3


class Mailbox:
    """An actor's inbox; it holds the actor, since pykka's reference is a weak one."""

    __slots__ = (
        *("actor", "actor_class", "attention", "closed", "dispatcher", "door", "life", "queue", "rooms", "scheduled"),
        *("serial", "started", "stopped", "_urn"),
    )

    def __init__(self, dispatcher: MailboxHost) -> None:
        self.dispatcher = dispatcher
        self.queue: deque[Envelope[Any]] = deque()
        self.actor: Actor | None = None
        self.actor_class: type[Actor] = Actor  # until it is bound to one
        self.serial = 0
        self.life: Life | None = None
        self.stopped = Flag()
        self.door = sys.maxsize  # with so many messages unread, ``_admit`` decides about the next
        self.rooms: deque[Reply] | None = None  # of those who wait until there is room
        self.attention = Attention.NOTHING
        self.scheduled = True  # held back until the actor starts
        self.started = False
        self.closed = False
        self._urn: str | None = None

    @property
    def urn(self) -> str:
        if self._urn is None:
            with _making:
                self._urn = self._urn or self.dispatcher.new_urn()
        return self._urn

    @property
    def label(self) -> str:
        """A short name, the same in each run of the same program: "GroupActor-17"."""
        return f"{self.actor_class.__name__}-{self.serial}"

    @property
    def is_asleep(self) -> bool:
        return self.life is not None and self.life.sleeper is not None

    def put(self, envelope: Envelope[Any], /) -> None:
        queue = self.queue
        if len(queue) >= self.door:
            admitted = self._admit(envelope)
            if admitted is None:
                return
            envelope = admitted
        queue.append(envelope)
        if not self.scheduled:
            self.scheduled = True
            self.dispatcher.ready(self)
        elif self.closed:
            self._refuse_all()

    def get(self) -> Envelope[Any]:
        return self.queue.popleft()

    def empty(self) -> bool:
        return not self.queue

    def remember_constructor(self, args: tuple[Any, ...], kwargs: dict[str, Any], parent: ActorRef | None) -> None:
        """How another instance of the actor is made; its parent hears when there cannot be one."""
        self.life = Life(args, kwargs, parent)

    def bind(self, actor: Actor) -> None:
        """Start to deliver to ``actor``; what came before waits until now."""
        self.actor = actor
        self.actor_class = type(actor)
        self.serial = self.dispatcher.new_serial()
        self.door = self.dispatcher.door_of(type(actor))
        self.dispatcher.ready(self)

    def run(self, budget: int, tally: Tally) -> bool:
        """Handle at most ``budget`` messages. True if it is to be queued again."""
        actor = self.actor
        if (actor is None or not self.started) and (actor := self._enter()) is None:
            return self._end_turn()
        queue, left, tracer = self.queue, budget, self.dispatcher.tracer
        handle = actor.handle if tracer is None else tracer.handler(actor)
        while queue and left:
            left -= 1
            handle(queue.popleft())
            if self.attention:
                following = self._attend(actor)
                if following is None:
                    break
                actor = following
                handle = actor.handle if tracer is None else tracer.handler(actor)
        actor.reply_to = None  # who has nothing to do holds no answer
        tally.handled[type(actor)] += budget - left
        if self.rooms and len(queue) <= self.actor_class.high_water // 2:
            self._make_room()
        if self.actor is not None:  # nearly always, and calls cost
            return self._release()
        return self._end_turn()

    def _end_turn(self) -> bool:
        """True if the mailbox is to be queued again. Who hears that the actor sleeps finds nobody at work on it."""
        life = self.life
        if life is None:
            return not self.closed and self._release()
        sleeper = life.asleep_now()
        again = not self.closed and self._release()
        if sleeper is not None:
            life.tell_of_sleep(sleeper)
        return again

    def _release(self) -> bool:
        """The turn is over. True if there is more to do, and nobody else has taken note of it."""
        self.scheduled = False
        if self.queue and not self.scheduled:
            self.scheduled = True
            return True
        return False

    # Beginning and end -----------------------------------------------------------------------------------------------

    def _enter(self) -> Actor | None:
        """The first turn of all, or the first after a sleep. None if nobody is there to take messages."""
        if self.started:
            return self._wake()
        self.started = True
        actor = self.actor
        assert actor is not None, "nobody queues a mailbox before it is bound"
        actor._actor_loop_setup()
        return self._attend(actor) if self.attention else actor

    def _wake(self) -> Actor | None:
        """Messages for an actor that is not in memory; a turn without any brings nobody back."""
        if self.closed:
            self._refuse_all()
        elif self.queue and self.life is not None:
            self.actor = self.life.wake(self)
            if self.attention is Attention.STOPPED:
                self._close()
        return self.actor

    def mark_stopped(self, ref: ActorRef) -> None:
        """The actor has stopped or failed: this was its last message."""
        self.dispatcher.unregister(ref)
        self.attention = Attention.STOPPED
        self.stopped.set()

    def replace_after_bug(self, error: Exception) -> None:
        """A supervised actor has a bug: another instance handles the next message."""
        assert self.life is not None, "only actors that were started have bugs"
        if self.attention is not Attention.STOPPED:
            self.life.bug = error
            self.attention = Attention.BUG

    def passivate_after_turn(self) -> None:
        """The actor may leave memory when its turn is over."""
        if self.attention is Attention.NOTHING:
            self.attention = Attention.SLEEPY

    def _attend(self, actor: Actor) -> Actor | None:
        """Something has happened in a message; who handles the next? None: nobody, now."""
        reason = self.attention
        if reason is Attention.SLEEPY:
            self.attention = Attention.NOTHING
            if self.queue or self.life is None:
                return actor
            self.life.sleep(self, actor)
        elif reason is Attention.BUG:
            self.attention = Attention.NOTHING
            assert self.life is not None
            self.actor = self.life.restart(self, actor)
        if self.attention is Attention.STOPPED:  # a failure comes through here too
            self._close()
        return self.actor

    def retire(self) -> Any:
        """For good, and only if the actor sleeps and nothing has come for it: what it left. Else None."""
        life = self.life
        if life is None or life.sleeper is None or self.queue:
            return None
        self.dispatcher.unregister(life.sleeper)
        self.stopped.set()
        self.closed = self.scheduled = True
        self._refuse_all()
        return life.retire()

    def abandon(self) -> None:
        """There is nobody any more who would run this: what waits and what will come is refused."""
        actor = self.actor  # looked at once: another thread may be here too
        if actor is not None:
            self.mark_stopped(actor._actor_ref)
        elif self.life is not None and self.life.sleeper is not None:
            self.mark_stopped(self.life.sleeper)
        self._close()

    def dead_error(self) -> pykka.ActorDeadError:
        """Why nobody answers here. A new error each time, since each is raised to somebody else."""
        failure = self.life.failure if self.life is not None else None
        if failure is not None:
            return ActorFailed(*failure.args)
        return pykka.ActorDeadError(f"{self.actor_class.__name__} ({self.urn}) not found")

    def _close(self) -> None:
        self.scheduled = True  # for ever: nobody queues it again
        self.closed = True
        self.actor = None  # breaks the cycle of actor and inbox
        self._refuse_all()
        self._make_room()

    def _refuse_all(self) -> None:
        while True:
            try:
                envelope = self.queue.popleft()
            except IndexError:  # asked once, not looked at first: another thread may be here too
                return
            if isinstance(envelope.message, messages._ActorStop):  # done already
                if envelope.reply_to is not None:
                    self._settle(envelope.reply_to.set, None)
                continue
            self.dispatcher.dead_letter(self, envelope)
            if envelope.reply_to is not None:
                dead_error = self.dead_error()
                self._settle(envelope.reply_to.set_exception, (type(dead_error), dead_error, None))

    def _settle(self, settle: Callable[[Any], object], answer: Any) -> None:
        try:
            settle(answer)
        except Exception:
            log.exception("a refusal could not be delivered")

    # Too many messages, or a tracer ----------------------------------------------------------------------------------

    def _admit(self, envelope: Envelope[Any]) -> Envelope[Any] | None:
        """The slow way in. None if the message was refused to who asked; raises MailboxFull where it was told."""
        tracer = self.dispatcher.tracer
        if tracer is not None:
            envelope = tracer.sent(self.label, envelope)
        kind = self.actor_class
        if self.closed or len(self.queue) < kind.high_water or isinstance(envelope.message, ALWAYS_TAKEN):
            return envelope
        reply_to = envelope.reply_to
        if kind.overflow is Overflow.PAUSE:
            wait = getattr(reply_to, "wait_for_room", None)
            if wait is not None:
                wait(self.room())
            return envelope
        full = MailboxFull(
            f"{self.label} has {len(self.queue)} unread messages, and its high_water is {kind.high_water}; "
            "send less, or wait for ActorRef.room()"
        )
        if tracer is not None:
            tracer.dead(envelope)
        if reply_to is None:
            raise full
        reply_to.set_exception((MailboxFull, full, None))
        return None

    def room(self) -> Reply:
        """Settled when the queue is below the high-water mark."""
        room = self.dispatcher.new_reply()
        if self.closed or len(self.queue) < self.actor_class.high_water:
            room.set()
            return room
        with _making:
            if self.rooms is None:
                self.rooms = deque()
        self.rooms.append(room)
        if not self.queue:  # it ran empty meanwhile, on another thread
            self._make_room()
        return room

    def _make_room(self) -> None:
        while self.rooms:
            try:
                room = self.rooms.popleft()
            except IndexError:  # another thread was here for the last
                return
            room.set()


def mailbox_of(ref: ActorRef) -> Mailbox:
    """The mailbox of an actor that one of our dispatchers runs."""
    return cast("Mailbox", ref.actor_inbox)


class SharedMailbox(Mailbox):
    """The same for several workers: who gets the gate queues the mailbox. ``scheduled`` is not looked at."""

    __slots__ = ("_gate",)

    def __init__(self, dispatcher: MailboxHost) -> None:
        super().__init__(dispatcher)
        self._gate = threading.Lock()
        self._gate.acquire()

    def put(self, envelope: Envelope[Any], /) -> None:
        if len(self.queue) >= self.door:
            admitted = self._admit(envelope)
            if admitted is None:
                return
            envelope = admitted
        self.queue.append(envelope)
        if self._gate.acquire(False):
            self.dispatcher.ready(self)
        elif self.closed:
            self._refuse_all()

    def retire(self) -> Any:
        if not self._gate.acquire(False):
            return None  # somebody has sent it something
        kept = super().retire()
        if not self.closed and self._release():
            self.dispatcher.ready(self)
        return kept

    def _release(self) -> bool:
        self._gate.release()
        return bool(self.queue) and self._gate.acquire(False)
