"""Actor: a pykka.Actor that shares a worker with many others.

Pykka leaves three seams for a new kind of actor: the inbox, the future and the start of the loop. All three come from a
dispatcher here, so ``ActorRef``, ``tell``, ``ask``, ``proxy`` and ``stop`` are pykka's own, and a hundred thousand
actors fit on one thread. Two things are added:

- ``ActorRef.post(message, reply_to)``: a tell whose answer goes to a place that the sender supplies. The front door
  uses it: the place that a connection keeps for a response costs less than a future, and keeps the order.
- a handler may return ``DEFERRED`` and answer later through ``self.reply_to``, which it keeps. That is how a JoinGroup
  waits for the others.

``pykka.Actor.__init__`` makes a UUID and a ``threading.Event`` for each actor: 5.5 us and 2.4 kB. Ours makes neither.
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol

import pykka
from pykka._envelope import Envelope

if TYPE_CHECKING:
    from .ports import ReplyTo

log = logging.getLogger("callboard.actors")

DEFERRED: Final = object()
"""Returned by a handler that has kept ``self.reply_to`` and will answer later."""


class Dispatcher(Protocol):
    """What runs actors: ``runtime/dispatcher.py`` has the real ones."""

    def new_mailbox(self) -> Any: ...

    def new_reply(self) -> Any:
        """A future whose answer an actor of this dispatcher will set."""

    def after_turn(self, ref: pykka.ActorRef[Any], message: Any) -> None:
        """Tell ``ref`` when all actors and sockets that are ready now have had their turn."""

    def forget(self, ref: pykka.ActorRef[Any]) -> None:
        """The actor has stopped; take it off the list of the living."""


_current_dispatcher: ContextVar[Dispatcher] = ContextVar("callboard_dispatcher")
_serials = itertools.count(1)


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


class Flag:
    """What pykka needs of ``threading.Event``, in 40 bytes instead of 1 kB."""

    __slots__ = ("_is_set",)

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True


class ActorRef(pykka.ActorRef[Any]):
    """Pykka's reference, whose futures know who will answer them."""

    actor_inbox: Any

    def tell(self, message: Any) -> None:
        """As pykka's: raises ActorDeadError if the actor has stopped."""
        if self.actor_stopped._is_set:  # type: ignore[attr-defined]
            raise pykka.ActorDeadError(f"{self} not found")
        self.actor_inbox.put(Envelope(message))

    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """As pykka's. Blocking on the thread that would have to answer raises instead of hanging."""
        future = self.actor_inbox.dispatcher.new_reply()
        self.actor_inbox.put(Envelope(message, reply_to=future))
        return future.get(timeout=timeout) if block else future

    def post(self, message: Any, reply_to: ReplyTo) -> None:
        """Tell, with a place for the answer. A dead actor's answer is pykka's ``ActorDeadError``."""
        self.actor_inbox.put(Envelope(message, reply_to))  # type: ignore[arg-type]


class Actor(pykka.Actor):
    """Base of our actors. A subclass says in ``handlers`` which method takes which class of message."""

    actor_inbox: Any
    _actor_ref: ActorRef

    reply_to: ReplyTo | None = None
    """Where the answer to the message in hand goes; None for a tell."""

    handlers: dict[type, str] = {}
    _methods: dict[type, Any] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._methods = {message: getattr(cls, name) for message, name in cls.handlers.items()}

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self.actor_urn = f"urn:callboard:{next(_serials)}"
        self.actor_inbox = self._create_actor_inbox()
        self.actor_stopped = Flag()  # type: ignore[assignment]
        self._actor_ref = ActorRef(self)

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> Any:
        """Make the actor and hand it to the dispatcher that is current (see ``System.spawn``)."""
        actor = cls(*args, **kwargs)
        actor._start_actor_loop()
        return actor._actor_ref

    def tell_me_later(self, message: Any) -> None:
        """A message to oneself that lets everybody else have a turn first, the sockets included."""
        self.actor_inbox.dispatcher.after_turn(self._actor_ref, message)

    def on_receive(self, message: Any) -> Any:
        method = self._methods.get(type(message))
        if method is None:
            raise TypeError(
                f"{self} has no handler for {type(message).__name__}; it takes {sorted(self.handlers.values())}"
            )
        return method(self, message)

    def handle(self, envelope: Envelope[Any]) -> None:
        """One turn of pykka's loop, with its rules: an error goes to who asked; in a tell it stops the actor."""
        self.reply_to = reply_to = envelope.reply_to
        try:
            method = self._methods.get(type(envelope.message))
            answer = method(self, envelope.message) if method else self._handle_receive(envelope.message)
            if reply_to is not None and answer is not DEFERRED:
                reply_to.set(answer)
        except Exception as error:
            self._survive(error, reply_to)

    def _survive(self, error: Exception, reply_to: ReplyTo | None) -> None:
        """A worker runs many actors: whatever happens in one, nothing may get out of its turn."""
        try:
            self._handle_error(error, reply_to)
        except Exception:
            self._handle_failure(*sys.exc_info())

    def _handle_error(self, error: Exception, reply_to: ReplyTo | None) -> None:
        if reply_to is not None:
            log.info("%s answers with an error", self, exc_info=error)
            reply_to.set_exception(sys.exc_info())
            return
        self._handle_failure(*sys.exc_info())
        self.on_failure(*sys.exc_info())

    @staticmethod
    def _create_actor_inbox() -> Any:
        return _current_dispatcher.get().new_mailbox()

    @staticmethod
    def _create_future() -> Any:
        return _current_dispatcher.get().new_reply()

    def _start_actor_loop(self) -> None:
        self.actor_inbox.bind(self)

    def _stop(self) -> None:
        self.actor_inbox.dispatcher.forget(self._actor_ref)
        self.actor_stopped.set()
        try:
            self.on_stop()
        except Exception:
            self._handle_failure(*sys.exc_info())

    def _handle_failure(self, exception_type: Any, exception_value: Any, traceback: Any) -> None:
        log.error("%s has stopped after a bug", self, exc_info=exception_value)
        self.actor_inbox.dispatcher.forget(self._actor_ref)
        self.actor_stopped.set()


class SteadfastActor(Actor):
    """An actor of which there is one and on which all depend: a bug costs the message in hand, not the actor."""

    def _handle_error(self, error: Exception, reply_to: ReplyTo | None) -> None:
        log.error("%s goes on after a bug", self, exc_info=error)
        if reply_to is not None:
            reply_to.set_exception(sys.exc_info())
