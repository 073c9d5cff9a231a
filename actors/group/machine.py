"""StateMachine: the state of one group, and the functions that its tables name. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..engine_ports import ReplyTo
from ..errors import ErrorCode, IllegalTransition
from .effects import Effects
from .events import Cause
from .states import Event, Request, State

Check = Callable[[Any, Any], ErrorCode]
"""(group, request) -> the error for the sender, or NONE."""

Handler = Callable[[Any, Any, ReplyTo | None, Effects], object]
"""(group, request, reply, effects) -> the reply, or DEFERRED."""

Refusal = Callable[[Any, ReplyTo | None, Effects, ErrorCode], object]
"""(request, reply, effects, error) -> the reply, or DEFERRED."""

Act = Callable[[Any, Cause, Effects], None]
"""(group, cause, effects): what follows a transition."""


class Dispatch(NamedTuple):
    """A cell of the table of requests."""

    check: Check
    handle: Handler
    refuse: Refusal


class Step(NamedTuple):
    """A cell of the table of transitions."""

    state: State
    act: Act | None


class Tables(NamedTuple):
    """The tables of ``states.py`` with functions instead of names. Requests are found by class, or by kind."""

    requests: Mapping[State, Mapping[type | Request, Dispatch]]
    transitions: Mapping[State, Mapping[Event, Step]]


class StateMachine:
    """The state of a group, and its row in the table of requests. ``since_ms``: wall-clock time of its last change."""

    __slots__ = ("_tables", "row", "since_ms", "state")

    def __init__(self, tables: Tables, now_ms: int) -> None:
        self._tables = tables
        self.state = State.EMPTY
        self.row = tables.requests[State.EMPTY]
        self.since_ms = now_ms

    def apply(self, event: Event, now_ms: int) -> Act | None:
        """Enter the next state. Returns what the group does then. Raises IllegalTransition, which is a bug."""
        step = self._tables.transitions[self.state].get(event)
        if step is None:
            raise IllegalTransition(f"{event.name} cannot happen in state {self.state.value}")
        if step.state is not self.state:
            self.state = step.state
            self.row = self._tables.requests[step.state]
            self.since_ms = now_ms
        return step.act
