"""ResetOffsets: all members are removed and offsets are set in one entry; commits without a generation are refused."""

from __future__ import annotations

from typing import Any

import pytest
from actor_system.manual_log import fetch_offset, form_stable_group, held_simulation
from actor_system.requests import GROUP, commit, fetch, heartbeat, join, leave
from actor_system.simulation import CoordinatorSimulation
from actor_system.transactions import TransactionSimulation, txn_commit

from callboard.actors.errors import ErrorCode
from callboard.actors.group.events import Kind, Reason
from callboard.actors.group.leave_causes import ADMIN_REASON
from callboard.actors.group.reset_messages import (
    DescribeReset,
    OffsetsReset,
    ResetDescribed,
    ResetOffset,
    ResetOffsets,
)
from callboard.actors.group.resets import GUARD_MIN_MS
from callboard.actors.group.states import State
from callboard.actors.messages import DescribeEvents, ExplainGroup, LeavingMember, OffsetFetch
from callboard.actors.records import GroupRecord, OffsetRecord

RESET = ResetOffsets(GROUP, (ResetOffset("t", 0, 4), ResetOffset("t", 1, None)), "skip 7 orders")
REFUSED = (ErrorCode.UNKNOWN_MEMBER_ID,)
ACCEPTED = (ErrorCode.NONE,)


def committed_group(**options: Any) -> tuple[CoordinatorSimulation, list[str]]:
    """A Stable group of two members that has committed offset 9 of partition 0. Its log does not hold appends."""
    simulation = CoordinatorSimulation()
    members = simulation.form_group({**options}, {**options})
    generation = members[0].generation_id
    assert simulation.post(commit(9, member_id=members[0].member_id, generation_id=generation)).value.errors == ACCEPTED
    return simulation, [member.member_id for member in members]


def restarted(simulation: CoordinatorSimulation) -> CoordinatorSimulation:
    """A coordinator that has loaded what is durable."""
    after = CoordinatorSimulation(simulation.log.groups())
    after.clock.now_ms = simulation.clock.now_ms
    return after


# One change ----------------------------------------------------------------------------------------------------------


def test_members_and_offsets_change_in_one_entry() -> None:
    simulation = held_simulation()
    members = {member.member_id for member in form_stable_group(simulation)}
    reply = simulation.post(RESET)
    assert reply.is_waiting
    [entry] = simulation.log.in_flight
    group, *offsets = entry.records
    assert isinstance(group, GroupRecord) and group.value is not None and group.value.members == ()
    values = {each.partition: each.value for each in offsets if isinstance(each, OffsetRecord)}
    assert {partition: value and value.offset for partition, value in values.items()} == {0: 4, 1: None}
    simulation.complete_append()
    assert set(reply.value.removed) == members
    assert fetch_offset(simulation) == 4
    assert simulation.classic_group().state is State.EMPTY


def test_removed_members_are_told_and_named_in_the_events() -> None:
    simulation, members = committed_group()
    reply = simulation.post(RESET)
    assert reply.value == OffsetsReset(
        ErrorCode.NONE,
        tuple(members),
        (ResetOffset("t", 0, 9), ResetOffset("t", 1, None)),
        simulation.clock.wall_ms() + GUARD_MIN_MS,
    )
    assert [simulation.post(heartbeat(member, 1)).value for member in members] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    events = simulation.post(DescribeEvents(GROUP)).value.events
    removals = [event for event in events if event.kind is Kind.MEMBER_REMOVED]
    assert [(event.reason, event.client_reason) for event in removals] == [(Reason.RESET, "skip 7 orders")] * 2


def test_joins_that_wait_are_answered() -> None:
    simulation = CoordinatorSimulation()
    parked = simulation.post(join())
    assert parked.is_waiting
    assert simulation.post(RESET).value.error is ErrorCode.NONE
    assert parked.value.error is ErrorCode.UNKNOWN_MEMBER_ID
    simulation.advance(10_000)
    assert simulation.classic_group().state is State.EMPTY


def test_failed_append_leaves_members_and_offsets_durable() -> None:
    simulation = held_simulation()
    members = form_stable_group(simulation)
    simulation.post(commit(9, member_id=members[0].member_id, generation_id=members[0].generation_id))
    simulation.complete_append()
    reply = simulation.post(RESET)
    simulation.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert reply.value == OffsetsReset(ErrorCode.NOT_COORDINATOR)
    after = restarted(simulation)
    assert fetch_offset(after) == 9
    assert len(after.classic_group().members) == len(members)


@pytest.mark.parametrize("error", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.KAFKA_STORAGE_ERROR])
@pytest.mark.parametrize("others", [0, 300])
def test_failed_append_leaves_members_in_the_group(error: ErrorCode, others: int) -> None:
    simulation = held_simulation()
    members = form_stable_group(simulation, *({"client": f"c{number}"} for number in range(2 + others)))
    first = members[0].member_id
    reply = simulation.post(RESET)
    simulation.fail(error)
    expected = ErrorCode.MESSAGE_TOO_LARGE if error is ErrorCode.MESSAGE_TOO_LARGE else ErrorCode.NOT_COORDINATOR
    assert reply.value == OffsetsReset(expected)
    assert simulation.classic_group().state is State.STABLE
    assert len(simulation.classic_group().members) == len(members)
    assert simulation.post(heartbeat(first, members[0].generation_id)).value is ErrorCode.NONE
    sent = simulation.post(commit(9, member_id=first, generation_id=members[0].generation_id))
    simulation.complete_append()
    assert sent.value.errors == ACCEPTED


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE])
def test_joins_that_wait_are_told_what_became_of_the_reset(error: ErrorCode) -> None:
    """If it failed, they ask again, with their member ids."""
    simulation = held_simulation()
    members = form_stable_group(simulation)
    parked = simulation.post(join(member_id=members[0].member_id))
    reply = simulation.post(RESET)
    assert parked.is_waiting and reply.is_waiting
    if error:
        simulation.fail(error)
        assert parked.value.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    else:
        simulation.complete_append()
        assert parked.value.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_plan_changes_nothing() -> None:
    simulation, members = committed_group()
    plan = simulation.post(RESET._replace(is_plan=True)).value
    assert plan == OffsetsReset(ErrorCode.NONE, (), (ResetOffset("t", 0, 9), ResetOffset("t", 1, None)))
    assert fetch_offset(simulation) == 9
    assert [simulation.post(heartbeat(member, 1)).value for member in members] == [ErrorCode.NONE] * 2
    assert simulation.post(DescribeReset(GROUP)).value == ResetDescribed(ErrorCode.NONE)


def test_group_that_does_not_exist() -> None:
    assert CoordinatorSimulation().post(RESET).value == OffsetsReset(ErrorCode.GROUP_ID_NOT_FOUND)


def test_open_transaction_refuses_and_is_named() -> None:
    simulation = TransactionSimulation()
    producer = simulation.init()
    simulation.add_offsets(producer)
    assert simulation.commit(producer, 5).value.errors == ACCEPTED
    sent_ms = simulation.clock.wall_ms()
    simulation.advance(1000)
    refusal = OffsetsReset(ErrorCode.UNSTABLE_OFFSET_COMMIT, producer_id=producer[0], pending_since_ms=sent_ms)
    assert simulation.post(RESET).value == refusal
    assert simulation.post(RESET._replace(is_plan=True)).value == refusal


# What follows --------------------------------------------------------------------------------------------------------


def test_fetches_of_its_partitions_are_noticed_when_members_are_back() -> None:
    simulation, _ = committed_group()
    assert simulation.post(DescribeReset(GROUP)).value == ResetDescribed(ErrorCode.NONE)
    simulation.post(RESET._replace(change_id="c"))
    simulation.post(fetch())  # of a tool: there are no members
    nothing = ResetDescribed(ErrorCode.NONE, "c", (("t", 0), ("t", 1)))
    guarded_until_ms = simulation.clock.wall_ms() + GUARD_MIN_MS
    assert simulation.post(DescribeReset(GROUP)).value == nothing._replace(guarded_until_ms=guarded_until_ms)
    simulation.form_group({})
    simulation.post(OffsetFetch(GROUP, None))  # of a tool, too
    assert simulation.post(DescribeReset(GROUP)).value == nothing
    simulation.advance(1000)
    simulation.post(fetch())
    found = simulation.post(DescribeReset(GROUP)).value
    assert found == ResetDescribed(ErrorCode.NONE, "c", (("t", 1),), simulation.clock.wall_ms())


def test_fetch_that_waits_for_a_commit_is_noticed() -> None:
    simulation, _ = committed_group()
    simulation.post(RESET)
    [member] = simulation.form_group({})
    simulation.holds_appends = True
    simulation.post(commit(9, partition=2, member_id=member.member_id, generation_id=member.generation_id))
    waiting = simulation.post(fetch(require_stable=True))
    assert waiting.is_waiting
    simulation.complete_append()
    assert simulation.post(DescribeReset(GROUP)).value.unfetched == (("t", 1),)


def test_commit_of_a_client_that_is_no_member_is_in_the_plan() -> None:
    simulation, _ = committed_group()
    plan = RESET._replace(is_plan=True)
    assert simulation.post(plan).value.simple_commit_ms == -1
    simulation.advance(1000)
    assert simulation.post(commit(9)).value.errors == REFUSED  # it reads on nevertheless
    assert simulation.post(plan).value.simple_commit_ms == simulation.clock.wall_ms()


def test_commit_to_a_group_without_members_is_in_the_plan_after_a_restart() -> None:
    simulation, members = committed_group()
    plan = RESET._replace(is_plan=True)
    simulation.advance(1000)
    for member in members:
        simulation.post(leave(member))
    assert restarted(simulation).post(plan).value.simple_commit_ms == -1
    simulation.advance(1000)
    simulation.post(commit(9))
    assert restarted(simulation).post(plan).value.simple_commit_ms == simulation.clock.wall_ms()


# The guard -----------------------------------------------------------------------------------------------------------


def guarded_ms(simulation: CoordinatorSimulation) -> int:
    """For how long the group says that its offsets are guarded."""
    described_ms = simulation.post(DescribeReset(GROUP)).value.guarded_until_ms
    now = simulation.post(ExplainGroup(GROUP)).value.now
    assert now.guarded_until_ms == (None if described_ms == -1 else described_ms)
    return 0 if now.guarded_until_ms is None else now.guarded_until_ms - now.now_ms


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(("session_ms", "length_ms"), [(10_000, GUARD_MIN_MS), (90_500, 91_000)])
def test_commits_without_a_generation_to_its_partitions_are_refused_for_a_while(
    restarts: bool, session_ms: int, length_ms: int
) -> None:
    """For a minute, or the longest session timeout."""
    simulation, _ = committed_group(session_ms=session_ms)
    simulation.post(RESET)
    if restarts:
        simulation.advance(1000)
        simulation = restarted(simulation)
        length_ms -= 1000
    assert simulation.post(commit(9)).value.errors == REFUSED
    assert simulation.post(commit(9, partition=1)).value.errors == REFUSED  # its offset was deleted
    assert simulation.post(commit(9, member_id="somebody")).value.errors == REFUSED
    assert simulation.post(txn_commit((1000, 0), 9)).value.errors == REFUSED
    assert fetch_offset(simulation) == 4
    assert guarded_ms(simulation) == length_ms
    simulation.advance(length_ms - 1)
    assert simulation.post(commit(9)).value.errors == REFUSED
    simulation.advance(1)
    assert guarded_ms(simulation) == 0
    assert simulation.post(commit(9)).value.errors == ACCEPTED


@pytest.mark.parametrize("restarts", [False, True])
def test_other_partitions_are_not_guarded(restarts: bool) -> None:
    simulation, members = committed_group()
    simulation.post(commit(9, partition=2, member_id=members[0], generation_id=1))
    simulation.post(RESET)
    if restarts:
        simulation = restarted(simulation)
    assert simulation.post(commit(10, partition=2)).value.errors == ACCEPTED


def test_commits_are_refused_while_the_reset_is_in_flight() -> None:
    simulation = held_simulation()
    form_stable_group(simulation)
    reply = simulation.post(RESET)
    sent, sent_in_transaction = simulation.post(commit(9)), simulation.post(txn_commit((1000, 0), 9))
    assert reply.is_waiting
    assert [each.value.errors for each in (sent, sent_in_transaction)] == [REFUSED] * 2
    simulation.complete_append()
    assert fetch_offset(simulation) == 4


def test_guard_is_not_longer_than_the_longest_session_timeout_allowed() -> None:
    simulation, _ = committed_group(session_ms=90_000)
    simulation.settings.group_max_session_timeout_ms = 80_000
    simulation.post(RESET)
    assert guarded_ms(simulation) == 80_000


def test_members_that_do_not_become_a_generation_leave_the_guard() -> None:
    """Until then one that was evicted may still commit."""
    simulation, _ = committed_group()
    simulation.post(RESET)
    first = simulation.post(join(client="new"))
    simulation.advance(10_000)
    simulation.post(leave(first.value.member_id))
    assert simulation.classic_group().state is State.EMPTY
    assert simulation.post(commit(9)).value.errors == REFUSED
    assert guarded_ms(simulation) == GUARD_MIN_MS - 10_000


def test_next_generation_ends_the_guard() -> None:
    simulation, _ = committed_group()
    simulation.post(RESET)
    [member] = simulation.form_group({})
    sent = commit(5, member_id=member.member_id, generation_id=member.generation_id)
    assert simulation.post(sent).value.errors == ACCEPTED
    simulation.post(leave(member.member_id))
    assert simulation.post(commit(6)).value.errors == ACCEPTED
    assert guarded_ms(simulation) == 0


@pytest.mark.parametrize("restarts", [False, True])
def test_next_reset_is_not_refused_and_guarded_as_long(restarts: bool) -> None:
    """Members that the one before it has removed may still commit."""
    simulation, _ = committed_group(session_ms=90_000)
    simulation.post(RESET)
    until_ms = simulation.clock.wall_ms() + 90_000
    simulation.advance(1000)
    if restarts:
        simulation = restarted(simulation)
    again = simulation.post(RESET._replace(offsets=(ResetOffset("t", 0, 9), ResetOffset("t", 2, 9))))
    before = (ResetOffset("t", 0, 4), ResetOffset("t", 2, None))
    assert again.value == OffsetsReset(ErrorCode.NONE, (), before, until_ms)
    assert fetch_offset(simulation) == 9
    for partition in range(3):
        assert simulation.post(commit(10, partition=partition)).value.errors == REFUSED
    simulation.advance(89_000)
    assert simulation.post(commit(10)).value.errors == ACCEPTED


def test_reset_after_the_last_member_has_left_is_guarded_also_while_it_is_in_flight() -> None:
    simulation, members = committed_group()
    for member in members:
        simulation.post(leave(member))
    simulation.holds_appends = True
    reply = simulation.post(RESET)
    sent = simulation.post(commit(9))
    simulation.complete_append()
    assert reply.value.guarded_until_ms == simulation.clock.wall_ms() + GUARD_MIN_MS
    assert sent.value.errors == REFUSED
    assert simulation.post(commit(9)).value.errors == REFUSED


def test_reset_of_a_group_that_never_had_members_is_not_guarded() -> None:
    simulation = CoordinatorSimulation()
    simulation.post(commit(9))
    assert simulation.post(RESET).value.guarded_until_ms == -1
    assert simulation.post(commit(10)).value.errors == ACCEPTED


@pytest.mark.parametrize("restarts", [False, True])
def test_commit_just_before_the_last_member_leaves_is_no_reset(restarts: bool) -> None:
    """All in the same millisecond."""
    simulation, members = committed_group()
    for member in members:
        simulation.post(leave(member))
    if restarts:
        simulation = restarted(simulation)
    assert simulation.post(commit(5)).value.errors == ACCEPTED


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("after_ms", [0, 1, GUARD_MIN_MS])
def test_commit_after_the_last_member_was_removed_is_no_reset(restarts: bool, after_ms: int) -> None:
    simulation, members = committed_group()
    for member in members:
        simulation.post(leave(LeavingMember(member, None, ADMIN_REASON)))
    simulation.advance(after_ms)
    assert simulation.post(commit(5)).value.errors == ACCEPTED
    if restarts:
        simulation = restarted(simulation)
    assert simulation.post(commit(6)).value.errors == ACCEPTED


def test_clock_that_was_put_back_by_more_than_a_guard_guards_nothing() -> None:
    simulation, members = committed_group()
    for member in members:
        simulation.post(leave(member))
    after = restarted(simulation)
    after.settings.group_max_session_timeout_ms = GUARD_MIN_MS
    after.clock.now_ms -= 2 * GUARD_MIN_MS
    assert after.post(commit(5)).value.errors == ACCEPTED


def test_reset_is_no_commit_of_a_client_that_is_no_member() -> None:
    simulation, _ = committed_group()
    simulation.post(RESET)
    simulation.advance(2 * GUARD_MIN_MS)
    assert restarted(simulation).post(RESET._replace(is_plan=True)).value.simple_commit_ms == -1


# Many ----------------------------------------------------------------------------------------------------------------


def test_many_members_and_offsets_change_in_one_entry() -> None:
    simulation = held_simulation()
    members = form_stable_group(simulation, *({"client": f"c{number}"} for number in range(300)))
    offsets = tuple(ResetOffset("t", partition, 4) for partition in range(1000))
    reply = simulation.post(ResetOffsets(GROUP, offsets))
    [entry] = simulation.log.in_flight
    assert [type(record) for record in entry.records] == [GroupRecord] + [OffsetRecord] * 1000
    simulation.complete_append()
    assert len(reply.value.removed) == len(members)
    assert len(reply.value.before) == 1000
    after = restarted(simulation)
    assert after.post(commit(9, partition=999)).value.errors == REFUSED
    assert guarded_ms(after) == GUARD_MIN_MS
