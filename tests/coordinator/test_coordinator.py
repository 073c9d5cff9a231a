"""CoordinatorActor and its directory: unknown, new, deleted and loaded groups."""

from __future__ import annotations

from typing import Any

import pytest
from actor_system.requests import GROUP, commit, fetch, heartbeat, join, leave, offers, sync
from actor_system.simulation import CoordinatorSimulation

from callboard.actors.error_reply import error_reply
from callboard.actors.errors import ErrorCode
from callboard.actors.javahash import offsets_partition
from callboard.actors.messages import (
    Committed,
    DeleteGroup,
    Described,
    DescribeGroup,
    Fetched,
    FetchedOffset,
    GroupRequest,
    Joined,
    Left,
    LeftMember,
    ListedGroup,
    OffsetFetch,
    Shutdown,
    Synced,
)
from callboard.actors.records import CLASSIC, OffsetRecord

UNKNOWN_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID


@pytest.fixture
def simulation() -> CoordinatorSimulation:
    return CoordinatorSimulation()


# Unknown groups ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (join("ghost"), Joined(UNKNOWN_MEMBER, member_id="ghost")),
        (sync("ghost", 1), Synced(UNKNOWN_MEMBER)),
        (heartbeat("ghost", 1), UNKNOWN_MEMBER),
        (
            leave("a", "b"),
            Left(ErrorCode.NONE, (LeftMember("a", None, UNKNOWN_MEMBER), LeftMember("b", None, UNKNOWN_MEMBER))),
        ),
        (commit(generation_id=0, member_id="ghost"), Committed((ErrorCode.GROUP_ID_NOT_FOUND,))),
        (commit(generation_id=0, supports_group_id_not_found=False), Committed((ErrorCode.ILLEGAL_GENERATION,))),
        (
            fetch(partitions=[0]),
            Fetched(ErrorCode.NONE, (("t", (FetchedOffset(0, -1, -1, "", ErrorCode.NONE),)),)),
        ),
        (OffsetFetch(GROUP, None, True), Fetched(ErrorCode.NONE, ())),
        (DescribeGroup(GROUP), Described(ErrorCode.NONE, GROUP, "Dead")),
        (DeleteGroup(GROUP), ErrorCode.GROUP_ID_NOT_FOUND),
    ],
    ids=lambda request: type(request).__name__,
)
def test_request_to_unknown_group_does_not_create_it(
    simulation: CoordinatorSimulation, request_: GroupRequest, expected: Any
) -> None:
    assert simulation.post(request_).value == expected
    assert simulation.directory.groups == {}
    assert simulation.listed() == ()


@pytest.mark.parametrize("request_", [join(), join(version=4), commit(), commit(member_id="anybody")])
def test_join_or_simple_commit_creates_group(simulation: CoordinatorSimulation, request_: GroupRequest) -> None:
    simulation.post(request_)
    assert list(simulation.directory.groups) == [GROUP]


def test_two_pipelined_requests_create_one_group(simulation: CoordinatorSimulation) -> None:
    """Both requests are sent before the group exists."""
    join_reply, commit_reply = simulation.send(join()), simulation.send(commit(3))
    simulation.run()
    assert len(simulation.directory.groups) == 1
    assert join_reply.is_waiting
    assert commit_reply.value == Committed((UNKNOWN_MEMBER,)), "a group with members refuses simple commits"


# Invalid requests ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", [join(group_id=""), sync("m", 1, group_id=""), leave("m", group_id="")])
def test_member_requests_with_empty_group_id_return_24(
    simulation: CoordinatorSimulation, request_: GroupRequest
) -> None:
    answer = simulation.post(request_).value
    assert answer.error is ErrorCode.INVALID_GROUP_ID
    assert simulation.post(heartbeat("m", 1, group_id="")).value is ErrorCode.INVALID_GROUP_ID


def test_offsets_can_be_committed_with_empty_group_id(simulation: CoordinatorSimulation) -> None:
    assert simulation.post(commit(5, group_id="")).value == Committed((ErrorCode.NONE,))
    assert simulation.post(fetch(group_id="")).value.topics[0][1][0].offset == 5
    assert simulation.post(DescribeGroup("")).value.state == "Empty"
    assert simulation.post(heartbeat("m", 1, group_id="")).value is ErrorCode.INVALID_GROUP_ID
    assert simulation.post(DeleteGroup("")).value is ErrorCode.NONE


@pytest.mark.parametrize(
    ("session_ms", "is_valid"), [(5999, False), (6000, True), (1_800_000, True), (1_800_001, False)]
)
@pytest.mark.parametrize("group_exists", [True, False])
def test_join_with_session_timeout_out_of_range_returns_26(
    simulation: CoordinatorSimulation, session_ms: int, is_valid: bool, group_exists: bool
) -> None:
    if group_exists:
        simulation.post(join())
    reply = simulation.post(join("", session_ms=session_ms))
    assert reply.is_waiting is is_valid
    if not is_valid:
        assert reply.value == Joined(ErrorCode.INVALID_SESSION_TIMEOUT)
        assert (GROUP in simulation.directory.groups) is group_exists
        assert simulation.post(join("me", session_ms=session_ms)).value.member_id == "me"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (join("m"), Joined(ErrorCode.NOT_COORDINATOR)),
        (sync("m", 1), Synced(ErrorCode.NOT_COORDINATOR)),
        (heartbeat("m", 1), ErrorCode.NOT_COORDINATOR),
        (leave("m"), Left(ErrorCode.NOT_COORDINATOR)),
        (commit()._replace(commits=commit().commits * 2), Committed((ErrorCode.NOT_COORDINATOR,) * 2)),
        (fetch(), Fetched(ErrorCode.NOT_COORDINATOR)),
        (DescribeGroup("g"), Described(ErrorCode.NOT_COORDINATOR, "g")),
        (DeleteGroup("g"), ErrorCode.NOT_COORDINATOR),
    ],
    ids=lambda request: type(request).__name__,
)
def test_error_reply_for_every_request(request_: GroupRequest, expected: Any) -> None:
    assert error_reply(request_, ErrorCode.NOT_COORDINATOR) == expected


# Listing -------------------------------------------------------------------------------------------------------------


def test_list_groups_follows_state_changes(simulation: CoordinatorSimulation) -> None:
    def states(**filters: frozenset[str]) -> dict[str, str]:
        return {group.group_id: group.state for group in simulation.listed(**filters)}

    simulation.post(commit(group_id="simple"))
    simulation.post(join(group_id="waiting", version=4))
    simulation.form_group({"group_id": "settled"})
    simulation.post(join(group_id="gathering"))
    assert states() == {
        "simple": "Empty",
        "waiting": "Empty",
        "settled": "Stable",
        "gathering": "PreparingRebalance",
    }
    assert states(states=frozenset({"stable"})) == {"settled": "Stable"}
    assert set(states(states=frozenset({"empty", "stable"}))) == {"simple", "waiting", "settled"}
    assert states(states=frozenset({"assigning"})) == {}
    assert len(states(types=frozenset({"classic"}))) == 4
    assert states(types=frozenset({"consumer"})) == {}
    simulation.advance(3000)
    assert states()["gathering"] == "CompletingRebalance"


def test_list_groups_filters_by_type(simulation: CoordinatorSimulation) -> None:
    simulation.form_group({"protocol_type": "consumer", "protocols": offers("range")})
    assert simulation.listed() == (ListedGroup(GROUP, "consumer", "Stable", CLASSIC),)
    simulation.post(commit(group_id="simple"))
    assert ListedGroup("simple", "", "Empty", CLASSIC) in simulation.listed()


def test_group_reports_only_changed_listings(simulation: CoordinatorSimulation) -> None:
    """Otherwise every request would send a message to the coordinator."""
    simulation.post(commit(group_id="simple"))
    group = simulation.group("simple")
    pending = simulation.post(join(group_id="simple", version=4)).value.member_id
    listed_before = group.active.listed
    simulation.send(leave(pending, group_id="simple"))
    simulation.dispatcher.step()
    assert group.active.listed is listed_before
    assert simulation.coordinator.actor_inbox.empty()


# Deletion ------------------------------------------------------------------------------------------------------------


def test_deleted_group_can_be_created_again(simulation: CoordinatorSimulation) -> None:
    simulation.post(commit(5))
    old_ref = simulation.directory.groups[GROUP]
    assert simulation.post(DeleteGroup(GROUP)).value is ErrorCode.NONE
    assert simulation.directory.groups == {}
    assert not old_ref.is_alive()
    assert simulation.post(fetch()).value.topics[0][1][0].offset == -1
    simulation.post(commit(6))
    assert simulation.directory.groups[GROUP] is not old_ref
    assert simulation.post(fetch()).value.topics[0][1][0].offset == 6
    assert [group.group_id for group in simulation.listed()] == [GROUP]


def test_new_group_starts_at_generation_1(simulation: CoordinatorSimulation) -> None:
    member = simulation.form_group({})[0]
    simulation.post(leave(member.member_id))
    assert simulation.post(DeleteGroup(GROUP)).value is ErrorCode.NONE
    assert simulation.form_group({})[0].generation_id == 1


def test_shutdown_is_answered_after_earlier_requests_are_routed(simulation: CoordinatorSimulation) -> None:
    """The shutdown includes groups that earlier requests create."""
    join_replies = [simulation.send(join(group_id=f"g{number}")) for number in range(5)]
    assert simulation.ask(Shutdown()).value is None
    assert len(simulation.directory.groups) == 5
    for group_id in list(simulation.directory.groups):
        simulation.tell(group_id, Shutdown())
    assert [reply.error for reply in join_replies] == [ErrorCode.NOT_COORDINATOR] * 5


# Loading -------------------------------------------------------------------------------------------------------------


def test_groups_are_restored_from_log(simulation: CoordinatorSimulation) -> None:
    leader, follower = simulation.form_group({"session_ms": 10_000}, {"session_ms": 10_000})
    simulation.post(commit(5, member_id=leader.member_id, generation_id=1))
    simulation.post(commit(9, group_id="simple"))
    restarted = CoordinatorSimulation(simulation.log.groups(), log=simulation.log)
    assert {group.group_id: group.state for group in restarted.listed()} == {
        GROUP: "Stable",
        "simple": "Empty",
    }
    assert restarted.post(fetch()).value.topics[0][1][0].offset == 5
    assert restarted.post(fetch(group_id="simple")).value.topics[0][1][0].offset == 9
    assert restarted.post(heartbeat(leader.member_id, 1)).value is ErrorCode.NONE
    assert restarted.post(sync(follower.member_id, 1)).value.assignment == b"of " + follower.member_id.encode()
    restarted.advance(10_000)
    assert restarted.post(DescribeGroup(GROUP)).value.state == "Empty", "the sessions have restarted"


def test_group_in_preparing_rebalance_is_restored_from_last_record(simulation: CoordinatorSimulation) -> None:
    leader, follower = simulation.form_group({}, {})
    simulation.post(join(leader.member_id))
    restarted = CoordinatorSimulation(simulation.log.groups())
    assert restarted.post(DescribeGroup(GROUP)).value.state == "Stable"
    assert restarted.post(heartbeat(follower.member_id, 1)).value is ErrorCode.NONE


def test_records_are_appended_to_partition_of_group(simulation: CoordinatorSimulation) -> None:
    for name in ("hello", "my-group", "polygenelubricants"):
        simulation.post(commit(group_id=name))
    partitions_by_group = {
        record.group_id: partition for partition, record in simulation.log.durable if isinstance(record, OffsetRecord)
    }
    assert partitions_by_group == {
        name: offsets_partition(name, 50) for name in ("hello", "my-group", "polygenelubricants")
    }


def test_requests_do_not_overtake_those_in_coordinator_mailbox(simulation: CoordinatorSimulation) -> None:
    """Pipelined first commits: the group appears in the directory while some of them are still in the mailbox."""
    for offset in (1, 2, 3):
        simulation.send(commit(offset))
    simulation.dispatcher.step()  # the coordinator handles the first commit and creates the group
    assert GROUP in simulation.directory.groups
    simulation.send(commit(4))
    simulation.run()
    [response] = simulation.post(fetch()).answers
    assert [fetched.offset for _, partitions in response.topics for fetched in partitions] == [4]
