"""The tables of states: complete, and held by the group that reads them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from stage.company import Company
from stage.ports import Place

from callboard.actors.coordinator.actor import REQUESTS
from callboard.actors.errors import ErrorCode, IllegalTransition
from callboard.actors.group.states import (
    ABSENT,
    ALLOWED_PREVIOUS_STATES,
    ALWAYS_SERVED,
    ANSWERS,
    Action,
    Request,
    Row,
    State,
)
from callboard.actors.messages import JoinGroup

ROWS: dict[str, Row] = {**{state.value: row for state, row in ANSWERS.items()}, "absent": ABSENT}


def test_each_request_has_an_answer_in_each_state() -> None:
    answers = [row[kind] for row in ROWS.values() for kind in Request if row is ABSENT or kind not in ALWAYS_SERVED]
    assert all(isinstance(answer, Action | ErrorCode) for answer in answers)


def test_the_tables_know_no_other_states_and_requests() -> None:
    assert set(ANSWERS) == set(ALLOWED_PREVIOUS_STATES) == set(State)
    assert all(set(row) == set(Request) - ALWAYS_SERVED for row in ANSWERS.values())
    assert set(ABSENT) == set(Request)
    assert {one for states in ALLOWED_PREVIOUS_STATES.values() for one in states} <= set(State)


def test_the_arrows_are_kafkas() -> None:
    """Source: ClassicGroupState; Dead is entered from everywhere, itself included."""
    arrows = {(came_from.value, state.value) for state in State for came_from in ALLOWED_PREVIOUS_STATES[state]}
    assert {one for one in arrows if one[1] != "Dead"} == {
        ("PreparingRebalance", "Empty"),
        ("Empty", "PreparingRebalance"),
        ("CompletingRebalance", "PreparingRebalance"),
        ("Stable", "PreparingRebalance"),
        ("PreparingRebalance", "CompletingRebalance"),
        ("CompletingRebalance", "Stable"),
    }
    assert {one[0] for one in arrows if one[1] == "Dead"} == {state.value for state in State}


def empty(company: Company) -> None:
    assert company.state() is State.EMPTY


def preparing(company: Company) -> None:
    company.join()


def completing(company: Company) -> None:
    company.gather({})


def stable(company: Company) -> None:
    company.form({})


def dead(company: Company) -> None:
    company.close(ErrorCode.NOT_COORDINATOR)


WAYS: dict[State, Callable[[Company], None]] = {
    State.EMPTY: empty,
    State.PREPARING_REBALANCE: preparing,
    State.COMPLETING_REBALANCE: completing,
    State.STABLE: stable,
    State.DEAD: dead,
}


@pytest.mark.parametrize(("here", "there"), list(product(State, State)))
def test_a_group_moves_along_the_arrows_and_nowhere_else(here: State, there: State) -> None:
    company = Company()
    WAYS[here](company)
    assert company.state() is here
    before_ms = company.group.state_timestamp_ms
    company.advance(1)
    if here in ALLOWED_PREVIOUS_STATES[there]:
        company.group._transition_to(there)
        assert (company.state(), company.group.previous_state) == (there, here)
        assert company.group.state_timestamp_ms == company.clock.wall_ms()
        assert company.group.answers is ANSWERS[there]
    else:
        with pytest.raises(IllegalTransition, match=rf"'company': {there.value} is entered from .* was {here.value}"):
            company.group._transition_to(there)
        assert company.state() is here
        assert company.group.state_timestamp_ms == before_ms


@pytest.mark.parametrize("state", list(State))
def test_a_group_follows_its_row(state: State) -> None:
    """What the table says of a stranger without a member id is what a group does."""
    company = Company()
    WAYS[state](company)
    place = company.join(client="stranger")
    if ANSWERS[state][Request.JOIN_NEW] is Action.ADD_MEMBER:
        assert place.is_waiting
        assert company.state() is State.PREPARING_REBALANCE
    else:
        assert place.error is ANSWERS[state][Request.JOIN_NEW]


@pytest.mark.parametrize("state", [State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, State.STABLE, State.DEAD])
@pytest.mark.parametrize("kind", [Request.HEARTBEAT, Request.COMMIT, Request.SYNC])
def test_a_member_gets_what_the_row_says(state: State, kind: Request) -> None:
    """A member with the right generation: only the state decides."""
    company = Company()
    member = company.form({"rebalance_ms": 5000}, {"rebalance_ms": 5000})[0]
    generation = member.generation_id
    if state is State.DEAD:
        company.close(ErrorCode.NOT_COORDINATOR)
    elif state is not State.STABLE:
        company.join(member.member_id, rebalance_ms=5000)
        if state is State.COMPLETING_REBALANCE:
            company.advance(5000)
            generation += 1
    assert company.state() is state
    asks: dict[Request, Callable[[], Any]] = {
        Request.HEARTBEAT: lambda: company.heartbeat(member.member_id, generation),
        Request.COMMIT: lambda: company.commit(member_id=member.member_id, generation_id=generation),
        Request.SYNC: lambda: company.sync(member.member_id, generation),
    }
    company.holds_back = True
    got, expected = asks[kind](), ANSWERS[state][kind]
    if isinstance(got, Place):
        got = Action.PARK_SYNC if got.is_waiting else got.error
    is_fine = expected in (Action.ACCEPT, Action.ANSWER_SYNC)
    assert got is (ErrorCode.NONE if is_fine else expected)


def test_each_message_has_a_row_entry_when_the_group_is_absent() -> None:
    """JOIN_KNOWN is the one kind that no class of message stands for: it is a JoinGroup with a member id."""
    assert set(REQUESTS.values()) | {Request.JOIN_KNOWN} == set(Request)
    assert REQUESTS[JoinGroup] is Request.JOIN_NEW
