"""WaitingWorkers: which worker threads are blocked in a handler that waits for the answer of another actor.

A wait is refused if it could never end: if no other worker would be left to run actors, or if the actor that is asked
is waiting, directly or through others, for the actor that asks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .reply import Reply, WouldDeadlock

ADVICE = "await the reply, or use on_done()"


class WaitingWorkers:
    """The waits of ``workers`` threads. Actors are identified by their mailboxes."""

    def __init__(self, workers: int) -> None:
        self.running: dict[int, object] = {}
        """What each worker runs, by thread id. Each worker changes its own entry only."""
        self._workers = workers
        self._replies: dict[object, Reply] = {}  # the mailbox that waits -> the reply that it waits for
        self._lock = threading.Lock()

    def check(self, receiver: object | None) -> None:
        """Raises WouldDeadlock if this worker must not wait for an answer of ``receiver``; None if it is not known."""
        with self._lock:
            self._check(self.running[threading.get_ident()], receiver)

    @contextmanager
    def waiting_for(self, reply: Reply) -> Iterator[None]:
        """This worker waits for ``reply`` inside the block. Raises WouldDeadlock as ``check``."""
        asking = self.running[threading.get_ident()]
        with self._lock:
            if not reply.done():  # it may have been settled since the caller looked
                self._check(asking, reply.receiver)
            self._replies[asking] = reply
        try:
            yield
        finally:
            with self._lock:
                del self._replies[asking]

    def _check(self, asking: object, receiver: object | None) -> None:
        if receiver is None:
            raise WouldDeadlock(f"a blocking wait on the actors' own thread for an unknown actor: {ADVICE}")
        receivers = self._awaited_receivers()
        if len(receivers) + 1 >= self._workers:
            raise WouldDeadlock(
                f"a blocking wait on the actors' own thread, and no other worker is free (workers={self._workers}): "
                f"start the system with more workers, {ADVICE}"
            )
        waited_for: object | None = receiver
        while waited_for is not None:
            if waited_for is asking:
                raise WouldDeadlock(f"a blocking wait on the actors' own thread for an actor that waits too: {ADVICE}")
            waited_for = receivers.get(waited_for)

    def _awaited_receivers(self) -> dict[object, object | None]:
        """The receiver of each wait. A worker whose reply is settled is about to go on, so it counts as free."""
        return {asking: reply.receiver for asking, reply in self._replies.items() if not reply.done()}
