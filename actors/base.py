"""Actor: a pykka.Actor that shares a worker thread or event loop with many others.

Pykka has three extension points for a new kind of actor: the inbox, the future and the start of the loop. Here all
three come from a dispatcher. So ``ActorRef``, ``tell``, ``ask``, ``proxy`` and ``stop`` work as in pykka, and a hundred
thousand actors fit on one thread. This module adds:

- ``ActorRef.post(message, reply_to)``: a tell whose reply goes to an object that the sender supplies. Connections use
  it: the slot that a connection reserves for a response costs less than a future, and keeps the order.
- A handler may work in steps, so that a long turn does not hold up the other actors: see ``Actor.may_pause``.
- A handler may return ``DEFERRED`` and reply later through ``self.reply_to``, which it has to store. For example, a
  JoinGroup request waits in this way for the other members.
- An instance may be dropped from memory while its reference and its messages stay: after a bug (``Supervision``) or by
  ``passivate``. The next instance is made by the same constructor with the same arguments, and gets the saved state.

``pykka.Actor.__init__`` creates a UUID and a ``threading.Event`` for each actor: 5.5 us and 2.4 kB. This class creates
the UUID on first use, and a flag instead of the event.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol, Self

import pykka
from pykka import messages
from pykka._actor import ActorInbox
from pykka._envelope import Envelope as Envelope  # private in pykka: all other modules import it from here

from .callboard_error import CallboardError

if TYPE_CHECKING:
    from .engine_ports import FutureReply, ReplyTo

log = logging.getLogger("pykka")  # the logger that programs with pykka actors already configure

DEFERRED: Final = object()
"""Returned by a handler that has stored ``self.reply_to`` and will reply later."""


class StopFlag(Protocol):
    """The part of ``threading.Event`` that pykka uses. ``tell`` reads ``_is_set``, which costs less than a call."""

    _is_set: bool

    def is_set(self) -> bool: ...

    def set(self) -> None: ...

    def wait(self, timeout: float | None = None) -> bool: ...


class Inbox(ActorInbox, Protocol):
    """The part of a mailbox that an actor and its reference use. Implemented in ``runtime/engine/mailbox.py``."""

    actor: Actor | None
    """None before the start, after the stop and while passivated."""

    queue: deque[Envelope[Any]]

    @property
    def stopped(self) -> StopFlag: ...

    @property
    def dispatcher(self) -> Dispatcher: ...

    @property
    def urn(self) -> str: ...

    @property
    def label(self) -> str: ...

    def remember_constructor(self, args: tuple[Any, ...], kwargs: dict[str, Any], parent: ActorRef | None) -> None:
        """Store how to make another instance of the actor, and the parent to notify of failures."""

    def bind(self, actor: Actor) -> None:
        """Start to deliver messages to ``actor``."""

    def replace_after_bug(self, error: Exception) -> None:
        """Replace the instance of a supervised actor."""

    def mark_stopped(self, ref: ActorRef) -> None:
        """Deliver no more messages."""

    def pause(self, rest: Envelope[Any]) -> None:
        """End the turn. The next one begins with ``rest``, before all messages that wait."""

    def passivate_after_turn(self) -> None:
        """Drop the instance from memory after its turn, if no message waits."""

    def retire(self) -> Any:
        """Remove a passivated actor for good. Returns the state that it saved; None if it is active."""

    def answer_at_once(self, message: Any) -> Any:
        """Return the reply of an idle actor to a message of ``Actor.immediate_handlers``.

        NOT_HANDLED if it must be sent instead. Only for callers on the actors' thread that are no actors.
        """

    def room(self) -> FutureReply:
        """Settled at once below the high-water mark, else when the queue is half empty."""

    def dead_error(self) -> pykka.ActorDeadError:
        """The error for senders, with the reason why the actor accepts no messages."""


class Dispatcher(Protocol):
    """Runs actors. Implemented in ``runtime/engine/dispatcher.py``."""

    def new_mailbox(self) -> Inbox: ...

    def new_reply(self) -> FutureReply:
        """A future that an actor of this dispatcher will complete."""

    def check_blocking_wait(self, receiver: object | None = None) -> None:
        """Raises WouldDeadlock if a blocking wait on this thread would prevent the reply.

        ``receiver``: the mailbox of the actor that is asked; None if it is not known.
        """

    def clock_ns(self) -> int:
        """The time by which long turns are divided into slices."""

    def tell_after_turn(self, ref: pykka.ActorRef[Any], message: Any) -> None:
        """Send ``message`` to ``ref`` after all actors and sockets that are ready now have had their turn."""

    def register(self, ref: pykka.ActorRef[Any]) -> None:
        """Add an actor that is about to start to the registry."""

    def unregister(self, ref: pykka.ActorRef[Any]) -> None:
        """Remove an actor that has stopped from the registry."""

    def ends_program(self, error: BaseException) -> bool:
        """Whether an error raised by a handler should stop the program; otherwise it is a bug of that actor."""

    def end(self, error: BaseException) -> None:
        """Tell all actors to stop, without waiting, after a handler raised KeyboardInterrupt or SystemExit."""


class Supervision(NamedTuple):
    """Restart policy of an actor.

    An exception in ``domain_errors`` is a reply and not a bug. After any other exception a new instance replaces the
    old one, behind the same reference and with the same waiting messages. After more than ``restarts`` bugs within
    ``within_ms`` the actor has failed: ``ask`` raises ``ActorFailed``, and its parent gets a ``ChildFailed``.
    """

    restarts: int = 3
    within_ms: int = 10_000
    domain_errors: tuple[type[Exception], ...] = ()


class Overflow(Enum):
    """How a mailbox treats messages above its actor's ``high_water``."""

    REFUSE = "refuse"  # ``tell`` raises MailboxFull, ``ask`` gets it as the reply; stop messages are always accepted
    PAUSE = "pause"  # messages are accepted, but the sender should wait: see ActorRef.room()


class ActorFailed(CallboardError, pykka.ActorDeadError):
    """The actor had too many bugs in too short a time. The text names the last one."""


class MailboxFull(CallboardError, RuntimeError):
    """The actor has more unread messages than its ``high_water`` allows. Slow down, or ``await ref.room()``."""


class UnhandledMessage(CallboardError, TypeError):
    """The actor has no handler for the message. This is an error of the sender, and the actor is not affected."""

    def __init__(self, receiver: ActorRef, message: Any) -> None:
        names = sorted(receiver.actor_class.handlers.values())
        super().__init__(f"{receiver} has no handler for {type(message).__name__}; its handlers: {names}")
        self.receiver = receiver


class ChildFailed(NamedTuple):
    """Sent to the parent of an actor that failed, if the parent's ``handlers`` include this message."""

    child: ActorRef
    error: Exception


class Echo(NamedTuple):
    """Any actor answers this with None, after all messages that were in its mailbox before."""


class ChildPassivated(NamedTuple):
    """Sent to the parent of a passivated actor, if its ``handlers`` include this. It may ``retire`` the child."""

    child: ActorRef


_current_dispatcher: ContextVar[Dispatcher | None] = ContextVar("callboard_dispatcher", default=None)


def set_current_dispatcher(dispatcher: Dispatcher) -> None:
    """Run actors that are made later in this context on ``dispatcher``."""
    _current_dispatcher.set(dispatcher)


@contextmanager
def running_on(dispatcher: Dispatcher) -> Iterator[None]:
    """Run actors that are made inside of this block on ``dispatcher``."""
    token = _current_dispatcher.set(dispatcher)
    try:
        yield
    finally:
        _current_dispatcher.reset(token)


def current_dispatcher() -> Dispatcher:
    """The dispatcher of this context. Raises RuntimeError if there is none."""
    dispatcher = _current_dispatcher.get()
    if dispatcher is None:
        raise RuntimeError(
            "no system is current here: start actors with System.spawn(TheActor, ...), from inside another actor, "
            "or in a `with running_on(system.dispatcher):` block"
        )
    return dispatcher


class ActorRef(pykka.ActorRef[Any]):
    """Pykka's reference, with futures that are bound to the actor's dispatcher."""

    actor_inbox: Inbox
    actor_stopped: StopFlag  # type: ignore[assignment]

    def __init__(self, actor: Actor) -> None:
        self.actor_class = actor.__class__
        self.actor_inbox = actor.actor_inbox
        self.actor_stopped = actor.actor_stopped

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        return self.actor_inbox.urn

    @property
    def _actor_weakref(self) -> Callable[[], Actor | None]:  # type: ignore[override]
        """Used by proxies. The mailbox has the instance, so a weak reference would only cost 72 bytes."""
        return lambda: self.actor_inbox.actor

    def tell(self, message: Any) -> None:
        """As in pykka. Raises ActorDeadError if the actor has stopped, MailboxFull if its mailbox is full."""
        if self.actor_stopped._is_set:
            raise self.actor_inbox.dead_error() from None
        self.actor_inbox.put(Envelope(message))

    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """As in pykka, but every wait has a timeout, and a wait that would block the replying thread is refused.

        With ``block=False`` the future can be awaited on a loop; ``timeout`` (seconds) also limits that wait. None
        means the system's ``ask_timeout_s``. Raises pykka.Timeout. Raises WouldDeadlock, before anything is sent, for a
        blocking wait on the actors' own thread.
        """
        inbox = self.actor_inbox
        dispatcher = inbox.dispatcher
        if block:
            dispatcher.check_blocking_wait(inbox)
        future = dispatcher.new_reply()
        future.receiver = inbox
        if timeout is not None:
            future.timeout_s = timeout
        inbox.put(Envelope(message, future))  # type: ignore[arg-type]
        if not block:
            return future
        try:
            return future.get(timeout=timeout)
        finally:
            del future  # avoids a reference cycle: an error references this frame

    def post(self, message: Any, reply_to: ReplyTo) -> None:
        """Send a message whose reply goes to ``reply_to``. A dead actor replies with pykka's ``ActorDeadError``."""
        self.actor_inbox.put(Envelope(message, reply_to))  # type: ignore[arg-type]

    def stop(self, *, block: bool = True, timeout: float | None = None) -> Any:
        """As in pykka: True, or False if it had stopped already. ``await ref.stop(block=False)`` on a loop."""
        dispatcher = self.actor_inbox.dispatcher
        if self.actor_stopped.is_set():
            stopped = dispatcher.new_reply()
            stopped.set(False)
        else:
            if block:
                dispatcher.check_blocking_wait(self.actor_inbox)
            stopped = self.ask(messages._ActorStop(), block=False, timeout=timeout).converted(_has_stopped)
        return stopped.get() if block else stopped

    def proxy(self) -> Any:
        """As in pykka. A proxy needs the instance, so a passivated actor is activated first, with a blocking wait."""
        if self._actor_weakref() is None and self.is_alive():
            self.ask(messages.ProxyGetAttr(attr_path=("actor_urn",)))
        return super().proxy()

    def room(self) -> FutureReply:
        """A future that completes when the mailbox has room: at once below ``high_water``, else when it is half empty.

        For producers that may be faster than the actor: ``await ref.room()``, then tell.
        """
        return self.actor_inbox.room()

    def retire(self) -> Any:
        """Remove a passivated actor permanently. Returns the state that it saved, or None if it is active.

        Call it in a handler of the parent: elsewhere a message that is sent at the same time could be lost.
        """
        return self.actor_inbox.retire()


def _has_stopped(error: BaseException | None) -> bool:
    """The result of a stop. That the actor had stopped already is not an error."""
    if error is not None and not isinstance(error, pykka.ActorDeadError):
        raise error
    return error is None


def _not_used(*_args: Any) -> Any:
    raise NotImplementedError


class Actor(pykka.Actor):
    """Base class of actors. A subclass maps classes of messages to names of methods in ``handlers``.

    Without ``handlers`` it works as in pykka: implement ``on_receive``, or call methods through a proxy.
    """

    actor_inbox: Inbox
    actor_stopped: StopFlag  # type: ignore[assignment]
    _actor_ref: ActorRef

    reply_to: ReplyTo | None = None
    """Destination of the reply to the current message; None for a tell."""

    handlers: ClassVar[Mapping[type, str]] = {}
    _methods: ClassVar[dict[type, Callable[..., Any]]] = {}

    supervision: ClassVar[Supervision | None] = None
    """None: pykka's rule. An error becomes the reply to an ``ask``; an error in a ``tell`` stops the actor."""

    survives_bugs: ClassVar[bool] = False
    """Whether the same instance continues after any error; then ``supervision`` has no effect."""

    placeholder: ClassVar[type[Actor] | None] = None
    """Class of the actor that replaces this one after too many bugs; it gets the result of ``save_state``. When the
    placeholder passivates itself, the next message activates the original class. None: the reference is dead, and its
    error names the reason."""

    immediate_handlers: ClassVar[Mapping[type, Callable[[Any, Any], Any]]] = {}
    """By class of message, functions of an actor and a message that it may handle without its mailbox while it is idle
    (see ``Inbox.answer_at_once``). They return the reply, neither DEFERRED nor steps. One that returns NOT_HANDLED has
    changed nothing."""

    may_pause: ClassVar[bool] = False
    """Whether a handler that returns a generator works in steps (see ``actors.steps``): its result is the reply.
    Between the slices of such a turn other actors run, and the mailbox of this one waits."""

    may_passivate: ClassVar[bool] = False
    """Whether ``passivate`` is allowed. If so, the arguments of the constructor are stored."""

    high_water: ClassVar[int] = sys.maxsize
    """Limit of unread messages; ``overflow`` defines what happens above it."""

    overflow: ClassVar[Overflow] = Overflow.REFUSE

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._methods = {message: _handler_method(cls, message, name) for message, name in cls.handlers.items()}

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        """Make an instance with an inbox and a reference of its own, before its constructor runs."""
        actor = super().__new__(cls)
        actor.actor_inbox = inbox = current_dispatcher().new_mailbox()
        actor.actor_stopped = inbox.stopped
        inbox.actor = actor
        actor._actor_ref = ActorRef(actor)
        return actor

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        """``__new__`` has made the inbox, because a new instance behind an existing reference keeps that inbox."""

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        return self.actor_inbox.urn

    @property
    def actor_ref(self) -> ActorRef:
        return self._actor_ref

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> Any:
        """Make the actor, register it and hand it to the dispatcher that is current (see ``System.spawn``)."""
        return _start_actor(cls, args, kwargs, None)

    def spawn(self, actor_class: type[Actor], *args: Any, **kwargs: Any) -> ActorRef:
        """Start a child on the same dispatcher. This actor gets ``ChildFailed`` if the child fails."""
        with running_on(self.actor_inbox.dispatcher):
            return _start_actor(actor_class, args, kwargs, self._actor_ref)

    def passivate(self) -> None:
        """Drop this instance from memory when its turn is over, if the mailbox is empty. The next message activates it.

        The result of ``save_state`` is kept. The next instance is made with the original constructor arguments, and
        gets that result in ``restore_state``, before ``on_start``. Senders do not notice.
        """
        if not self.may_passivate:
            raise RuntimeError(f"{type(self).__name__} cannot be passivated: set may_passivate = True in the class")
        self.actor_inbox.passivate_after_turn()

    def save_state(self, error: Exception | None) -> Any:
        """Called before the instance is dropped: by ``passivate``, or after a bug (``error``). Returns what to keep."""

    def restore_state(self, saved: Any) -> None:
        """Called on a new instance with the result of its predecessor's ``save_state``."""

    def tell_self_after_turn(self, message: Any) -> None:
        """Send a message to this actor that is handled after all other ready actors and sockets had a turn."""
        self.actor_inbox.dispatcher.tell_after_turn(self._actor_ref, message)

    def on_receive(self, message: Any) -> Any:
        """Pass a message to its handler. A turn calls this only for a message without one."""
        if not self.handlers:
            return super().on_receive(message)
        method = self._methods.get(type(message))
        if method is None:
            raise UnhandledMessage(self._actor_ref, message)
        return method(self, message)

    # Pykka's extension points. The inbox is made in ``__new__``, futures by the dispatcher, and no actor has a loop.
    _create_actor_inbox = _create_future = staticmethod(_not_used)
    _start_actor_loop = _not_used


def _handler_method(actor_class: type[Actor], message: type, name: str) -> Callable[..., Any]:
    """The method that handles a class of messages. Raises TypeError if it cannot be a handler."""
    row = f"{actor_class.__name__}.handlers has the method {name!r} for {getattr(message, '__name__', message)}"
    method: Callable[..., Any] | None = getattr(actor_class, name, None)
    if hasattr(Actor, name):
        raise TypeError(f"{row}, and {name!r} is an attribute of Actor itself: choose another name")
    if not callable(method):
        raise TypeError(f"{row}, and the class has no such method")
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise TypeError(
            f"{row}, which is `async def`: a handler is a plain method. Start a task in it, return DEFERRED, and reply "
            "from the task through the stored `self.reply_to`"
        )
    return method


class ResilientActor(Actor):
    """For singletons that all other actors depend on: after a bug it loses only the current message."""

    survives_bugs = True


def _start_actor(
    actor_class: type[Actor], args: tuple[Any, ...], kwargs: dict[str, Any], parent: ActorRef | None
) -> ActorRef:
    actor = actor_class(*args, **kwargs)
    inbox = actor.actor_inbox
    if parent is not None or actor_class.may_passivate or actor_class.supervision is not None:
        inbox.remember_constructor(args, kwargs, parent)
    inbox.dispatcher.register(actor._actor_ref)
    log.debug("Starting %s", actor)
    inbox.bind(actor)
    return actor._actor_ref


def replace_instance(actor_class: type[Actor], ref: ActorRef, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Actor:
    """Make a new instance behind an existing reference. Raises what its constructor raises."""
    actor = object.__new__(actor_class)
    actor.actor_inbox = ref.actor_inbox
    actor.actor_stopped = ref.actor_stopped
    actor._actor_ref = ref
    ref.actor_inbox.actor = actor
    actor.__init__(*args, **kwargs)  # type: ignore[misc]
    return actor


def requeue_first(inbox: Inbox, requests: Sequence[tuple[Any, ReplyTo | None]]) -> None:
    """Put requests at the front of an inbox, in their order.

    For requests that an actor has held back: later messages must not overtake them.
    """
    inbox.queue.extendleft(Envelope(*request) for request in reversed(requests))
