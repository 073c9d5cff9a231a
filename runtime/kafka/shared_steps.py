"""Work in steps whose result several requests share, for answers that cost as much as the server holds."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from ...actors.steps import Steps


class Computation:
    """One computation. ``users``: the requests that wait for it. ``outcome``: its result or error once it is done."""

    __slots__ = ("is_done", "is_failed", "outcome", "steps", "users")

    def __init__(self, steps: Steps[Any]) -> None:
        self.steps = steps
        self.users = 0
        self.is_done = False
        self.is_failed = False
        self.outcome: Any = None

    def advance(self) -> None:
        try:
            next(self.steps)
        except StopIteration as end:
            self.is_done, self.outcome = True, end.value
        except Exception as error:
            self.is_done, self.is_failed, self.outcome = True, True, error


class SharedSteps:
    """Computations by key. Each request drives the one that runs, so it goes on while any of them gets a slice.

    A request gets the result of a computation that began after the request: a client that has created a group finds it
    in the next list. Requests that come while a computation runs share the next one.
    """

    def __init__(self) -> None:
        self._running: dict[Hashable, Computation] = {}
        self._next: dict[Hashable, Computation] = {}

    def __len__(self) -> int:
        return len(self._running) + len(self._next)

    def result(self, key: Hashable, make: Callable[[], Steps[Any]]) -> Steps[Any]:
        """The result of ``make``, which is called only for the first of the requests that share it.

        ``key``: requests with the same key have the same answer.
        """
        steps = self._wait(key, make)
        next(steps)  # the request shares the next computation from now on, even if its own first slice is later
        return steps

    def _wait(self, key: Hashable, make: Callable[[], Steps[Any]]) -> Steps[Any]:
        own = self._next.get(key)
        if own is None:
            own = self._next[key] = Computation(make())
        own.users += 1
        try:
            yield
            while not own.is_done:
                self._advance(key)
                yield
        finally:
            own.users -= 1
            if not own.users:
                self._discard(key, own)
        if own.is_failed:
            raise own.outcome
        return own.outcome

    def _advance(self, key: Hashable) -> None:
        """A step of the computation that runs, or of the next one, which then begins."""
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = self._next.pop(key)
        running.advance()
        if running.is_done:
            del self._running[key]

    def _discard(self, key: Hashable, unused: Computation) -> None:
        """Give up a computation that no request waits for any more."""
        for computations in (self._running, self._next):
            if computations.get(key) is unused:
                del computations[key]
                unused.steps.close()
