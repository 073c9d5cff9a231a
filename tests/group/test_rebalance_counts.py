"""Counts and durations of rebalances, from the events of groups."""

from __future__ import annotations

from actor_system.requests import GROUP, SESSION_MS, join, leave
from actor_system.simulated_group import SimulatedGroup
from actor_system.simulation import CoordinatorSimulation

from callboard.actors.group.events import GroupEvent, Kind, Reason
from callboard.actors.group.rebalance_counts import CAUSES, PHASES, RebalanceCounts
from callboard.actors.group.states import State
from callboard.actors.messages import DeleteGroup


def changed(state: str, reason: Reason, at_ms: int, *, is_epoch: bool = False) -> GroupEvent:
    return GroupEvent(at_ms, at_ms, Kind.STATE_CHANGED, reason, state, 1, is_epoch=is_epoch)


def counts_of(*events: GroupEvent) -> RebalanceCounts:
    counts = RebalanceCounts()
    for event in events:
        counts.observe("g", [event])
    return counts


def started(counts: RebalanceCounts) -> dict[str, int]:
    return {cause: count for cause, count in counts.by_cause().items() if count}


def seconds(counts: RebalanceCounts) -> dict[str, tuple[int, float]]:
    """The number and the sum of the durations of each phase that has ended."""
    return {
        phase: (sum(durations.counts), durations.seconds)
        for phase, durations in counts.phases.items()
        if sum(durations.counts)
    }


def test_rebalances_of_a_group_count_by_what_began_them() -> None:
    group = SimulatedGroup()
    first, _, third = group.form_group({"session_ms": 10 * SESSION_MS}, {}, {"session_ms": 10 * SESSION_MS})
    group.advance(SESSION_MS)  # the second expires
    group.join(first.member_id, session_ms=10 * SESSION_MS)
    group.join(third.member_id, session_ms=10 * SESSION_MS)
    group.sync(first.member_id, 2, {})
    counts = counts_of(*group.events)
    assert started(counts) == {"member_joined": 1, "session_expired": 1}
    assert counts.joins == 3
    assert {phase: count for phase, (count, _) in seconds(counts).items()} == {"join": 2, "sync": 2}


def test_rebalance_that_begins_again_counts_each_generation_with_its_own_cause() -> None:
    counts = counts_of(
        changed(State.PREPARING_REBALANCE, Reason.MEMBER_JOINED, 0),
        changed(State.COMPLETING_REBALANCE, Reason.ALL_JOINED, 3000),
        changed(State.PREPARING_REBALANCE, Reason.SESSION_EXPIRED, 4000),
        changed(State.COMPLETING_REBALANCE, Reason.ALL_JOINED, 4500),
        changed(State.STABLE, Reason.ASSIGNMENT_STORED, 4520),
    )
    assert started(counts) == {"member_joined": 1, "session_expired": 1}
    assert seconds(counts) == {"join": (2, 3.5), "sync": (2, 1.02)}


def test_rebalance_without_a_generation_does_not_count() -> None:
    counts = counts_of(
        changed(State.PREPARING_REBALANCE, Reason.MEMBER_LEFT, 0), changed(State.EMPTY, Reason.NO_MEMBERS, 10)
    )
    assert started(counts) == {}
    assert seconds(counts) == {"join": (1, 0.01)}


def test_epochs_of_the_consumer_protocol_count_when_they_begin() -> None:
    counts = counts_of(
        changed("Assigning", Reason.MEMBER_JOINED, 0, is_epoch=True),
        changed("Reconciling", Reason.TARGET_CHANGED, 0, is_epoch=True),
        changed("Assigning", Reason.MEMBER_LEFT, 700, is_epoch=True),
        changed("Stable", Reason.ALL_HAVE_TARGET, 800, is_epoch=True),
        changed("Reconciling", Reason.TARGET_CHANGED, 900, is_epoch=True),  # no new epoch
        changed("Stable", Reason.ALL_HAVE_TARGET, 950, is_epoch=True),
    )
    assert started(counts) == {"member_joined": 1, "member_left": 1}
    assert seconds(counts) == {"assign": (2, 0.1), "reconcile": (1, 0.7)}
    assert set(counts.started) == {(True, Reason.MEMBER_JOINED), (True, Reason.MEMBER_LEFT)}


def test_all_causes_and_phases_are_there_from_the_start() -> None:
    counts = RebalanceCounts()
    assert counts.by_cause() == dict.fromkeys((cause.name.lower() for cause in CAUSES), 0)
    assert set(counts.phases) == set(PHASES.values())


def test_group_that_is_gone_leaves_nothing_behind() -> None:
    simulation = CoordinatorSimulation()
    counts = simulation.directory.rebalances
    reply = simulation.post(join())
    assert list(counts._open) == [GROUP]
    simulation.advance(3000)
    simulation.post(leave(reply.value.member_id))
    simulation.post(DeleteGroup(GROUP))
    assert counts._open == {}
