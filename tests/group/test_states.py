"""The state tables are complete, agree with Kafka's, and name functions that exist."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from actor_system.simulated_group import SimulatedGroup

from callboard.actors.consumer_group.messages import ConsumerHeartbeat, DescribeConsumerGroup, RegexesResolved
from callboard.actors.errors import ErrorCode, IllegalTransition, UnknownDeadline
from callboard.actors.group.dispatch import CLASSES, FUNCTIONS, TABLES
from callboard.actors.group.effects import Effects
from callboard.actors.group.events import Cause, Reason
from callboard.actors.group.requests import REQUESTS
from callboard.actors.group.reset_messages import DescribeReset
from callboard.actors.group.states import (
    CELLS,
    CHECKS,
    KINDS,
    LISTED_NAMES,
    TRANSITIONS,
    Event,
    Request,
    State,
)
from callboard.actors.messages import DescribeCommits, DescribeEvents, ExplainGroup

JOINS = {Request.JOIN_NEW, Request.JOIN_REPLACING, Request.JOIN_PENDING, Request.JOIN_KNOWN}
"""The kinds of an admitted JoinGroup."""

IMPOSSIBLE = {State.EMPTY: {Request.JOIN_REPLACING}, State.DEAD: JOINS}


def test_each_state_has_cell_for_each_request() -> None:
    for state, row in CELLS.items():
        assert set(row) == set(Request) - IMPOSSIBLE.get(state, set()), state
    assert set(CELLS) == set(TRANSITIONS) == set(State)


def test_each_class_of_request_has_kind() -> None:
    of_other_kinds = {ConsumerHeartbeat, DescribeConsumerGroup, RegexesResolved}
    of_the_actor = {DescribeCommits, DescribeEvents, DescribeReset, ExplainGroup}
    assert set(KINDS) == set(REQUESTS) - of_other_kinds - of_the_actor
    assert set(CLASSES) == set(Request) - JOINS


def test_tables_name_all_functions() -> None:
    """A function that no cell names is not used."""
    cells = {cell for row in CELLS.values() for cell in row.values() if isinstance(cell, str)}
    acts = {act for row in TRANSITIONS.values() for _, act in row.values() if act is not None}
    assert cells | acts | set(CHECKS.values()) == set(FUNCTIONS)


def test_each_event_occurs_in_table() -> None:
    assert {event for row in TRANSITIONS.values() for event in row} == set(Event)


def test_allowed_transitions_equal_kafkas() -> None:
    """Source: ClassicGroupState. Dead can be entered from every state, including Dead."""
    transitions = {(state.value, step.state.value) for state, row in TRANSITIONS.items() for step in row.values()}
    loaded = {("Empty", "Stable")}  # Kafka makes a loaded group in its state
    assert {(previous, state) for previous, state in transitions if previous != state} - loaded == {
        ("PreparingRebalance", "Empty"),
        ("Empty", "PreparingRebalance"),
        ("CompletingRebalance", "PreparingRebalance"),
        ("Stable", "PreparingRebalance"),
        ("PreparingRebalance", "CompletingRebalance"),
        ("CompletingRebalance", "Stable"),
        *((name, "Dead") for name in LISTED_NAMES),
    }
    assert ("Dead", "Dead") in transitions


def form_empty(simulated_group: SimulatedGroup) -> None:
    assert simulated_group.state() is State.EMPTY


def form_preparing(simulated_group: SimulatedGroup) -> None:
    simulated_group.join()


def form_completing(simulated_group: SimulatedGroup) -> None:
    simulated_group.join_all({})


def form_stable(simulated_group: SimulatedGroup) -> None:
    simulated_group.form_group({})


def form_dead(simulated_group: SimulatedGroup) -> None:
    simulated_group.close(ErrorCode.NOT_COORDINATOR)


FORM_STATE: dict[State, Callable[[SimulatedGroup], None]] = {
    State.EMPTY: form_empty,
    State.PREPARING_REBALANCE: form_preparing,
    State.COMPLETING_REBALANCE: form_completing,
    State.STABLE: form_stable,
    State.DEAD: form_dead,
}


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_transition_that_is_not_allowed_raises(state: State, event: Event) -> None:
    simulated_group = SimulatedGroup()
    FORM_STATE[state](simulated_group)
    group = simulated_group.group
    since_ms = group.machine.since_ms
    simulated_group.advance(1)
    if event in TRANSITIONS[state]:
        group.machine.apply(event, simulated_group.clock.wall_ms())
        assert group.state is TRANSITIONS[state][event].state
        assert group.machine.row is TABLES.requests[group.state]
        is_same = group.state is state
        assert group.machine.since_ms == (since_ms if is_same else simulated_group.clock.wall_ms())
    else:
        with pytest.raises(IllegalTransition, match=f"'company': {event.name} cannot happen in state {state.value}"):
            group.apply(event, Cause(Reason.NO_MEMBERS), Effects())
        assert group.state is state
        assert group.machine.since_ms == since_ms


@pytest.mark.parametrize(
    ("state", "heartbeat", "commit", "sync"),
    [
        (State.PREPARING_REBALANCE, "REBALANCE_IN_PROGRESS", "NONE", "REBALANCE_IN_PROGRESS"),
        (State.COMPLETING_REBALANCE, "NONE", "REBALANCE_IN_PROGRESS", "parked"),
        (State.STABLE, "NONE", "NONE", "NONE"),
        (State.DEAD, "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE"),
    ],
)
def test_member_gets_errors_of_the_row(state: State, heartbeat: str, commit: str, sync: str) -> None:
    """The sender is a member with the current generation, so the result depends only on the state."""
    simulated_group = SimulatedGroup()
    member = simulated_group.form_group({"rebalance_ms": 5000}, {"rebalance_ms": 5000})[0]
    generation = member.generation_id
    if state is State.DEAD:
        simulated_group.close(ErrorCode.NOT_COORDINATOR)
    elif state is not State.STABLE:
        simulated_group.join(member.member_id, rebalance_ms=5000)
        if state is State.COMPLETING_REBALANCE:
            simulated_group.advance(5000)
            generation += 1
    assert simulated_group.state() is state
    simulated_group.holds_appends = True
    assert simulated_group.heartbeat(member.member_id, generation).name == heartbeat
    assert simulated_group.commit(member_id=member.member_id, generation_id=generation).name == commit
    reply = simulated_group.sync(member.member_id, generation)
    assert ("parked" if reply.is_waiting else reply.error.name) == sync


@pytest.mark.parametrize("name", [("syncs",), ("idle",), (), ("",)])
def test_unknown_deadline_raises_and_keeps_group(name: tuple[str, ...]) -> None:
    simulated_group = SimulatedGroup()
    members = simulated_group.form_group({}, {})
    with pytest.raises(UnknownDeadline, match="the kinds are session, pending, join, sync"):
        simulated_group.group.expired(name, Effects())
    assert simulated_group.state() is State.STABLE
    assert len(simulated_group.group.members) == len(members)
