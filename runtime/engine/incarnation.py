"""Incarnations of an actor: one instance after the other behind the same reference.

An instance leaves memory because of a bug (restart) or because it is idle (passivation). The snapshot that it leaves is
kept here, and the next instance is created by the constructor with the same arguments. After too many bugs the actor
has failed, and every ask of its reference raises the reason.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Protocol

import pykka

from ...actors.base import (
    Actor,
    ActorFailed,
    ActorRef,
    ChildFailed,
    ChildPassivated,
    Supervision,
    replace_instance,
)

if TYPE_CHECKING:
    from .counters import EngineCounters

log = logging.getLogger("callboard.runtime")


class RestartCounter(Protocol):
    """The part of a dispatcher that a restart uses: the time, and the counter of restarts."""

    counters: EngineCounters

    def monotonic_ms(self) -> int: ...


class ActorHolder(Protocol):
    """The part of a mailbox that ``Incarnations`` uses."""

    actor: Actor | None

    @property
    def dispatcher(self) -> RestartCounter: ...

    def mark_stopped(self, ref: ActorRef) -> None:
        """The actor will handle no more messages."""


class Incarnations:
    """The incarnations of one actor. Only for actors that are supervised, may be passivated or have a parent."""

    __slots__ = (
        *("_args", "_bugs_ms", "_kwargs", "_newly_passivated", "_parent", "_snapshot", "bug", "failure"),
        "passivated_ref",
    )

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], parent: ActorRef | None) -> None:
        self.bug: Exception | None = None  # a restart is still to come
        self.failure: ActorFailed | None = None
        self.passivated_ref: ActorRef | None = None  # set only while there is no instance: it is a reference cycle
        self._newly_passivated: ActorRef | None = None
        self._args = args
        self._kwargs = kwargs
        self._parent = parent
        self._snapshot: Any = None
        self._bugs_ms: tuple[int, ...] = ()

    def restart(self, mailbox: ActorHolder, actor: Actor) -> Actor | None:
        """Replace an instance after a bug. None if there were too many bugs."""
        bug, self.bug = self.bug, None
        assert bug is not None
        log.error("%s restarts after a bug", actor, exc_info=bug)
        self._snapshot = _snapshot_after_bug(actor, bug)
        return self._reincarnate(mailbox, actor._actor_ref, bug, actor)

    def passivate(self, mailbox: ActorHolder, actor: Actor) -> None:
        """Drop the instance and keep its reference. An error in ``save_state`` counts as a bug."""
        try:
            self._snapshot = actor.save_state(None)
        except Exception as error:
            log.exception("%s could not be passivated", actor)
            self._snapshot = None
            mailbox.actor = self._reincarnate(mailbox, actor._actor_ref, error, actor)
            return
        self.passivated_ref = self._newly_passivated = actor._actor_ref
        mailbox.actor = None

    def take_newly_passivated(self) -> ActorRef | None:
        """The actor if it was passivated in this turn. Returns it once."""
        passivated_ref, self._newly_passivated = self._newly_passivated, None
        return passivated_ref

    def notify_parent_of_passivation(self, passivated_ref: ActorRef) -> None:
        self._tell_parent(ChildPassivated, passivated_ref)

    def activate(self, mailbox: ActorHolder) -> Actor | None:
        """A new instance of a passivated actor. None if there were too many bugs."""
        ref, self.passivated_ref = self.passivated_ref, None
        return None if ref is None else self._reincarnate(mailbox, ref, None, None)

    def retire(self) -> Any:
        """Forget a passivated actor and return its snapshot."""
        self.passivated_ref = None
        return self._snapshot

    def _reincarnate(
        self, mailbox: ActorHolder, ref: ActorRef, bug: Exception | None, previous: Actor | None
    ) -> Actor | None:
        """Try until there is a new instance or the restart limit is reached. Bugs of these attempts count too."""
        while True:
            if bug is not None and self._exceeds_restart_limit(mailbox, ref):
                placeholder = self._create_placeholder(ref, bug)
                if placeholder is None:
                    self._fail(mailbox, ref, bug, previous)
                return placeholder
            created = self._create_instance(ref.actor_class, ref)
            if not isinstance(created, Exception):
                self._snapshot = None
                return created
            log.error("%s could not be restored", ref, exc_info=created)
            bug = created.with_traceback(None)  # its frames refer to the error: a cycle

    def _create_instance(self, actor_class: type[Actor], ref: ActorRef) -> Actor | Exception:
        """A new instance behind the reference, or the error that its constructor or hooks raised."""
        try:
            actor = replace_instance(actor_class, ref, self._args, self._kwargs)
            actor.restore_state(self._snapshot)
            actor.on_start()
        except Exception as error:
            return error
        return actor

    def _exceeds_restart_limit(self, mailbox: ActorHolder, ref: ActorRef) -> bool:
        """Count a bug. True if the actor may not be restarted after it."""
        rule: Supervision | None = ref.actor_class.supervision
        if rule is None:
            return True
        now_ms = mailbox.dispatcher.monotonic_ms()
        self._bugs_ms = (*(bug_ms for bug_ms in self._bugs_ms if bug_ms > now_ms - rule.within_ms), now_ms)
        if len(self._bugs_ms) > rule.restarts:
            return True
        mailbox.dispatcher.counters.restarts += 1
        return False

    def _create_placeholder(self, ref: ActorRef, bug: Exception) -> Actor | None:
        """The actor that answers instead of the failed one, if its class names one."""
        placeholder_class = ref.actor_class.placeholder
        if placeholder_class is None:
            return None
        created = self._create_instance(placeholder_class, ref)
        if isinstance(created, Exception):
            log.error("the placeholder of %s could not be created", ref, exc_info=created)
            return None
        self._bugs_ms = ()
        self._tell_parent(ChildFailed, ref, bug)
        return created

    def _fail(self, mailbox: ActorHolder, ref: ActorRef, bug: Exception, previous: Actor | None) -> None:
        count = len(self._bugs_ms)  # 0 for an actor without supervision
        bugs = f"{count} bugs in a row; the last was {bug!r}" if count > 1 else f"one bug was too much: {bug!r}"
        self.failure = ActorFailed(f"{ref} has failed: {bugs}")
        log.error("%s", self.failure)
        mailbox.mark_stopped(ref)
        if previous is not None:
            try:
                previous.on_failure(type(bug), bug, bug.__traceback__)
            except Exception:
                log.exception("on_failure of %s has raised an error too", previous)
        self._tell_parent(ChildFailed, ref, bug)

    def _tell_parent(self, message: type, *values: Any) -> None:
        parent = self._parent
        if parent is not None and message in parent.actor_class.handlers:
            try:
                parent.tell(message(*values))
            except pykka.ActorDeadError:
                self._parent = None  # it has stopped


def _snapshot_after_bug(actor: Actor, bug: Exception) -> Any:
    try:
        return actor.save_state(bug)
    except Exception:
        log.error("%s could not leave a snapshot for its next instance", actor, exc_info=sys.exc_info())
        return None


class MayBePassivated(Protocol):
    """The part of a mailbox that ``is_passivated`` reads."""

    @property
    def incarnations(self) -> Incarnations | None: ...


def is_passivated(mailbox: MayBePassivated) -> bool:
    """Whether the actor's instance was dropped from memory, until its next message."""
    return mailbox.incarnations is not None and mailbox.incarnations.passivated_ref is not None
