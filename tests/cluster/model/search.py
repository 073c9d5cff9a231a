"""Breadth-first search over the states of a model. The first violation that it finds has a shortest trace."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

Label = tuple[Any, ...]
"""A format string and its arguments."""

ALL_STATES = 1 << 62


class Step(NamedTuple):
    """One operation of one participant, and the state after it. ``violation``: the promise that it breaks, or ""."""

    label: Label
    state: Any
    violation: str = ""


class Model(Protocol):
    """What can happen. States are tuples of small naturals, so that equal states have equal hashes in every run."""

    def first_state(self) -> Any:
        """Where the search begins."""

    def steps(self, state: Any) -> Iterable[Step]:
        """All that can happen next."""

    def violation(self, state: Any) -> str:
        """The promise that this state breaks, or ""."""

    def stuck(self, state: Any) -> str:
        """Why those who live cannot come to serve everything from this state, or "". Expensive."""


class Result(NamedTuple):
    """``trace``: the steps to the violation. ``recoveries``: states for which ``Model.stuck`` was asked."""

    states: int
    steps: int
    depth: int
    is_complete: bool
    violation: str = ""
    trace: tuple[str, ...] = ()
    recoveries: int = 0


class Search:
    """``max_states``: stop there. ``stuck_every``: ask ``stuck`` for each n-th state.

    The hash of a state (64 bits) stands for it: a million states take some 200 MB. Two different states with one hash
    are improbable: 10 million states have such a pair with a probability below 10^-5.
    """

    def __init__(self, model: Model, max_states: int = ALL_STATES, stuck_every: int = 0) -> None:
        self._model = model
        self._max_states = max_states
        self._stuck_every = stuck_every
        self._parents: dict[int, int] = {}
        self._steps = 0
        self._recoveries = 0

    def run(self) -> Result:
        with garbage_collection_paused():
            return self._run()

    def _run(self) -> Result:
        first = self._model.first_state()
        self._parents[hash(first)] = 0
        level, depth = [first], 0
        while level:
            following: list[Any] = []
            for state in level:
                if len(self._parents) >= self._max_states:
                    return self._result(depth, False)
                failure = self._expand(state, following)
                if failure is not None:
                    return self._result(depth + 1, False, *failure)
            level = following
            depth += bool(level)
        return self._result(depth, True)

    def _expand(self, state: Any, following: list[Any]) -> tuple[str, tuple[str, ...]] | None:
        """Add the new states that follow. Returns a violation and its trace."""
        parents, parent = self._parents, hash(state)
        for step in self._model.steps(state):
            self._steps += 1
            key = hash(step.state)
            if key in parents and not step.violation:
                continue
            violation = step.violation or self._model.violation(step.state)
            parents.setdefault(key, parent)
            violation = violation or self._stuck(step.state)
            if violation:
                return violation, (*self._trace(parent), text(step.label))
            following.append(step.state)
        return None

    def _stuck(self, state: Any) -> str:
        if not self._stuck_every or len(self._parents) % self._stuck_every:
            return ""
        self._recoveries += 1
        return self._model.stuck(state)

    def _trace(self, key: int) -> Iterator[str]:
        """The steps to the state with this hash, which are found by repeating them from the first state."""
        keys: list[int] = []
        while key:
            keys.append(key)
            key = self._parents[key]
        state = self._model.first_state()
        for wanted in reversed(keys[:-1]):
            step = next(step for step in self._model.steps(state) if hash(step.state) == wanted)
            yield text(step.label)
            state = step.state

    def _result(self, depth: int, is_complete: bool, violation: str = "", trace: tuple[str, ...] = ()) -> Result:
        return Result(len(self._parents), self._steps, depth, is_complete, violation, trace, self._recoveries)


def text(label: Label) -> str:
    return str(label[0]).format(*label[1:])


def replaced(values: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    """The tuple with one other item."""
    return (*values[:index], value, *values[index + 1 :])


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """States have no cycles. Looking for them would take most of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
