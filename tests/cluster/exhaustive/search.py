"""Breadth-first search of all states of a scope."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from ..violation import Violation
from .calm import check_calm
from .scopes import Scope
from .states import Space, State, Step

TRACE_TEXT_MAX = 110


class Result(NamedTuple):
    """``violation``: the broken promise, empty if there is none; ``trace``: the steps to it, as few as possible.

    ``is_complete``: there is no other state. ``calm``: states from which the nodes came to serve the partition.
    ``executed``: how often the code got an input.
    """

    states: int
    steps: int
    depth: int
    is_complete: bool
    calm: int = 0
    executed: int = 0
    violation: str = ""
    trace: tuple[str, ...] = ()


class Search:
    """``states_max``: where it stops, 0 for never."""

    def __init__(self, scope: Scope, states_max: int = 0) -> None:
        self._scope = scope
        self._states_max = states_max or scope.states_max
        self._space = Space(scope)
        self._seen: set[int] = set()  # hashes, which need less memory than states
        self._before = array("L")  # the place of the state before each state, and the place of the step among its steps
        self._choices = array("H")
        self._steps = self._calm = 0

    def run(self) -> Result:
        depth = 0
        try:
            first = self._space.first_state()
        except Violation as violation:
            return Result(1, 0, 0, False, violation=str(violation))
        self._add(first, 0, 0)
        level = [(0, first)]
        while level:
            following: list[tuple[int, State]] = []
            for place, state in level:
                try:
                    self._expand(place, state, following)
                except Violation as violation:
                    return self._result(depth, str(violation), place)
                if self._states_max and len(self._before) >= self._states_max:
                    return self._result(depth + 1)
            level = following
            depth += bool(level)
        return self._result(depth, is_complete=True)

    def _add(self, state: State, before: int, choice: int) -> bool:
        """Whether it is new."""
        known = len(self._seen)
        self._seen.add(hash(state))
        if len(self._seen) == known:
            return False
        self._before.append(before)
        self._choices.append(choice)
        return True

    def _expand(self, place: int, state: State, following: list[tuple[int, State]]) -> None:
        self._failed: Step | None = None
        if self._scope.calm_each and place % self._scope.calm_each == 0:
            self._calm += check_calm(self._space, state)
        for choice, step in enumerate(self._space.steps(state)):
            self._failed = step
            after = self._space.after(state, step)
            self._steps += 1
            if self._add(after, place, choice):
                following.append((len(self._before) - 1, after))
                self._space.check(after)
        self._failed = None

    def _result(self, depth: int, violation: str = "", place: int = 0, is_complete: bool = False) -> Result:
        executed = sum(automaton.executed for automaton in self._space.automata)
        trace = self._trace(place) if violation else ()
        states = len(self._before)
        return Result(states, self._steps, depth, is_complete, self._calm, executed, violation, trace)

    def _trace(self, place: int) -> tuple[str, ...]:
        choices = []
        while place:
            choices.append(self._choices[place])
            place = self._before[place]
        state, texts = self._space.first_state(), list[str]()
        for choice in reversed(choices):
            step = list(self._space.steps(state))[choice]
            texts.append(describe(self._space, state, step))
            state = self._space.after(state, step)
        if self._failed is not None:
            texts.append(describe(self._space, state, self._failed))
        return tuple(texts)


def describe(space: Space, state: State, step: Step) -> str:
    who = "" if step.process < 0 else space.scope.processes[step.process] + ": "
    what = ""
    if step.kind == "land late":
        what = repr(state.late[step.number])
    elif step.number:
        operation = dict(space.view(state, step.process).pending)[step.number]
        what = f"{operation.kind} {' '.join(map(str, operation.arguments))}"
    return f"{who}{step.kind} {what or step.value or ''}"[:TRACE_TEXT_MAX].rstrip()
