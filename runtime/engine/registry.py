"""Registry: who lives in one system. The methods are those of ``pykka.ActorRegistry``, which is one for the process.

Each system has its own, so that a host program's ``pykka.ActorRegistry.stop_all()`` does not end it by surprise, and
ten coordinators in one process do not see each other. It is an index where pykka has a list: stopping a hundred
thousand actors takes less than a second instead of a hundred.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pykka

from ...actors.base import ActorRef
from .reply import Reply

log = logging.getLogger("pykka")

STOP_ROUNDS = 10
"""How often a stop of all looks for actors that were born meanwhile. Who has children for ever is not waited for."""


class Registry:
    """All living actors of a system, in the order in which they were started."""

    def __init__(self) -> None:
        self._refs: dict[ActorRef, None] = {}
        self._lock = threading.Lock()  # a dict does not like to be copied while it changes

    def __len__(self) -> int:
        return len(self._refs)

    def register(self, ref: ActorRef) -> None:
        """Done by ``start`` and ``spawn``."""
        with self._lock:
            self._refs[ref] = None
        log.debug("Registered %s", _Lazily(ref))

    def unregister(self, ref: ActorRef) -> None:
        """Done when the actor stops. Somebody who is not here is no error."""
        with self._lock:
            was_here = ref in self._refs
            self._refs.pop(ref, None)
        log.debug("Unregistered %s%s", _Lazily(ref), "" if was_here else " (not found in registry)")

    def get_all(self) -> list[Any]:
        with self._lock:
            return list(self._refs)

    def own(self) -> list[ActorRef]:
        """Without pykka's own actors, which somebody may have registered: they do not live on this dispatcher."""
        return [ref for ref in self.get_all() if isinstance(ref, ActorRef)]

    def get_by_class(self, actor_class: type[pykka.Actor]) -> list[Any]:
        """Those of this class or of one derived from it."""
        return [ref for ref in self.get_all() if issubclass(ref.actor_class, actor_class)]

    def get_by_class_name(self, actor_class_name: str) -> list[Any]:
        return [ref for ref in self.get_all() if ref.actor_class.__name__ == actor_class_name]

    def get_by_urn(self, actor_urn: str) -> Any:
        """The actor with this URN, or None."""
        return next((ref for ref in self.get_all() if ref.actor_urn == actor_urn), None)

    def broadcast(self, message: Any, target_class: str | type[pykka.Actor] | None = None) -> None:
        """Tell all, or all of a class or of a class's name."""
        if isinstance(target_class, str):
            targets = self.get_by_class_name(target_class)
        elif target_class is not None:
            targets = self.get_by_class(target_class)
        else:
            targets = self.get_all()
        for ref in targets:
            ref.tell(message)

    def stop_all(self, *, block: bool = True, timeout: float | None = None) -> list[Any]:
        """Stop all, youngest first; what was sent to an actor before is handled before.

        With ``block`` (not on the actors' own thread: ``await stop_in_order()`` there) each has stopped before the next
        is told to, and the result says of each whether it still lived; ``timeout`` in seconds is for all together.
        Children that are born meanwhile come after them. Without ``block`` all are told at once, those that live now,
        and the result is their futures.
        """
        refs, own = self.get_all(), self.own()
        if not block:
            return [ref.stop(block=False) for ref in reversed(refs)]
        if len(own) < len(refs):  # somebody registered actors that run elsewhere
            results = [ref.stop(block=True, timeout=timeout) for ref in reversed(refs)]
            self._unregister_strangers(refs)
            return results + (self._stop_own(timeout) if self.own() else [])
        if own:
            own[0].actor_inbox.dispatcher.check_blocking_wait()
        return self._stop_own(timeout)

    def _stop_own(self, timeout: float | None) -> list[Any]:
        results: list[Any] = self.stop_in_order().get(timeout=timeout)
        return results

    def _unregister_strangers(self, refs: Iterable[Any]) -> None:
        """They take themselves off pykka's list when they stop, not off this one."""
        for ref in refs:
            if not isinstance(ref, ActorRef):
                self.unregister(ref)

    def stop_in_order(self) -> Reply:
        """Begin to stop all, youngest first and one after the other; the future is settled when the oldest has.

        Children that are born meanwhile come after them. Pykka's own actors are told to stop, and not waited for.
        """
        own = self.own()
        return _InOrder(self, own[0].actor_inbox.dispatcher.new_reply() if own else Reply()).begin()


class _InOrder:
    """A chain of stops. Each answer sends the next, on the thread that answers: no hand-over to the caller between."""

    def __init__(self, registry: Registry, done: Reply) -> None:
        self._registry = registry
        self._refs: Iterator[Any] = iter(())
        self._rounds = 0
        self._done = done
        self._results: list[bool] = []

    def begin(self) -> Reply:
        self._go_on()
        return self._done

    def _go_on(self) -> None:
        for ref in self._left():
            asked = self._stop(ref)
            if not asked.done():
                asked.on_done(self._note_and_go_on)
                return
            self._results.append(asked.get())
        self._done.set(self._results)

    def _left(self) -> Iterator[Any]:
        """What is left of this round, and then whoever was born meanwhile."""
        yield from self._refs
        while self._rounds < STOP_ROUNDS and (refs := self._registry.get_all()):
            self._rounds += 1
            self._refs = reversed(refs)
            yield from self._refs

    def _stop(self, ref: Any) -> Reply:
        if isinstance(ref, ActorRef):
            asked: Reply = ref.stop(block=False)
            return asked
        told = Reply()
        told.set(ref.is_alive())
        ref.stop(block=False)  # on a thread of its own, which says nothing to a callback
        self._registry.unregister(ref)
        return told

    def _note_and_go_on(self, asked: Reply) -> None:
        self._results.append(asked.get())
        self._go_on()


class _Lazily:
    """A reference's name, made only if a log line is really written: the URN of most actors is never asked for."""

    def __init__(self, ref: ActorRef) -> None:
        self._ref = ref

    def __str__(self) -> str:
        return str(self._ref)
