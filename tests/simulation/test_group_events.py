"""Tests of the checker of group events: each contradiction is a violation."""

from __future__ import annotations

from typing import Any

import pytest
from actor_system.requests import join, leave
from actor_system.simulated_group import SimulatedGroup

from callboard.actors.consumer_group.messages import ConsumerHeartbeat
from callboard.actors.errors import ErrorCode
from callboard.actors.group.events import GroupEvent, Kind, Reason
from callboard.actors.messages import Joined, Left, LeftMember
from callboard.runtime.testing.simulation.group_events import GroupEventChecker
from callboard.runtime.testing.simulation.history import Exchange, History
from callboard.runtime.testing.simulation.loop import Process, VirtualLoop


def member(kind: Kind, name: str = "m", generation: int = 0) -> GroupEvent:
    return GroupEvent(0, 0, kind, Reason.MEMBER_JOINED, "", generation, name, None, "c", "/h")


def state(name: str, generation: int) -> GroupEvent:
    return GroupEvent(0, 0, Kind.STATE_CHANGED, Reason.MEMBER_JOINED, name, generation)


ADD, REMOVE = Kind.MEMBER_ADDED, Kind.MEMBER_REMOVED
FORMED = [
    member(ADD),
    state("PreparingRebalance", 0),
    state("CompletingRebalance", 1),
    state("Stable", 1),
]


def violations(*events: GroupEvent) -> list[str]:
    found: list[str] = []
    checker = GroupEventChecker(found.append)
    for event in events:
        checker.group_changed("g", event)
    assert checker.checked == len(events)
    return found


def test_events_of_a_group_are_consistent() -> None:
    group = SimulatedGroup()
    members = group.form_group({}, {}, {"instance": "i"})
    group.join(instance="i")
    group.leave(members[0].member_id)
    group.advance(1_000_000)
    group.close(ErrorCode.NOT_COORDINATOR)
    assert len(group.events) > 10
    assert violations(*group.events) == []


def test_group_that_is_loaded_has_any_generation() -> None:
    assert violations(member(ADD, generation=7), state("PreparingRebalance", 7)) == []


@pytest.mark.parametrize(
    "events",
    [
        [member(ADD), member(ADD)],
        [member(REMOVE)],
        [*FORMED, member(REMOVE, "other", 1)],
        [*FORMED, state("CompletingRebalance", 2)],
        [*FORMED[:2], state("Stable", 0)],
        [*FORMED[:2], state("CompletingRebalance", 0)],
        [*FORMED[:2], state("CompletingRebalance", 2)],
        [*FORMED, state("PreparingRebalance", 2)],
        [*FORMED[:2], state("Empty", 1)],
        [state("PreparingRebalance", 0), state("CompletingRebalance", 1)],
    ],
)
def test_contradiction_is_a_violation(events: list[GroupEvent]) -> None:
    assert len(violations(*events)) == 1


def answered(message: Any, answer: Any) -> list[str]:
    """The violations of an answer of a group with the member "m" in generation 1."""
    found: list[str] = []
    checker = GroupEventChecker(found.append)
    for event in FORMED:
        checker.group_changed("company", event)
    exchange = Exchange(1, "c", Process(VirtualLoop(), "p"), 1, message, 0)
    exchange.answer = answer
    checker.answered(exchange)
    return found


def test_member_that_left_was_removed() -> None:
    codes = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID
    left, unknown = (Left(ErrorCode.NONE, (LeftMember("m", None, code),)) for code in codes)
    assert "no event has removed m" in answered(leave("m"), left)[0]
    assert answered(leave("m"), unknown) == []


def test_answered_generation_has_begun() -> None:
    assert "has not begun" in answered(join("m"), Joined(ErrorCode.NONE, "m", 2))[0]
    assert answered(join("m"), Joined(ErrorCode.NONE, "m", 1)) == []
    assert answered(join("m"), Joined(ErrorCode.UNKNOWN_MEMBER_ID, "m", 2)) == []


def test_history_has_the_events() -> None:
    found: list[str] = []
    history = History(VirtualLoop())
    history.listeners.append(GroupEventChecker(found.append))
    history.observe("g", FORMED)
    assert history.timeline()[0].endswith("group 'g': 0 member added m, member joined, generation 0")
    history.coordinator_starts("coordinator-2")
    history.observe("g", FORMED)
    assert (len(history.timeline()), found) == (9, [])


def consumer_group_violations(*events: GroupEvent) -> list[str]:
    """The violations of a group that a member of the consumer protocol has joined."""
    found: list[str] = []
    checker = GroupEventChecker(found.append)
    message = ConsumerHeartbeat("g", "m", 0)
    checker.sent(Exchange(1, "c", Process(VirtualLoop(), "p"), 1, message, 0))
    for event in events:
        checker.group_changed("g", event)
    return found


def test_only_an_empty_group_begins_again() -> None:
    joined = [member(ADD, generation=5)]
    assert "after epoch 5" in consumer_group_violations(*joined, member(ADD, "other", 4))[0]
    assert consumer_group_violations(*joined, member(REMOVE, generation=6), member(ADD, "other", 2)) == []
