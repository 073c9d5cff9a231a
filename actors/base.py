"""Actor: a pykka.Actor that shares a worker with many others.

Pykka leaves three seams for a new kind of actor: the inbox, the future and the start of the loop. All three come from a
dispatcher here, so ``ActorRef``, ``tell``, ``ask``, ``proxy`` and ``stop`` are pykka's own, and a hundred thousand
actors fit on one thread. What is added:

- ``ActorRef.post(message, reply_to)``: a tell whose answer goes to a place that the sender supplies. The front door
  uses it: the place that a connection keeps for a response costs less than a future, and keeps the order.
- a handler may return ``DEFERRED`` and answer later through ``self.reply_to``, which it keeps. That is how a JoinGroup
  waits for the others.
- an instance may leave memory while its reference and its messages stay: after a bug (``Supervision``) or to sleep
  (``sleep``). The next one is made by the same constructor with the same arguments, and gets what the last one left.

``pykka.Actor.__init__`` makes a UUID and a ``threading.Event`` for each actor: 5.5 us and 2.4 kB. Ours makes the UUID
when somebody asks for it, and a flag instead of the event.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self

import pykka
from pykka import messages
from pykka._actor import ActorInbox
from pykka._envelope import Envelope as Envelope  # private: all others take it from here

if TYPE_CHECKING:
    from .engine_ports import ReplyTo

log = logging.getLogger("pykka")  # whoever listens to pykka's actors hears of ours

DEFERRED: Final = object()
"""Returned by a handler that has kept ``self.reply_to`` and will answer later."""


class Inbox(ActorInbox, Protocol):
    """What an actor and its reference need of their mailbox: ``runtime/engine/mailbox.py`` has the real ones."""

    actor: Any  # Actor; None before the start, after the end and while it sleeps
    queue: deque[Envelope[Any]]
    stopped: Any  # as threading.Event

    @property
    def dispatcher(self) -> Dispatcher: ...

    @property
    def urn(self) -> str: ...

    @property
    def label(self) -> str: ...

    def remember(self, args: tuple[Any, ...], kwargs: dict[str, Any], parent: ActorRef | None) -> None:
        """How to make another instance of the actor, and who hears when that fails."""

    def bind(self, actor: Actor) -> None:
        """Begin to deliver to ``actor``."""

    def has_bug(self, error: Exception) -> None:
        """Put another instance in the place of a supervised actor."""

    def has_stopped(self, ref: ActorRef) -> None:
        """Deliver nothing more."""

    def fall_asleep(self) -> None:
        """Let the instance leave memory after its turn, if no message waits."""

    def retire(self) -> Any: ...

    def room(self) -> Any: ...

    def death(self) -> pykka.ActorDeadError:
        """Why the actor takes no messages."""


class Dispatcher(Protocol):
    """What runs actors: ``runtime/engine/dispatcher.py`` has the real ones."""

    def new_mailbox(self) -> Inbox: ...

    def new_reply(self) -> Any:
        """A future whose answer an actor of this dispatcher will set."""

    def check_wait(self) -> None:
        """Raises WouldDeadlock where a blocking wait would keep the answer from coming."""

    def after_turn(self, ref: pykka.ActorRef[Any], message: Any) -> None:
        """Tell ``ref`` when all actors and sockets that are ready now have had their turn."""

    def enter(self, ref: pykka.ActorRef[Any]) -> None:
        """Put an actor that is about to start on the list of the living."""

    def forget(self, ref: pykka.ActorRef[Any]) -> None:
        """The actor has stopped; take it off the list."""

    def is_end(self, error: BaseException) -> bool:
        """Whether an error that got out of a handler means the end of all; else it is a bug of that actor."""

    def end(self, error: BaseException) -> None:
        """A handler wants the program to end (KeyboardInterrupt, SystemExit): tell all to stop, without waiting."""


class Supervision(NamedTuple):
    """What becomes of an actor that has a bug: it begins anew, but not for ever.

    An error of ``domain_errors`` is an answer and no bug. Any other takes the instance out of memory; a new one takes
    its place, with the same reference and the messages that wait. After more than ``restarts`` bugs within
    ``within_ms`` the actor has failed: whoever asks it hears ``ActorFailed``, and its parent gets a ``ChildFailed``.
    """

    restarts: int = 3
    within_ms: int = 10_000
    domain_errors: tuple[type[Exception], ...] = ()


class Overflow(Enum):
    """What a mailbox does with messages above its actor's ``high_water``."""

    REFUSE = "refuse"  # MailboxFull, to who asked or raised where it was told; the actor is always told to stop
    PAUSE = "pause"  # it takes them, but the sender should wait: see ActorRef.room()


class ActorFailed(pykka.ActorDeadError):
    """The actor had too many bugs in too short a time. The text says which was the last."""


class MailboxFull(RuntimeError):
    """The actor has more unread messages than its ``high_water`` allows. Slow down, or ``await ref.room()``."""


class ChildFailed(NamedTuple):
    """To the actor that spawned one that failed, if its ``handlers`` take this message."""

    child: ActorRef
    error: Exception


class ChildAsleep(NamedTuple):
    """To the actor that spawned one that fell asleep, if its ``handlers`` take this. It may ``retire`` the child."""

    child: ActorRef


_current_dispatcher: ContextVar[Dispatcher | None] = ContextVar("callboard_dispatcher", default=None)


def belong_to(dispatcher: Dispatcher) -> None:
    """From now on, in this context, actors that are made belong to ``dispatcher``."""
    _current_dispatcher.set(dispatcher)


@contextmanager
def running_on(dispatcher: Dispatcher) -> Iterator[None]:
    """Actors made inside of this block belong to ``dispatcher``."""
    token = _current_dispatcher.set(dispatcher)
    try:
        yield
    finally:
        _current_dispatcher.reset(token)


def current_dispatcher() -> Dispatcher:
    """The dispatcher of this context. Raises RuntimeError outside of a system."""
    dispatcher = _current_dispatcher.get()
    if dispatcher is None:
        raise RuntimeError(
            "no system is current here: start actors with System.spawn(TheActor, ...), from inside another actor, "
            "or in a `with running_on(system.dispatcher):` block"
        )
    return dispatcher


class ActorRef(pykka.ActorRef[Any]):
    """Pykka's reference, whose futures know who will answer them."""

    actor_inbox: Inbox

    def __init__(self, actor: Actor) -> None:
        self.actor_class = actor.__class__
        self.actor_inbox = actor.actor_inbox
        self.actor_stopped = actor.actor_stopped

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        return self.actor_inbox.urn

    @property
    def _actor_weakref(self) -> Callable[[], Actor | None]:  # type: ignore[override]
        """What a proxy looks at. The mailbox knows the instance, so a weak reference would be 72 bytes for nothing."""
        return lambda: self.actor_inbox.actor

    def tell(self, message: Any) -> None:
        """As pykka's: raises ActorDeadError if the actor has stopped, MailboxFull if it refuses more messages."""
        if self.actor_stopped._is_set:  # type: ignore[attr-defined]
            raise self.actor_inbox.death() from None
        self.actor_inbox.put(Envelope(message))

    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """As pykka's, but no wait is endless and none can hang the thread that would have to answer.

        With ``block=False`` the future can be awaited on a loop; ``timeout`` (seconds) bounds that wait too. None means
        the system's ``ask_timeout_s``. Raises pykka.Timeout, and WouldDeadlock for a blocking wait on the actors' own
        thread; then nothing was sent.
        """
        dispatcher = self.actor_inbox.dispatcher
        if block:
            dispatcher.check_wait()
        future = dispatcher.new_reply()
        if timeout is not None:
            future.timeout_s = timeout
        self.actor_inbox.put(Envelope(message, reply_to=future))
        if not block:
            return future
        try:
            return future.get(timeout=timeout)
        finally:
            del future  # an error keeps this frame, which must not keep who keeps the error

    def post(self, message: Any, reply_to: ReplyTo) -> None:
        """Tell, with a place for the answer. A dead actor's answer is pykka's ``ActorDeadError``."""
        self.actor_inbox.put(Envelope(message, reply_to))  # type: ignore[arg-type]

    def stop(self, *, block: bool = True, timeout: float | None = None) -> Any:
        """As pykka's: True, or False when it was dead already. ``await ref.stop(block=False)`` on a loop."""
        dispatcher = self.actor_inbox.dispatcher
        if self.actor_stopped.is_set():
            stopped = dispatcher.new_reply()
            stopped.set(False)
        else:
            if block:
                dispatcher.check_wait()
            stopped = self.ask(messages._ActorStop(), block=False, timeout=timeout).converted(_has_stopped)
        return stopped.get() if block else stopped

    def proxy(self) -> Any:
        """As pykka's. It looks at the instance, so one that sleeps is woken, with a blocking wait."""
        if self._actor_weakref() is None and self.is_alive():
            self.ask(messages.ProxyGetAttr(attr_path=("actor_urn",)))
        return super().proxy()

    def room(self) -> Any:
        """A future that is settled when the mailbox is below its high-water mark: at once, or when it is half empty.

        For producers that may be faster than the actor: ``await ref.room()``, then tell.
        """
        return self.actor_inbox.room()

    def retire(self) -> Any:
        """Forget an actor that sleeps, for good: returns what it left, None if it is awake after all.

        For its parent, in a handler: from outside of the system a message that comes at the same time could be lost.
        """
        return self.actor_inbox.retire()


def _has_stopped(error: BaseException | None) -> bool:
    """The answer to a stop: dead already is no error."""
    if error is not None and not isinstance(error, pykka.ActorDeadError):
        raise error
    return error is None


class Actor(pykka.Actor):
    """Base of our actors. A subclass says in ``handlers`` which method takes which class of message.

    Without ``handlers`` it is pykka's actor: implement ``on_receive``, or call methods through a proxy.
    """

    actor_inbox: Inbox
    _actor_ref: ActorRef

    reply_to: ReplyTo | None = None
    """Where the answer to the message in hand goes; None for a tell."""

    handlers: dict[type, str] = {}
    _methods: dict[type, Any] = {}

    supervision: Supervision | None = None
    """None: pykka's rule, an error goes to who asked, and one that nobody asked for stops the actor."""

    stand_in: type[Actor] | None = None
    """Whose instance answers for this actor after too many bugs; it gets what ``on_leave`` left. When the stand-in
    falls asleep, the next message brings the actor itself back. None: the reference is dead, and says why."""

    may_sleep: bool = False
    """Whether ``sleep`` is allowed; the arguments of the constructor are kept then."""

    high_water: int = sys.maxsize
    """How many unread messages are too many; ``overflow`` says what happens then."""

    overflow: Overflow = Overflow.REFUSE

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._methods = {message: getattr(cls, name) for message, name in cls.handlers.items()}

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        if hasattr(self, "_actor_ref"):  # no look at __dict__: it would make one, and every attribute slower
            return  # it takes the place of another instance, with its inbox and reference
        self.actor_inbox = inbox = self._create_actor_inbox()
        self.actor_stopped = inbox.stopped
        inbox.actor = self
        self._actor_ref = ActorRef(self)

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        return self.actor_inbox.urn

    @property
    def actor_ref(self) -> ActorRef:
        return self._actor_ref

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> Any:
        """Make the actor, register it and hand it to the dispatcher that is current (see ``System.spawn``)."""
        return cls._start(args, kwargs, None)

    def spawn(self, actor_class: type[Actor], *args: Any, **kwargs: Any) -> ActorRef:
        """Start a child: it lives on the same dispatcher, and this actor hears when it fails."""
        with running_on(self.actor_inbox.dispatcher):
            return actor_class._start(args, kwargs, self._actor_ref)

    @classmethod
    def _start(cls, args: tuple[Any, ...], kwargs: dict[str, Any], parent: ActorRef | None) -> ActorRef:
        actor = cls(*args, **kwargs)
        if parent is not None or cls.may_sleep or cls.supervision is not None:
            actor.actor_inbox.remember(args, kwargs, parent)
        actor.actor_inbox.dispatcher.enter(actor._actor_ref)
        log.debug("Starting %s", actor)
        actor._start_actor_loop()
        return actor._actor_ref

    @classmethod
    def _take_place(cls, ref: ActorRef, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Self:
        """A new instance behind a reference whose last instance has left."""
        actor = cls.__new__(cls)
        actor.actor_inbox = ref.actor_inbox
        actor.actor_stopped = ref.actor_stopped
        actor._actor_ref = ref
        ref.actor_inbox.actor = actor
        actor.__init__(*args, **kwargs)  # type: ignore[misc]
        return actor

    def sleep(self) -> None:
        """Leave memory when this turn is over, if nothing waits in the mailbox. The next message brings it back.

        What ``on_leave`` returns is what stays; the new instance is made with the constructor's first arguments and
        gets it in ``on_return``, before ``on_start``. Senders see nothing of it.
        """
        if not self.may_sleep:
            raise RuntimeError(f"{type(self).__name__} cannot sleep: set may_sleep = True in the class")
        self.actor_inbox.fall_asleep()

    def on_leave(self, error: Exception | None) -> Any:
        """The instance is about to leave memory: to sleep, or because of a bug (``error``). Returns what stays."""

    def on_return(self, kept: Any) -> None:
        """This instance takes the place of one that left ``kept``."""

    def take_next(self, requests: Sequence[tuple[Any, ReplyTo]]) -> None:
        """Handle these in their order after the message in hand, before all that waits in the mailbox.

        For requests that an actor has put aside: nobody who came later may overtake them.
        """
        self.actor_inbox.queue.extendleft(Envelope(*request) for request in reversed(requests))

    def tell_me_later(self, message: Any) -> None:
        """A message to oneself that lets everybody else have a turn first, the sockets included."""
        self.actor_inbox.dispatcher.after_turn(self._actor_ref, message)

    def on_receive(self, message: Any) -> Any:
        if not self.handlers:
            return super().on_receive(message)
        method = self._methods.get(type(message))
        if method is None:
            raise TypeError(
                f"{self} has no handler for {type(message).__name__}; it takes {sorted(self.handlers.values())}"
            )
        return method(self, message)

    def handle(self, envelope: Envelope[Any]) -> None:
        """One turn of pykka's loop. Nothing gets out of it: a worker runs many actors."""
        self.reply_to = reply_to = envelope.reply_to
        try:
            method = self._methods.get(type(envelope.message))
            answer = method(self, envelope.message) if method else self._handle_receive(envelope.message)
        except Exception as error:
            self._survive(error, reply_to)
            del envelope, reply_to  # the error keeps this frame, which must not keep who keeps the error
        except BaseException as error:
            self._end_all(error, reply_to)
            del envelope, reply_to
        else:
            if reply_to is not None and answer is not DEFERRED:
                try:
                    reply_to.set(answer)
                except Exception:  # the sender's place for it is broken; that is no bug of this actor
                    log.exception("an answer of %s could not be delivered", self)

    def _survive(self, error: Exception, reply_to: ReplyTo | None) -> None:
        try:
            self._handle_error(error, reply_to)
        except Exception as another:
            if self.supervision is None:
                self._handle_failure(*sys.exc_info())
            else:
                self.actor_inbox.has_bug(another)

    def _handle_error(self, error: Exception, reply_to: ReplyTo | None) -> None:
        """Pykka's rules, or those of ``supervision``."""
        rule = self.supervision
        if rule is not None and not isinstance(error, rule.domain_errors):
            self.actor_inbox.has_bug(error)
        if reply_to is not None:
            log.info("Exception returned from %s to caller:", self, exc_info=error)
            self._answer_with(error, reply_to)
        elif rule is None:
            self._handle_failure(type(error), error, error.__traceback__)
            self.on_failure(type(error), error, error.__traceback__)
        elif isinstance(error, rule.domain_errors):
            log.info("%s refused a message whose sender does not wait:", self, exc_info=error)

    def _end_all(self, error: BaseException, reply_to: ReplyTo | None) -> None:
        """Somebody wants the program to end. Pykka's rule: all actors stop. (Pykka waits for them; a worker must not.)

        The cancellation of a task is no such wish: its result was looked at here, and that is a bug like any other. The
        error that stands for it is an ordinary one, since whoever awaits the answer was not cancelled.

        On an event loop what asked for the end (KeyboardInterrupt, SystemExit) goes on its way after the turn.

        The others are told first: whoever sees this one end may make new actors, and those are to live.
        """
        if not self.actor_inbox.dispatcher.is_end(error):
            bug = RuntimeError(f"{error!r} got out of a handler of {self}")
            bug.__cause__ = error
            self._survive(bug, reply_to)
            return
        log.debug("%r in %s. Stopping all actors.", error, self)
        self.actor_inbox.dispatcher.end(error)
        try:
            if not self.actor_stopped.is_set():  # it was not on_stop that asked for the end
                self._stop()
        finally:
            if reply_to is not None:
                self._answer_with(pykka.ActorDeadError(f"{self} was ended by {error!r}"), reply_to)

    def _answer_with(self, error: Exception, reply_to: ReplyTo) -> None:
        try:
            reply_to.set_exception((type(error), error, error.__traceback__))
        except Exception:
            log.exception("an error of %s could not be delivered", self)

    @staticmethod
    def _create_actor_inbox() -> Inbox:
        return current_dispatcher().new_mailbox()

    @staticmethod
    def _create_future() -> Any:
        return current_dispatcher().new_reply()

    def _start_actor_loop(self) -> None:
        self.actor_inbox.bind(self)

    def _actor_loop_setup(self) -> None:
        try:
            self.on_start()
        except Exception as error:
            if self.supervision is None:
                self._handle_failure(*sys.exc_info())
            else:
                self.actor_inbox.has_bug(error)

    def _stop(self) -> None:
        self.actor_inbox.has_stopped(self._actor_ref)
        log.debug("Stopped %s", self)
        try:
            self.on_stop()
        except Exception:
            self._handle_failure(*sys.exc_info())

    def _handle_failure(self, exception_type: Any, exception_value: Any, traceback: Any) -> None:
        log.error("Unhandled exception in %s:", self, exc_info=(exception_type, exception_value, traceback))
        self.actor_inbox.has_stopped(self._actor_ref)


class SteadfastActor(Actor):
    """An actor of which there is one and on which all depend: a bug costs the message in hand, not the actor."""

    def _handle_error(self, error: Exception, reply_to: ReplyTo | None) -> None:
        log.error("%s goes on after a bug", self, exc_info=error)
        if reply_to is not None:
            self._answer_with(error, reply_to)
