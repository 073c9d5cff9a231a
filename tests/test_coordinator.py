"""CoordinatorActor and its directory: groups that are not there, that come, that go, that the log knows."""

from __future__ import annotations

from typing import Any

import pytest
from stage.requests import GROUP, commit, fetch, heartbeat, join, leave, offers, sync
from stage.world import World

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
    ListGroups,
    OffsetFetch,
    Shutdown,
    Synced,
)
from callboard.actors.records import OffsetRecord

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


@pytest.fixture
def world() -> World:
    return World()


# Groups that are not there -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (join("ghost"), Joined(UNKNOWN, member_id="ghost")),
        (sync("ghost", 1), Synced(UNKNOWN)),
        (heartbeat("ghost", 1), UNKNOWN),
        (leave("a", "b"), Left(ErrorCode.NONE, (LeftMember("a", None, UNKNOWN), LeftMember("b", None, UNKNOWN)))),
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
    ids=lambda one: type(one).__name__,
)
def test_a_group_that_is_not_there_is_not_made(world: World, request_: GroupRequest, answer: Any) -> None:
    assert world.post(request_).value == answer
    assert world.directory.groups == {}
    assert world.ask(ListGroups()).value == ()


@pytest.mark.parametrize("request_", [join(), join(version=4), commit(), commit(member_id="anybody")])
def test_a_join_and_a_simple_commit_make_a_group(world: World, request_: GroupRequest) -> None:
    world.post(request_)
    assert list(world.directory.groups) == [GROUP]


def test_two_requests_make_one_group(world: World) -> None:
    """Both were sent before the group was there."""
    first, second = world.send(join()), world.send(commit(3))
    world.run()
    assert len(world.directory.groups) == 1
    assert first.is_waiting
    assert second.value == Committed((UNKNOWN,)), "a simple consumer has no place among members"


# What no group sees --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", [join(group_id=""), sync("m", 1, group_id=""), leave("m", group_id="")])
def test_members_belong_to_groups_with_a_name(world: World, request_: GroupRequest) -> None:
    answer = world.post(request_).value
    assert answer.error is ErrorCode.INVALID_GROUP_ID
    assert world.post(heartbeat("m", 1, group_id="")).value is ErrorCode.INVALID_GROUP_ID


def test_offsets_may_belong_to_the_group_without_a_name(world: World) -> None:
    assert world.post(commit(5, group_id="")).value == Committed((ErrorCode.NONE,))
    assert world.post(fetch(group_id="")).value.topics[0][1][0].offset == 5
    assert world.post(DescribeGroup("")).value.state == "Empty"
    assert world.post(heartbeat("m", 1, group_id="")).value is ErrorCode.INVALID_GROUP_ID
    assert world.post(DeleteGroup("")).value is ErrorCode.NONE


@pytest.mark.parametrize(("session_ms", "fits"), [(5999, False), (6000, True), (1_800_000, True), (1_800_001, False)])
@pytest.mark.parametrize("exists", [True, False])
def test_session_timeouts_have_limits(world: World, session_ms: int, fits: bool, exists: bool) -> None:
    if exists:
        world.post(join())
    place = world.post(join("", session_ms=session_ms))
    assert place.is_waiting is fits
    if not fits:
        assert place.value == Joined(ErrorCode.INVALID_SESSION_TIMEOUT)
        assert (GROUP in world.directory.groups) is exists
        assert world.post(join("me", session_ms=session_ms)).value.member_id == "me"


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (join("m"), Joined(ErrorCode.NOT_COORDINATOR, member_id="m")),
        (sync("m", 1), Synced(ErrorCode.NOT_COORDINATOR)),
        (heartbeat("m", 1), ErrorCode.NOT_COORDINATOR),
        (leave("m"), Left(ErrorCode.NOT_COORDINATOR)),
        (commit()._replace(commits=commit().commits * 2), Committed((ErrorCode.NOT_COORDINATOR,) * 2)),
        (fetch(), Fetched(ErrorCode.NOT_COORDINATOR)),
        (DescribeGroup("g"), Described(ErrorCode.NOT_COORDINATOR, "g")),
        (DeleteGroup("g"), ErrorCode.NOT_COORDINATOR),
    ],
    ids=lambda one: type(one).__name__,
)
def test_every_request_can_be_refused(request_: GroupRequest, answer: Any) -> None:
    assert error_reply(request_, ErrorCode.NOT_COORDINATOR) == answer


# Listing -------------------------------------------------------------------------------------------------------------


def test_the_list_follows_the_states(world: World) -> None:
    def states(**filters: frozenset[str]) -> dict[str, str]:
        return {one.group_id: one.state for one in world.ask(ListGroups(**filters)).value}

    world.post(commit(group_id="simple"))
    world.post(join(group_id="waiting", version=4))
    world.form({"group_id": "settled"})
    world.post(join(group_id="gathering"))
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
    world.advance(3000)
    assert states()["gathering"] == "CompletingRebalance"


def test_a_listed_group_shows_its_type(world: World) -> None:
    world.form({"protocol_type": "consumer", "protocols": offers("range")})
    assert world.ask(ListGroups()).value == (ListedGroup(GROUP, "consumer", "Stable", "classic"),)
    world.post(commit(group_id="simple"))
    assert world.ask(ListGroups()).value[1] == ListedGroup("simple", "", "Empty", "classic")


def test_only_changes_are_told(world: World) -> None:
    """A listing costs the groups nothing, so they must not report what has not changed."""
    world.post(commit(group_id="simple"))
    group = world.group("simple")
    pending = world.post(join(group_id="simple", version=4)).value.member_id
    before = group._listed
    world.send(leave(pending, group_id="simple"))
    world.dispatcher.step()
    assert group._listed is before
    assert world.coordinator.actor_inbox.empty()


# Groups that go ------------------------------------------------------------------------------------------------------


def test_a_deleted_group_is_gone_and_may_come_back(world: World) -> None:
    world.post(commit(5))
    first = world.directory.groups[GROUP]
    assert world.post(DeleteGroup(GROUP)).value is ErrorCode.NONE
    assert world.directory.groups == {}
    assert not first.is_alive()
    assert world.post(fetch()).value.topics[0][1][0].offset == -1
    world.post(commit(6))
    assert world.directory.groups[GROUP] is not first
    assert world.post(fetch()).value.topics[0][1][0].offset == 6
    assert [one.group_id for one in world.ask(ListGroups()).value] == [GROUP]


def test_a_new_group_begins_at_generation_one(world: World) -> None:
    member = world.form({})[0]
    world.post(leave(member.member_id))
    assert world.post(DeleteGroup(GROUP)).value is ErrorCode.NONE
    assert world.form({})[0].generation_id == 1


def test_shutdown_is_answered_when_all_that_came_before_has_a_group(world: World) -> None:
    """Then the groups are asked, and none is missed that a request on its way was about to make."""
    joining = [world.send(join(group_id=f"g{number}")) for number in range(5)]
    assert world.ask(Shutdown()).value is None
    assert len(world.directory.groups) == 5
    for group_id in list(world.directory.groups):
        world.tell(group_id, Shutdown())
    assert [place.error for place in joining] == [ErrorCode.NOT_COORDINATOR] * 5


# What the log knows --------------------------------------------------------------------------------------------------


def test_groups_come_back_from_the_log(world: World) -> None:
    leader, follower = world.form({"session_ms": 10_000}, {"session_ms": 10_000})
    world.post(commit(5, member_id=leader.member_id, generation_id=1))
    world.post(commit(9, group_id="simple"))
    again = World(world.log.groups(), log=world.log)
    assert {one.group_id: one.state for one in again.ask(ListGroups()).value} == {GROUP: "Stable", "simple": "Empty"}
    assert again.post(fetch()).value.topics[0][1][0].offset == 5
    assert again.post(fetch(group_id="simple")).value.topics[0][1][0].offset == 9
    assert again.post(heartbeat(leader.member_id, 1)).value is ErrorCode.NONE
    assert again.post(sync(follower.member_id, 1)).value.assignment == b"of " + follower.member_id.encode()
    again.advance(10_000)
    assert again.post(DescribeGroup(GROUP)).value.state == "Empty", "the sessions run"


def test_a_group_that_was_preparing_comes_back_as_it_last_was(world: World) -> None:
    leader, follower = world.form({}, {})
    world.post(join(leader.member_id))
    again = World(world.log.groups())
    assert again.post(DescribeGroup(GROUP)).value.state == "Stable"
    assert again.post(heartbeat(follower.member_id, 1)).value is ErrorCode.NONE


def test_records_go_to_the_partition_of_their_group(world: World) -> None:
    for name in ("hello", "my-group", "polygenelubricants"):
        world.post(commit(group_id=name))
    found = {record.group_id: partition for partition, record in world.log.durable if isinstance(record, OffsetRecord)}
    assert found == {name: offsets_partition(name, 50) for name in ("hello", "my-group", "polygenelubricants")}


def test_nobody_overtakes_what_waits_at_the_coordinator(world: World) -> None:
    """A pipeline of first commits: the group appears in the directory while some of them still lie in the mailbox."""
    for offset in (1, 2, 3):
        world.send(commit(offset))
    world.dispatcher.step()  # the coordinator takes the first of them and makes the group
    assert GROUP in world.directory.groups
    world.send(commit(4))
    world.run()
    [answer] = world.post(fetch()).answers
    assert [one.offset for _, partitions in answer.topics for one in partitions] == [4]
