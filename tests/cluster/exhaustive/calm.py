"""From a state on nothing fails any more: the nodes that live come to serve the partition, whoever of them is dead."""

from __future__ import annotations

from collections.abc import Iterator

from ..violation import Violation
from .node_run import Input
from .states import CRASHED, Space, State, Step

ROUNDS_MAX = 60
"""Of all nodes. In each one they end their sleeps, and all their operations are answered."""


def check_calm(space: Space, state: State) -> int:
    """Try it with all nodes, and with each of them dead. Returns how often. Raises Violation."""
    staying = [process for process in _living(space, state) if not space.leaves(state, process)]
    cases = [dead for dead in (None, *_living(space, state)) if any(process != dead for process in staying)]
    for dead in cases:
        _check(space, state, dead)
    return len(cases)


def _check(space: Space, state: State, dead: int | None) -> None:
    if dead is not None:
        state = space.crashed(state, dead)
    for _ in range(ROUNDS_MAX):
        for process in _living(space, state):
            state = _round(space, state, process)
        if any(_serves(space, state, process) for process in _living(space, state)):
            return
    others = "" if dead is None else f" after {space.scope.processes[dead]} has died"
    raise Violation(f"nobody serves the partition{others}, although nothing fails any more")


def _living(space: Space, state: State) -> Iterator[int]:
    return (process for process, node in enumerate(state.nodes) if node not in (CRASHED, 0))


def _serves(space: Space, state: State, process: int) -> bool:
    served = space.view(state, process).served
    return served is not None and served[0] == space.stores.epoch(state.store)


def _round(space: Space, state: State, process: int) -> State:
    while state.late:
        state = space.after(state, Step("land late", -1, 0))
    for number, operation in space.view(state, process).pending:
        if operation.kind == "sleep" and operation.arguments[0] != "garbage":
            state = space.given(state, process, Input("wake", state.now, number))
    state = space.settled(state, process)
    for other in space.view(state, process).others:
        if _is_dead(space, state, other):
            state = space.given(state, process, Input("suspect", state.now, 0, other))
    return space.settled(state, process)


def _is_dead(space: Space, state: State, session: str) -> bool:
    return all(space.view(state, process).session != session for process in _living(space, state))
