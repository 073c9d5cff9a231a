"""Life: what of an actor outlives its instance. Restarts, sleep and failure are one thing: leave memory, come back.

An instance leaves because of a bug or to sleep; what it hands over stays here, and the next is made by the constructor
with the same arguments. After too many bugs nobody comes back, and the reference says why.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Protocol

import pykka

from ...actors.base import Actor, ActorFailed, ActorRef, ChildFailed, ChildPassivated, Supervision

log = logging.getLogger("callboard.runtime")


class RestartCounter(Protocol):
    """What a restart needs of the dispatcher: the time, and a place to count it."""

    restarts: int

    def monotonic_ms(self) -> int: ...


class ActorHolder(Protocol):
    """What a life needs of the mailbox of its actor."""

    actor: Actor | None

    @property
    def dispatcher(self) -> RestartCounter: ...

    def mark_stopped(self, ref: ActorRef) -> None:
        """The actor will handle no more messages."""


class Life:
    """Of one reference. Made for actors that are supervised, sleep or have a parent; others need none."""

    __slots__ = ("_args", "_asleep_now", "_bugs_ms", "_kept", "_kwargs", "_parent", "bug", "failure", "sleeper")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], parent: ActorRef | None) -> None:
        self.bug: Exception | None = None  # not attended to yet
        self.failure: ActorFailed | None = None
        self.sleeper: ActorRef | None = None  # set while no instance is there; a cycle, so no longer than that
        self._asleep_now: ActorRef | None = None
        self._args = args
        self._kwargs = kwargs
        self._parent = parent
        self._kept: Any = None
        self._bugs_ms: tuple[int, ...] = ()

    def restart(self, mailbox: ActorHolder, actor: Actor) -> Actor | None:
        """After a bug: another instance in the place of this one; None if there were too many."""
        bug, self.bug = self.bug, None
        assert bug is not None
        log.error("%s begins anew after a bug", actor, exc_info=bug)
        self._kept = _leave(actor, bug)
        return self._come_back(mailbox, actor._actor_ref, bug, actor)

    def sleep(self, mailbox: ActorHolder, actor: Actor) -> None:
        """The instance leaves; its reference stays. A bug on the way out counts as any other."""
        try:
            self._kept = actor.save_state(None)
        except Exception as error:
            log.exception("%s could not fall asleep", actor)
            self._kept = None
            mailbox.actor = self._come_back(mailbox, actor._actor_ref, error, actor)
            return
        self.sleeper = self._asleep_now = actor._actor_ref
        mailbox.actor = None

    def asleep_now(self) -> ActorRef | None:
        """Who has fallen asleep in this turn; asked once, at its end."""
        sleeper, self._asleep_now = self._asleep_now, None
        return sleeper

    def tell_of_sleep(self, sleeper: ActorRef) -> None:
        self._tell_parent(ChildPassivated, sleeper)

    def wake(self, mailbox: ActorHolder) -> Actor | None:
        """There is a message for somebody who sleeps; None if he cannot come back."""
        ref, self.sleeper = self.sleeper, None
        return None if ref is None else self._come_back(mailbox, ref, None, None)

    def retire(self) -> Any:
        """The sleeper will not be woken again; returns what it left."""
        self.sleeper = None
        return self._kept

    def _come_back(
        self, mailbox: ActorHolder, ref: ActorRef, bug: Exception | None, last: Actor | None
    ) -> Actor | None:
        """Try until an instance stands or there were too many bugs; each counts, those of coming back too."""
        while True:
            if bug is not None and self._is_too_much(mailbox, ref):
                placeholder = self._placeholder(ref, bug)
                if placeholder is None:
                    self._fail(mailbox, ref, bug, last)
                return placeholder
            made = self._instance(ref.actor_class, ref)
            if not isinstance(made, Exception):
                self._kept = None
                return made
            log.error("%s could not come back", ref, exc_info=made)
            bug = made.with_traceback(None)  # it would keep the frames of all who try, which keep it

    def _instance(self, actor_class: type[Actor], ref: ActorRef) -> Actor | Exception:
        """A new instance behind the reference, or the bug that kept it from standing."""
        try:
            actor: Actor = actor_class._replace_instance(ref, self._args, self._kwargs)
            actor.restore_state(self._kept)
            actor.on_start()
        except Exception as error:
            return error
        return actor

    def _is_too_much(self, mailbox: ActorHolder, ref: ActorRef) -> bool:
        rule: Supervision | None = ref.actor_class.supervision
        if rule is None:
            return True
        now_ms = mailbox.dispatcher.monotonic_ms()
        self._bugs_ms = (*(bug_ms for bug_ms in self._bugs_ms if bug_ms > now_ms - rule.within_ms), now_ms)
        if len(self._bugs_ms) > rule.restarts:
            return True
        mailbox.dispatcher.restarts += 1
        return False

    def _placeholder(self, ref: ActorRef, bug: Exception) -> Actor | None:
        """Somebody who answers in the place of the actor that has failed, if its class names one."""
        placeholder = ref.actor_class.placeholder
        if placeholder is None:
            return None
        made = self._instance(placeholder, ref)
        if isinstance(made, Exception):
            log.error("nobody could stand in for %s", ref, exc_info=made)
            return None
        self._bugs_ms = ()
        self._tell_parent(ChildFailed, ref, bug)
        return made

    def _fail(self, mailbox: ActorHolder, ref: ActorRef, bug: Exception, last: Actor | None) -> None:
        count = len(self._bugs_ms)  # of an actor without a rule none are counted
        bugs = f"{count} bugs in a row; the last was {bug!r}" if count > 1 else f"one bug was too much: {bug!r}"
        self.failure = ActorFailed(f"{ref} has failed: {bugs}")
        log.error("%s", self.failure)
        mailbox.mark_stopped(ref)
        if last is not None:
            try:
                last.on_failure(type(bug), bug, bug.__traceback__)
            except Exception:
                log.exception("on_failure of %s has a bug too", last)
        self._tell_parent(ChildFailed, ref, bug)

    def _tell_parent(self, message: type, *values: Any) -> None:
        parent = self._parent
        if parent is not None and message in parent.actor_class.handlers:
            try:
                parent.tell(message(*values))
            except pykka.ActorDeadError:
                self._parent = None  # it is gone: nobody is left to hear


def _leave(actor: Actor, bug: Exception) -> Any:
    try:
        return actor.save_state(bug)
    except Exception:
        log.error("%s could not hand anything over to the instance after it", actor, exc_info=sys.exc_info())
        return None
