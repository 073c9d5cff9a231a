"""Registry: the running actors of one system, with the methods of ``pykka.ActorRegistry``, which is process-wide.

Each system has its own, so that ``pykka.ActorRegistry.stop_all()`` in the host program does not stop it, and several
coordinators in one process are independent. It is a dict where pykka has a list: stopping a hundred thousand actors
takes less than a second instead of a hundred.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import Any, cast

import pykka

from ...actors.base import ActorRef
from .reply import Reply, ReplyHost

log = logging.getLogger("pykka")

STOP_ROUNDS = 10
"""How often a stop of all actors looks for newly started ones. The limit ends it even if actors start for ever."""


class Registry:
    """All running actors of a system, in the order in which they were started."""

    def __init__(self) -> None:
        self._refs: dict[ActorRef, None] = {}
        self._lock = threading.Lock()  # a dict must not change while it is copied

    def __len__(self) -> int:
        return len(self._refs)

    def register(self, ref: ActorRef) -> None:
        """Called by ``start`` and ``spawn``."""
        with self._lock:
            self._refs[ref] = None
        log.debug("Registered %s", _LazyName(ref))

    def unregister(self, ref: ActorRef) -> None:
        """Called when the actor stops. No error if it is not registered."""
        with self._lock:
            was_registered = ref in self._refs
            self._refs.pop(ref, None)
        log.debug("Unregistered %s%s", _LazyName(ref), "" if was_registered else " (not found in registry)")

    def get_all(self) -> list[Any]:
        with self._lock:
            return list(self._refs)

    def engine_refs(self) -> list[ActorRef]:
        """References to this engine's actors, without pykka's own actors that a program may have registered."""
        return [ref for ref in self.get_all() if isinstance(ref, ActorRef)]

    def get_by_class(self, actor_class: type[pykka.Actor]) -> list[Any]:
        """Actors of this class or of a subclass."""
        return [ref for ref in self.get_all() if issubclass(ref.actor_class, actor_class)]

    def get_by_class_name(self, actor_class_name: str) -> list[Any]:
        return [ref for ref in self.get_all() if ref.actor_class.__name__ == actor_class_name]

    def get_by_urn(self, actor_urn: str) -> Any:
        """The actor with this URN, or None."""
        return next((ref for ref in self.get_all() if ref.actor_urn == actor_urn), None)

    def broadcast(self, message: Any, target_class: str | type[pykka.Actor] | None = None) -> None:
        """Tell all actors, or those of a class or of a class name."""
        if isinstance(target_class, str):
            targets = self.get_by_class_name(target_class)
        elif target_class is not None:
            targets = self.get_by_class(target_class)
        else:
            targets = self.get_all()
        for ref in targets:
            ref.tell(message)

    def stop_all(self, *, block: bool = True, timeout: float | None = None) -> list[Any]:
        """Stop all actors, youngest first. Each handles the messages that were sent to it before.

        With ``block`` (not on a thread that runs actors: ``await stop_in_order()`` there) each has stopped before the
        next is stopped, and the result says for each whether it was running. ``timeout`` is for all together, in
        seconds; None means ``ask_timeout_s`` for each, however many there are. Raises pykka.Timeout. Actors that are
        started meanwhile are stopped last. Without ``block`` all actors that run now get the stop message at once, and
        the result is their futures.
        """
        refs, engine_refs = self.get_all(), self.engine_refs()
        if not block:
            return [ref.stop(block=False) for ref in reversed(refs)]
        if len(engine_refs) < len(refs):  # some are pykka's own actors
            results = [ref.stop(block=True, timeout=timeout) for ref in reversed(refs)]
            self._unregister_pykka_actors(refs)
            return results + (self._stop_and_wait(timeout) if self.engine_refs() else [])
        if engine_refs:
            engine_refs[0].actor_inbox.dispatcher.check_blocking_wait()
        return self._stop_and_wait(timeout)

    def _stop_and_wait(self, timeout: float | None) -> list[Any]:
        results: list[Any] = self.stop_in_order().get(timeout=timeout)
        return results

    def _unregister_pykka_actors(self, refs: Iterable[Any]) -> None:
        """When pykka's own actors stop they unregister from pykka's registry only."""
        for ref in refs:
            if not isinstance(ref, ActorRef):
                self.unregister(ref)

    def stop_in_order(self) -> Reply:
        """Start to stop all actors one after the other, youngest first. The future is settled when the oldest stopped.

        Actors that are started meanwhile are stopped last. Pykka's own actors get the stop message without a wait.
        """
        engine_refs = self.engine_refs()
        host = cast("ReplyHost | None", engine_refs[0].actor_inbox.dispatcher if engine_refs else None)
        return _SequentialStop(self, StopReply(host)).begin()


class StopReply(Reply):
    """The future of a stop of all actors. A wait without its own timeout ends if no actor stops for ``timeout_s``.

    So the time to stop them may grow with their number, and a slow machine needs no longer timeout.
    """

    def __init__(self, dispatcher: ReplyHost | None = None) -> None:
        super().__init__(dispatcher)
        self.results: list[bool] = []
        """For each actor that has stopped, whether it was running."""

    def get(self, *, timeout: float | None = None) -> Any:
        if timeout is not None:
            return super().get(timeout=timeout)
        while True:
            stopped_count = len(self.results)
            try:
                return super().get()
            except pykka.Timeout:
                if not self._has_progressed(stopped_count):
                    raise

    def _wait_on_loop(self) -> Generator[Any, None, None]:
        while not self.done():
            stopped_count = len(self.results)
            try:
                yield from super()._wait_on_loop()
            except pykka.Timeout:
                if not self._has_progressed(stopped_count):
                    raise

    def _has_progressed(self, stopped_count: int) -> bool:
        """Whether an actor has stopped since there were ``stopped_count``; then the wait has not timed out."""
        progressed = len(self.results) > stopped_count
        self._has_timed_out = not progressed
        return progressed


class _SequentialStop:
    """A chain of stops. Each answer sends the next stop, on the answering thread, without a hand-over to the caller."""

    def __init__(self, registry: Registry, done: StopReply) -> None:
        self._registry = registry
        self._refs: Iterator[Any] = iter(())
        self._rounds = 0
        self._done = done
        self._results = done.results

    def begin(self) -> Reply:
        self._stop_next()
        return self._done

    def _stop_next(self) -> None:
        for ref in self._remaining():
            reply = self._stop(ref)
            if not reply.done():
                reply.on_done(self._add_result)
                return
            self._results.append(reply.get())
        self._done.set(self._results)

    def _remaining(self) -> Iterator[Any]:
        """The rest of this round, then the actors that were started meanwhile."""
        yield from self._refs
        while self._rounds < STOP_ROUNDS and (refs := self._registry.get_all()):
            self._rounds += 1
            self._refs = reversed(refs)
            yield from self._refs

    def _stop(self, ref: Any) -> Reply:
        if isinstance(ref, ActorRef):
            stopping: Reply = ref.stop(block=False)
            return stopping
        result = Reply()
        result.set(ref.is_alive())
        ref.stop(block=False)  # pykka's actor runs on its own thread, and its future has no callbacks
        self._registry.unregister(ref)
        return result

    def _add_result(self, reply: Reply) -> None:
        self._results.append(reply.get())
        self._stop_next()


class _LazyName:
    """The name of an actor, formatted only if the log line is written: it contains the URN, which is made on demand."""

    def __init__(self, ref: ActorRef) -> None:
        self._ref = ref

    def __str__(self) -> str:
        return str(self._ref)
