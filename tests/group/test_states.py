"""The state tables are complete, and groups behave accordingly."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from actor_system.ports import RecordedReply
from actor_system.simulated_group import SimulatedGroup

from callboard.actors.errors import ErrorCode, IllegalTransition
from callboard.actors.group.effects import Effects
from callboard.actors.group.events import Cause, Reason
from callboard.actors.group.states import (
    ALLOWED_PREVIOUS_STATES,
    ANSWERS,
    Action,
    Request,
    State,
)


def test_each_state_has_answer_for_each_request() -> None:
    entries = [row[kind] for row in ANSWERS.values() for kind in Request]
    assert all(isinstance(entry, Action | ErrorCode) for entry in entries)


def test_tables_contain_no_other_states_or_requests() -> None:
    assert set(ANSWERS) == set(ALLOWED_PREVIOUS_STATES) == set(State)
    assert all(set(row) == set(Request) for row in ANSWERS.values())
    assert {previous for states in ALLOWED_PREVIOUS_STATES.values() for previous in states} <= set(State)


def test_allowed_transitions_equal_kafkas() -> None:
    """Source: ClassicGroupState. Dead can be entered from every state, including Dead."""
    transitions = {(previous.value, state.value) for state in State for previous in ALLOWED_PREVIOUS_STATES[state]}
    assert {transition for transition in transitions if transition[1] != "Dead"} == {
        ("PreparingRebalance", "Empty"),
        ("Empty", "PreparingRebalance"),
        ("CompletingRebalance", "PreparingRebalance"),
        ("Stable", "PreparingRebalance"),
        ("PreparingRebalance", "CompletingRebalance"),
        ("CompletingRebalance", "Stable"),
    }
    assert {transition[0] for transition in transitions if transition[1] == "Dead"} == {state.value for state in State}


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


@pytest.mark.parametrize(("previous", "next_state"), list(product(State, State)))
def test_transition_that_is_not_allowed_raises(previous: State, next_state: State) -> None:
    simulated_group = SimulatedGroup()
    FORM_STATE[previous](simulated_group)
    assert simulated_group.state() is previous
    before_ms = simulated_group.group.state_timestamp_ms
    simulated_group.advance(1)
    if previous in ALLOWED_PREVIOUS_STATES[next_state]:
        simulated_group.group._transition_to(next_state, Cause(Reason.DELETED), Effects())
        assert (simulated_group.state(), simulated_group.group.previous_state) == (next_state, previous)
        assert simulated_group.group.state_timestamp_ms == simulated_group.clock.wall_ms()
        assert simulated_group.group.answers is ANSWERS[next_state]
    else:
        with pytest.raises(
            IllegalTransition, match=rf"'company': {next_state.value} is entered from .* was {previous.value}"
        ):
            simulated_group.group._transition_to(next_state, Cause(Reason.DELETED), Effects())
        assert simulated_group.state() is previous
        assert simulated_group.group.state_timestamp_ms == before_ms


@pytest.mark.parametrize("state", list(State))
def test_group_returns_errors_of_its_row(state: State) -> None:
    """The group returns the errors of the table to a sender without a member id."""
    simulated_group = SimulatedGroup()
    FORM_STATE[state](simulated_group)
    reply = simulated_group.join(client="stranger")
    if ANSWERS[state][Request.JOIN_NEW] is Action.ADD_MEMBER:
        assert reply.is_waiting
        assert simulated_group.state() is State.PREPARING_REBALANCE
    else:
        assert reply.error is ANSWERS[state][Request.JOIN_NEW]


@pytest.mark.parametrize("state", [State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, State.STABLE, State.DEAD])
@pytest.mark.parametrize("kind", [Request.HEARTBEAT, Request.COMMIT, Request.SYNC])
def test_member_gets_errors_of_the_row(state: State, kind: Request) -> None:
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
    senders: dict[Request, Callable[[], Any]] = {
        Request.HEARTBEAT: lambda: simulated_group.heartbeat(member.member_id, generation),
        Request.COMMIT: lambda: simulated_group.commit(member_id=member.member_id, generation_id=generation),
        Request.SYNC: lambda: simulated_group.sync(member.member_id, generation),
    }
    simulated_group.holds_appends = True
    result, expected = senders[kind](), ANSWERS[state][kind]
    if isinstance(result, RecordedReply):
        result = Action.PARK_SYNC if result.is_waiting else result.error
    is_fine = expected in (Action.ACCEPT, Action.ANSWER_SYNC)
    assert result is (ErrorCode.NONE if is_fine else expected)
