"""The member's side of the consumer protocol as a pure table: what it owns, names, gives back and takes."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any

import pytest

from callboard.actors.consumer_group.messages import LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from callboard.actors.consumer_group.records import Partition
from callboard.runtime.member.consumer_state import (
    NOTHING,
    TRANSITIONS,
    About,
    Answer,
    ConsumerState,
    Event,
    Phase,
    leave_epoch,
    make_heartbeat,
    step,
)

TOPIC = b"t" * 16
A, B, C = ((TOPIC, number) for number in range(3))
ABOUT = About(None, 60_000, ("jobs",), None)


def answered(state: ConsumerState, epoch: int, assigned: Collection[Partition] | None = None) -> ConsumerState:
    """The state after a heartbeat of this state was answered."""
    return step(state, Event.ANSWERED, Answer(epoch, assigned, state.owned()))


def working(*partitions: Partition, epoch: int = 3) -> ConsumerState:
    """A member that works on these partitions."""
    state = answered(answered(ConsumerState(), epoch, partitions), epoch)
    return step(state, Event.TAKEN, state.may_take()) if partitions else state


def heartbeat(state: ConsumerState, told: About | None = ABOUT, is_full: bool = False) -> Any:
    return make_heartbeat(state, "g", "m", ABOUT, told, is_full)


def test_new_partition_may_be_taken_after_a_heartbeat_that_names_it() -> None:
    state = answered(ConsumerState(), 2, [A, B])
    assert (state.phase, state.may_take()) == (Phase.TAKING, NOTHING)
    assert state.has_news() and heartbeat(state).owned == (A, B)
    state = answered(state, 2)
    assert state.may_take() == {A, B} and not state.has_news()
    state = step(state, Event.TAKEN, state.may_take())
    assert state.phase is Phase.STABLE and state.held == {A, B}


def test_partition_that_the_answer_to_its_name_takes_away_is_not_taken() -> None:
    state = answered(ConsumerState(), 2, [A, B])
    state = answered(state, 2, [A])
    assert state.may_take() == {A} and state.owned() == {A}


def test_only_what_moves_is_given_back_and_the_next_heartbeat_names_the_rest() -> None:
    state = answered(working(A, B), 3, [A])
    assert state.phase is Phase.RELEASING and state.to_release() == {B} and state.held == {A, B}
    assert not state.has_news(), "work on B has not ended yet"
    state = step(state, Event.RELEASED, state.to_release())
    assert state.phase is Phase.STABLE and state.held == {A}
    assert state.has_news() and heartbeat(state).owned == (A,)
    assert not answered(state, 4).has_news()


def test_partitions_are_given_back_before_others_are_taken() -> None:
    state = answered(working(A, B), 3, [A, C])
    assert state.phase is Phase.RELEASING
    assert step(state, Event.RELEASED, state.to_release()).phase is Phase.TAKING


def test_partition_that_returns_while_it_is_given_back_is_taken_anew() -> None:
    state = answered(working(A, B), 3, [A])
    state = answered(state, 5, [A, B])
    state = step(state, Event.RELEASED, frozenset({B}))
    assert (state.phase, state.assigned[B]) == (Phase.TAKING, 5)


def test_token_is_the_epoch_in_which_a_partition_came() -> None:
    state = answered(working(A), 7, [A, B])
    assert state.assigned == {A: 3, B: 7}
    assert answered(state, 8).assigned == {A: 3, B: 7}


def test_lost_answer_makes_the_next_heartbeat_say_everything() -> None:
    state = step(working(A), Event.UNANSWERED)
    request = heartbeat(state)
    assert request.is_full and request.owned == (A,) and request.member_epoch == 3
    assert state.phase is Phase.STABLE and state.held == {A}, "nothing stops"


def test_heartbeat_without_news_says_nothing_unless_it_is_full() -> None:
    request = heartbeat(working(A))
    assert (request.owned, request.topics, request.rebalance_timeout_ms) == (None, None, -1)
    assert heartbeat(working(A), is_full=True).is_full
    assert heartbeat(working(A), told=ABOUT._replace(topics=("other",))).topics == ("jobs",)


def test_first_heartbeat_joins_and_says_everything() -> None:
    request = heartbeat(ConsumerState(), told=None)
    assert (request.member_epoch, request.owned) == (0, ()) and request.is_full


@pytest.mark.parametrize("event", [Event.FENCED, Event.LEASE_OVER])
@pytest.mark.parametrize("state", [working(A, B), answered(working(A, B), 3, [A]), answered(working(A), 4, [A, B])])
def test_member_that_is_fenced_abandons_all_and_joins_with_epoch_0(event: Event, state: ConsumerState) -> None:
    abandoned = step(state, event)
    assert (abandoned.phase, abandoned.held, abandoned.assigned) == (Phase.ABANDONING, NOTHING, {})
    assert abandoned.joins == state.joins + 1
    joining = step(abandoned, Event.ABANDONED)
    assert joining.phase is Phase.JOINING and heartbeat(joining).member_epoch == 0
    assert heartbeat(joining).is_full and heartbeat(joining).owned == ()


def test_member_that_leaves_takes_nothing_and_follows_the_epoch_for_its_last_commits() -> None:
    state = step(answered(working(A), 3, [A, B]), Event.LEAVE)
    assert state.phase is Phase.LEAVING and state.owned() == {A} and not state.to_take()
    state = answered(state, 5, [B, C])
    assert state.epoch == 5 and state.owned() == {A} and not state.to_take()
    assert step(state, Event.FENCED).held == NOTHING
    assert step(state, Event.END).phase is Phase.LEFT


def test_static_member_leaves_for_a_while() -> None:
    assert (leave_epoch(None), leave_epoch("one")) == (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)


def test_events_from_tasks_of_their_own_have_a_row_in_each_phase() -> None:
    for phase, event in itertools.product(Phase, (Event.FENCED, Event.LEASE_OVER, Event.LEAVE, Event.END)):
        assert event in TRANSITIONS[phase], (phase, event)


def test_no_sequence_of_events_lets_a_member_work_on_what_it_did_not_name() -> None:
    """All states within six events of a member that may be assigned any of two partitions."""
    seen, frontier = {key(ConsumerState())}, [ConsumerState()]
    for _ in range(6):
        following = [after for state in frontier for after in successors(state)]
        frontier = []
        for state in following:
            assert state.held <= state.owned()
            if state.phase in (Phase.JOINING, Phase.ABANDONING, Phase.LEFT):
                assert not state.owned()
            assert (state.phase is Phase.STABLE) <= (state.held == state.assigned.keys())
            if key(state) not in seen:
                seen.add(key(state))
                frontier.append(state)
    assert len(seen) > 100


def key(state: ConsumerState) -> object:
    return state._replace(assigned=frozenset(state.assigned.items()), joins=0)  # type: ignore[arg-type]


def successors(state: ConsumerState) -> list[ConsumerState]:
    after = []
    for event in TRANSITIONS[state.phase]:
        arguments: list[Any] = [None]
        if event is Event.ANSWERED:
            choices = (None, (), (A,), (B,), (A, B))
            arguments = [
                Answer(max(state.epoch, 1) + more, choice, state.owned()) for choice in choices for more in (0, 1)
            ]
            arguments = [answer for answer in arguments if answer.epoch <= 3]
        elif event is Event.RELEASED:
            arguments = [state.to_release()]
        elif event is Event.TAKEN:
            taken = state.may_take()
            assert taken <= (state.named or NOTHING), "a heartbeat has named it"
            arguments = [taken]
        after += [step(state, event, argument) for argument in arguments]
    return after
