"""Requests with many items are handled in steps: other groups go on, and the group itself waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from actor_system.instances import instance
from actor_system.ports import WALL_MS, FakeGroupSettings, RecordedReply
from actor_system.requests import GROUP, join
from actor_system.simulation import CoordinatorSimulation

from callboard.actors.errors import ErrorCode
from callboard.actors.group.expiry import MINUTE_MS
from callboard.actors.group.offsets import GroupData
from callboard.actors.messages import (
    Commit,
    Committed,
    ExpireOffsets,
    Fetched,
    GroupRequest,
    LeaveGroup,
    LeavingMember,
    Left,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
)
from callboard.actors.records import OffsetRecord, OffsetValue
from callboard.actors.steps import ITEMS_PER_STEP, SHORT_WORK_ITEMS

MANY = 5 * SHORT_WORK_ITEMS
OTHER = "another group"
RETENTION_MS = FakeGroupSettings().offsets_retention_minutes * MINUTE_MS
NONE = ErrorCode.NONE


def commit_of(partitions: int, group_id: str = GROUP, metadata: str = "") -> OffsetCommit:
    commits = tuple(Commit("t", partition, partition, -1, metadata) for partition in range(partitions))
    return OffsetCommit(group_id, "", None, -1, commits)


def fetch_of(partitions: int, group_id: str = GROUP) -> OffsetFetch:
    return OffsetFetch(group_id, (("t", tuple(range(partitions))),))


def leave_of(members: int, group_id: str = GROUP) -> LeaveGroup:
    return LeaveGroup(group_id, tuple(LeavingMember(f"unknown {number}", None) for number in range(members)))


def delete_of(partitions: int, group_id: str = GROUP) -> OffsetDelete:
    return OffsetDelete(group_id, (("t", tuple(range(partitions))),))


def turns_until_answered(simulation: CoordinatorSimulation, reply: RecordedReply) -> int:
    """Run until there is a reply; rounds of the log complete at once. Returns the number of turns."""
    turns = 0
    while not (reply.answers or reply.errors):
        if not simulation.dispatcher.step():
            simulation.log.complete_append()
        turns += 1
    return turns


@pytest.fixture
def simulation() -> CoordinatorSimulation:
    """A group with ``MANY`` offsets, and another one."""
    simulation = CoordinatorSimulation()
    assert simulation.post(commit_of(MANY)).value == Committed((NONE,) * MANY)
    simulation.post(commit_of(1, OTHER))
    return simulation


def test_long_commit_is_one_entry_of_the_log(simulation: CoordinatorSimulation) -> None:
    [[entry]] = [entries for entries in simulation.log.rounds if len(entries[0].records) > 1]
    assert [record.partition for record in entry.records] == list(range(MANY))  # type: ignore[union-attr]


def test_long_fetch_returns_the_same_as_short_ones(simulation: CoordinatorSimulation) -> None:
    fetched: Fetched = simulation.post(fetch_of(MANY + 1)).value
    [(topic, offsets)] = fetched.topics
    assert topic == "t"
    assert [offset.offset for offset in offsets] == [*range(MANY), -1]
    assert simulation.post(OffsetFetch(GROUP, None)).value == simulation.post(fetch_of(MANY)).value


def test_long_fetch_that_waits_for_a_commit_gets_its_offsets() -> None:
    simulation = CoordinatorSimulation(holds_appends=True)
    committed = simulation.post(commit_of(MANY))
    fetched = simulation.post(fetch_of(MANY)._replace(require_stable=True))
    assert committed.is_waiting and fetched.is_waiting
    simulation.complete_append()
    [(_, offsets)] = fetched.value.topics
    assert [offset.offset for offset in offsets] == list(range(MANY))


def test_commit_refuses_only_the_partitions_with_long_metadata(simulation: CoordinatorSimulation) -> None:
    request = commit_of(MANY, metadata="m" * 5000)
    errors = (ErrorCode.OFFSET_METADATA_TOO_LARGE,) * MANY
    assert simulation.post(request).value == Committed(errors, limit="offset_metadata_max_bytes")


def test_long_leave_has_a_result_for_each_member(simulation: CoordinatorSimulation) -> None:
    members = [simulation.post(join(client=f"c{number}")) for number in range(3)]
    simulation.advance(10_000)
    member_id = members[0].value.member_id
    request = leave_of(MANY)
    request = request._replace(
        members=(*request.members, LeavingMember(member_id, None), LeavingMember(member_id, None))
    )
    left: Left = simulation.post(request).value
    assert left.error is NONE
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [member.error for member in left.members] == [*[unknown] * MANY, NONE, unknown]
    assert len(simulation.classic_group().members) == 2


def test_long_delete_removes_the_offsets(simulation: CoordinatorSimulation) -> None:
    deleted = simulation.post(delete_of(MANY)).value
    assert (deleted.error, deleted.topics) == (NONE, (NONE,))
    assert all(offset.offset == -1 for offset in simulation.post(fetch_of(MANY)).value.topics[0][1])


@pytest.mark.parametrize("request_of", [commit_of, fetch_of, leave_of, delete_of])
def test_other_groups_are_served_during_a_long_request(
    simulation: CoordinatorSimulation, request_of: Callable[[int], GroupRequest]
) -> None:
    long_reply = simulation.send(request_of(MANY))
    other_reply = simulation.send(fetch_of(1, OTHER))
    behind_reply = simulation.send(fetch_of(1))
    assert turns_until_answered(simulation, other_reply) < 10
    assert long_reply.is_waiting and behind_reply.is_waiting
    assert turns_until_answered(simulation, long_reply) >= MANY / SHORT_WORK_ITEMS
    turns_until_answered(simulation, behind_reply)
    simulation.run()


def test_expiry_of_group_with_many_offsets_lets_other_groups_be_served() -> None:
    """Offsets that have not expired come first: to look again for each batch would pass all of them each time."""
    kept = 9 * MANY
    data = GroupData()
    for partition in range(10 * MANY):
        commit_ms = WALL_MS if partition < kept else WALL_MS - RETENTION_MS
        data.replay(OffsetRecord(GROUP, "t", partition, OffsetValue(1, commit_timestamp_ms=commit_ms)))
    simulation = CoordinatorSimulation({GROUP: data})
    simulation.post(commit_of(1))  # activates the group
    simulation.post(commit_of(1, OTHER))
    reply = RecordedReply()
    group = simulation.directory.groups[GROUP]
    group.post(ExpireOffsets(), reply)
    other_reply = simulation.send(fetch_of(1, OTHER))
    assert turns_until_answered(simulation, other_reply) < 10
    assert reply.is_waiting
    slices = 10 * MANY / ITEMS_PER_STEP / 2  # two pieces of a long turn are a slice, see ``Simulation.clock_ns``
    assert slices <= turns_until_answered(simulation, reply) < 2 * slices
    assert [partition for _, partition, _ in instance(group).data.offsets] == list(range(kept))
