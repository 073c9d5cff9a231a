"""A turn of an actor: a message is handled, and the reply or the error is delivered.

Nothing here raises, because a worker runs many actors. The rules for errors are pykka's, unless the actor's class has
``supervision`` or ``survives_bugs``.
"""

from __future__ import annotations

import logging
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple

import pykka
from pykka import messages

from .base import DEFERRED, Actor, Echo, Envelope, UnhandledMessage
from .engine_ports import NOT_HANDLED
from .steps import SLICE_NS, Steps, run_slice

if TYPE_CHECKING:
    from .engine_ports import ReplyTo

log = logging.getLogger("pykka")


class RemainingWork(NamedTuple):
    """The rest of the work on ``message``, which continues in the next turn."""

    message: Any
    steps: Steps[Any]


def run_turn(actor: Actor, envelope: Envelope[Any]) -> None:
    """Handle one message."""
    actor.reply_to = reply_to = envelope.reply_to
    try:
        method = actor._methods.get(type(envelope.message))
        reply = method(actor, envelope.message) if method else _handle_other(actor, envelope.message)
        if type(reply) is GeneratorType and actor.may_pause:
            reply = _run_slice(actor, envelope, reply)
    except Exception as error:
        _handle_exception(actor, error, reply_to)
        del envelope, reply_to  # avoids a reference cycle: the error references this frame
    except BaseException as error:
        _handle_exit(actor, error, reply_to)
        del envelope, reply_to
    else:
        if reply_to is not None and reply is not DEFERRED:
            try:
                reply_to.set(reply)
            except Exception:  # a bug of the sender's ``reply_to``, not of this actor
                log.exception("a reply of %s could not be delivered", actor)


def run_at_once(actor: Actor, message: Any) -> Any:
    """Handle a message by its function in ``Actor.immediate_handlers``. NOT_HANDLED if there is none.

    An error is handled as that of a message whose sender does not wait. The reply is NOT_HANDLED then, too: the message
    may be sent again, to the instance that replaces this one.
    """
    handle = actor.immediate_handlers.get(type(message))
    if handle is None:
        return NOT_HANDLED
    try:
        return handle(actor, message)
    except Exception as error:
        _handle_exception(actor, error, None)
        return NOT_HANDLED


def run_on_start(actor: Actor) -> None:
    """The first turn of an actor, before its first message."""
    try:
        actor.on_start()
    except Exception as error:
        _end_instance(actor, error)


def _handle_other(actor: Actor, message: Any) -> Any:
    """Handle a message of pykka's proxies and stops, or one without a row in ``handlers``."""
    if isinstance(message, messages._ActorStop):
        return _stop(actor)
    if isinstance(message, RemainingWork):
        return message.steps
    if isinstance(message, Echo):
        return None
    return actor._handle_receive(message)


def _run_slice(actor: Actor, envelope: Envelope[Any], steps: Steps[Any]) -> Any:
    """Work for one slice. Returns the reply, or DEFERRED if the work is not finished."""
    clock_ns, message = actor.actor_inbox.dispatcher.clock_ns, envelope.message
    deadline_ns = clock_ns() + SLICE_NS
    try:
        run_slice(steps, clock_ns, deadline_ns)
    except StopIteration as end:
        return end.value
    if not isinstance(message, RemainingWork):
        envelope.message = RemainingWork(message, steps)
    actor.actor_inbox.pause(envelope)
    return DEFERRED


def _handle_exception(actor: Actor, error: Exception, reply_to: ReplyTo | None) -> None:
    try:
        _handle_error(actor, error, reply_to)
    except Exception as another:
        _end_instance(actor, another)


def _handle_error(actor: Actor, error: Exception, reply_to: ReplyTo | None) -> None:
    if isinstance(error, UnhandledMessage) and error.receiver is actor._actor_ref:
        _refuse(actor, error, reply_to)
        return
    supervision = actor.supervision
    if actor.survives_bugs:
        log.error("%s continues after a bug", actor, exc_info=error)
        if reply_to is not None:
            _reply_with_error(actor, error, reply_to)
        return
    is_bug = supervision is not None and not isinstance(error, supervision.domain_errors)
    if is_bug:
        actor.actor_inbox.replace_after_bug(error)
    if reply_to is not None:
        log.info("Exception returned from %s to caller:", actor, exc_info=error)
        _reply_with_error(actor, error, reply_to)
    elif supervision is None:
        _fail(actor, error)
        actor.on_failure(type(error), error, error.__traceback__)
    elif not is_bug:
        log.info("%s refused a message whose sender does not wait:", actor, exc_info=error)


def _refuse(actor: Actor, error: UnhandledMessage, reply_to: ReplyTo | None) -> None:
    """The sender has made an error, and gets it; the actor goes on. Without a receiver the error is logged."""
    if reply_to is None:
        log.error("a message was dropped: %s", error)
    else:
        _reply_with_error(actor, error, reply_to)


def _end_instance(actor: Actor, error: Exception) -> None:
    """A hook of the actor has raised: replace the instance if it is supervised, else the actor stops."""
    if actor.supervision is None:
        _fail(actor, error)
    else:
        actor.actor_inbox.replace_after_bug(error)


def _handle_exit(actor: Actor, error: BaseException, reply_to: ReplyTo | None) -> None:
    """Handle KeyboardInterrupt and SystemExit by pykka's rule: all actors stop. Does not wait for them.

    CancelledError is treated as a bug instead: a handler has read the result of a cancelled task. It is wrapped in a
    RuntimeError, because the task that awaits the reply was not cancelled.

    On an event loop the exception is raised again after the turn.

    The other actors are told to stop before this one stops: code that reacts to this stop may start new actors, and
    those should live.
    """
    if not actor.actor_inbox.dispatcher.ends_program(error):
        bug = RuntimeError(f"a handler of {actor} raised {error!r}")
        bug.__cause__ = error
        _handle_exception(actor, bug, reply_to)
        return
    log.debug("%r in %s. Stopping all actors.", error, actor)
    actor.actor_inbox.dispatcher.end(error)
    try:
        if not actor.actor_stopped.is_set():  # else ``on_stop`` raised the error
            _stop(actor)
    finally:
        if reply_to is not None:
            _reply_with_error(actor, pykka.ActorDeadError(f"{actor} was stopped by {error!r}"), reply_to)


def _reply_with_error(actor: Actor, error: Exception, reply_to: ReplyTo) -> None:
    try:
        reply_to.set_exception((type(error), error, error.__traceback__))
    except Exception:
        log.exception("an error of %s could not be delivered", actor)


def _stop(actor: Actor) -> None:
    actor.actor_inbox.mark_stopped(actor._actor_ref)
    log.debug("Stopped %s", actor)
    try:
        actor.on_stop()
    except Exception as error:
        _fail(actor, error)


def _fail(actor: Actor, error: Exception) -> None:
    log.error("Unhandled exception in %s:", actor, exc_info=error)
    actor.actor_inbox.mark_stopped(actor._actor_ref)
