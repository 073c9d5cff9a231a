"""GroupActor with a log in the test's hand: what is durable first, who waits for it, and what a bug leaves behind."""

from __future__ import annotations

from typing import Any

import pytest
from stage.held import FINE, begun, fetched, held_world, stable
from stage.requests import GROUP, commit, fetch, heartbeat, join, leave, sync
from stage.transactions import txn_commit
from stage.world import World

from callboard.actors.error_reply import error_reply
from callboard.actors.errors import ErrorCode
from callboard.actors.group.classic import ClassicGroup
from callboard.actors.group.in_flight import APPEND_ERRORS
from callboard.actors.group.states import State
from callboard.actors.messages import (
    Commit,
    Committed,
    DeleteGroup,
    Described,
    DescribeGroup,
    GroupRequest,
    Joined,
    LeavingMember,
    Left,
    LeftMember,
    ListedGroup,
    ListGroups,
    OffsetDelete,
    OffsetFetch,
    Shutdown,
    Synced,
)
from callboard.actors.records import GroupRecord, GroupValue, OffsetRecord


@pytest.fixture
def world() -> World:
    return held_world()


# Durable first -------------------------------------------------------------------------------------------------------


def test_a_commit_is_neither_answered_nor_visible_before_it_is_durable(world: World) -> None:
    place = world.post(commit(7))
    assert place.is_waiting
    assert fetched(world) == -1
    world.keep()
    assert place.value == FINE
    assert fetched(world) == 7


def test_a_failed_commit_leaves_no_trace(world: World) -> None:
    world.post(commit(7))
    world.keep()
    place = world.post(commit(8))
    world.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert place.value == Committed((ErrorCode.NOT_COORDINATOR,))
    assert fetched(world) == 7


@pytest.mark.parametrize(
    ("append_error", "answer"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_append_errors_are_mapped(world: World, append_error: ErrorCode, answer: ErrorCode) -> None:
    place = world.post(commit())
    world.fail(append_error)
    assert place.value == Committed((answer,))
    joining = world.post(join())
    world.advance(3000)
    syncing = world.post(sync(joining.value.member_id, 1))
    world.fail(append_error)
    assert syncing.value == Synced(answer)


def test_a_refused_partition_keeps_its_own_error_when_the_rest_fails(world: World) -> None:
    world.rules.offset_metadata_max_bytes = 3
    request = commit()._replace(commits=(Commit("t", 0, 1, -1, "long"), Commit("t", 1, 1, -1, "")))
    place = world.post(request)
    world.fail()
    assert place.value == Committed((ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NOT_COORDINATOR))


def test_commits_with_nothing_to_write_are_answered_at_once(world: World) -> None:
    world.rules.offset_metadata_max_bytes = 3
    assert world.post(commit(metadata="long")).value == Committed((ErrorCode.OFFSET_METADATA_TOO_LARGE,))
    assert world.post(commit()._replace(commits=())).value == Committed(())
    assert not world.log.rounds


def test_a_refused_commit_is_refused_for_each_partition(world: World) -> None:
    request = commit(generation_id=3, member_id="ghost")._replace(commits=commit().commits * 3)
    world.post(join())
    assert world.post(request).value == Committed((ErrorCode.UNKNOWN_MEMBER_ID,) * 3)


def test_one_commit_is_one_entry(world: World) -> None:
    """All of it is kept, or nothing."""
    world.post(commit()._replace(commits=tuple(Commit("t", number, 1, -1, "") for number in range(5))))
    assert [len(entry.records) for entry in world.log.in_flight] == [5]


def test_members_sync_when_it_is_durable(world: World) -> None:
    joining = begun(world, {"client": "a"}, {"client": "b"})
    world.advance(6000)
    leader, follower = (place.value for place in joining)
    parts = {follower.member_id: b"part"}
    syncing = [world.post(sync(follower.member_id, 1)), world.post(sync(leader.member_id, 1, parts))]
    assert all(place.is_waiting for place in syncing)
    assert world.post(heartbeat(leader.member_id, 1)).value is ErrorCode.NONE
    assert world.post(DescribeGroup(GROUP)).value.state == "CompletingRebalance"
    world.keep()
    assert [place.value.assignment for place in syncing] == [b"part", b""]
    assert world.post(DescribeGroup(GROUP)).value.state == "Stable"
    data = world.log.groups()[GROUP]
    assert data.value == world.group().data.value
    assert data.value is not None
    assert data.value.generation == 1


# The first record and the last ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"version": 4}, ErrorCode.MEMBER_ID_REQUIRED),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({}, None),
    ],
)
def test_a_new_group_is_in_the_log_before_it_has_members(
    world: World, options: dict[str, Any], error: ErrorCode | None
) -> None:
    """Kafka's record: nothing but the group's name. Nobody waits for it, and it is written once."""
    place = world.post(join(**options))
    assert place.is_waiting if error is None else place.error is error
    world.post(join(version=4, client="another"))
    world.keep()
    assert not world.log.in_flight
    state_timestamp_ms = world.group()._group.state_timestamp_ms
    first = GroupRecord(GROUP, GroupValue("", 0, None, None, state_timestamp_ms, ()))
    assert [record for _, record in world.log.durable] == [first]


def test_a_group_that_has_offsets_is_not_new(world: World) -> None:
    world.post(commit(1))
    world.post(join(version=4))
    world.keep_all()
    assert [type(record) for _, record in world.log.durable] == [OffsetRecord]


def test_a_group_of_pending_members_outlives_a_restart(world: World) -> None:
    world.post(join(version=4))
    world.keep()
    after = World(world.log.groups())
    assert after.ask(ListGroups()).value == (ListedGroup(GROUP, "", "Empty", "classic"),)


@pytest.mark.parametrize("error", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.MESSAGE_TOO_LARGE])
def test_without_its_first_record_there_is_no_group(world: World, error: ErrorCode) -> None:
    """Whoever waits hears of it, whoever was given an id is unknown, and the next one begins anew."""
    pending, parked = world.post(join(version=4)), world.post(join())
    world.fail(error)
    assert parked.error is APPEND_ERRORS.get(error, error)
    assert world.post(join(pending.value.member_id)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert not world.log.in_flight
    again = world.post(join(version=4))
    world.keep()
    assert isinstance(world.log.durable[0][1], GroupRecord)
    assert list(world.group()._group.members.pending) == [again.value.member_id]


def test_the_last_to_leave_hears_of_it_when_it_is_durable(world: World) -> None:
    leader, follower = stable(world)
    first = world.post(leave(follower.member_id))
    assert first.value.error is ErrorCode.NONE, "there is nothing to write while somebody stays"
    last = world.post(leave(leader.member_id))
    assert last.is_waiting
    assert world.post(DescribeGroup(GROUP)).value.state == "Empty"
    world.keep()
    assert last.value == Left(ErrorCode.NONE, (LeftMember(leader.member_id, None, ErrorCode.NONE),))


@pytest.mark.parametrize("error", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.MESSAGE_TOO_LARGE])
def test_the_last_to_leave_has_gone_even_if_that_cannot_be_written(world: World, error: ErrorCode) -> None:
    [only] = stable(world, {})
    place = world.post(leave(only.member_id))
    world.fail(error)
    assert place.value == Left(APPEND_ERRORS.get(error, error))
    assert world.post(heartbeat(only.member_id, 1)).value is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_to_leave_is_answered_whatever_happens_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    [only] = stable(world, {})
    place = world.post(leave(only.member_id))

    def failing(*_args: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(ClassicGroup, "heartbeat", failing)
        assert world.post(heartbeat("anybody", 1)).errors
    assert place.is_waiting
    world.keep()
    assert place.value.error is ErrorCode.NONE
    assert world.post(DescribeGroup(GROUP)).value.state == "Empty"


# Fetches that wait ---------------------------------------------------------------------------------------------------


def test_a_fetch_that_must_be_stable_waits_for_what_came_before_it(world: World) -> None:
    first = world.post(commit(1))
    stable_1 = world.post(fetch(require_stable=True))
    world.post(commit(2))
    stable_2 = world.post(fetch(require_stable=True))
    assert stable_1.is_waiting
    assert fetched(world) == -1, "others do not wait"
    world.keep()
    assert first.value == FINE
    assert stable_1.value.topics[0][1][0].offset == 1
    assert stable_2.is_waiting
    world.keep()
    assert stable_2.value.topics[0][1][0].offset == 2
    assert not world.post(fetch(require_stable=True)).is_waiting


def test_a_failed_commit_ends_the_wait_too(world: World) -> None:
    world.post(commit(1))
    waiting = world.post(OffsetFetch(GROUP, None, require_stable=True))
    world.fail()
    assert waiting.value.topics == ()


# Deletion ------------------------------------------------------------------------------------------------------------


def test_a_deletion_waits_for_commits_on_their_way(world: World) -> None:
    world.post(commit(1))
    world.keep()
    late = world.post(commit(2, partition=1))
    deleting = world.post(DeleteGroup(GROUP))
    assert deleting.is_waiting
    world.keep()
    assert late.value == FINE
    assert deleting.is_waiting, "its tombstones are on their way"
    assert [type(one) for one in world.log.in_flight[0].records] == [OffsetRecord, OffsetRecord, GroupRecord]
    world.keep()
    assert deleting.value is ErrorCode.NONE
    assert world.log.groups()[GROUP].is_empty()
    assert GROUP not in world.directory.groups
    assert world.ask(ListGroups()).value == ()


def test_later_requests_meet_the_new_group(world: World) -> None:
    world.post(commit(1))
    world.keep()
    world.post(DeleteGroup(GROUP))
    later = {
        "commit": world.post(commit(5)),
        "join": world.post(join()),
        "delete": world.post(DeleteGroup(GROUP)),
    }
    assert fetched(world) == 1, "what is not durable has not happened"
    assert all(place.is_waiting for place in later.values())
    world.keep()
    assert all(place.is_waiting for place in (later["commit"], later["join"]))
    assert later["delete"].value is ErrorCode.NON_EMPTY_GROUP, "a member has joined in between"
    world.keep()
    assert later["commit"].value == FINE
    world.advance(3000)
    assert later["join"].value.generation_id == 1
    assert fetched(world) == 5


def test_a_deletion_that_fails_leaves_the_group(world: World) -> None:
    world.post(commit(1))
    world.keep()
    deleting = world.post(DeleteGroup(GROUP))
    later = world.post(commit(2))
    world.fail()
    assert deleting.value is ErrorCode.NOT_COORDINATOR
    world.keep()
    assert later.value == FINE
    assert fetched(world) == 2
    assert world.group()._in_flight.deletion is None


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
def test_a_group_with_members_is_not_deleted(world: World, state: str) -> None:
    [joining] = begun(world)
    if state != "PreparingRebalance":
        world.advance(3000)
    if state == "Stable":
        world.post(sync(joining.value.member_id, 1))
        world.keep()
    assert world.post(DescribeGroup(GROUP)).value.state == state
    assert world.post(DeleteGroup(GROUP)).value is ErrorCode.NON_EMPTY_GROUP


def test_a_group_of_pending_members_is_deleted(world: World) -> None:
    pending = world.post(join(version=4)).value.member_id
    deleting = world.post(DeleteGroup(GROUP))
    world.keep_all()
    assert deleting.value is ErrorCode.NONE
    assert world.post(join(pending)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.deadlines == 0, "nobody waits for its id any more"


def test_a_deletion_is_answered_once_however_often_it_is_asked(world: World) -> None:
    world.post(commit(1))
    deletions = [world.post(DeleteGroup(GROUP)) for _ in range(3)]
    world.keep_all()
    assert deletions[0].value is ErrorCode.NONE
    assert [place.value for place in deletions[1:]] == [ErrorCode.GROUP_ID_NOT_FOUND] * 2


# Time ----------------------------------------------------------------------------------------------------------------


def test_sessions_run_through_the_timer(world: World) -> None:
    stable(world, {"session_ms": 10_000}, {"session_ms": 20_000})
    world.advance(9990)
    assert len(world.group()._group.members) == 2
    world.advance(10)
    assert len(world.group()._group.members) == 1
    assert world.post(DescribeGroup(GROUP)).value.state == "PreparingRebalance"


def test_an_empty_group_is_in_the_log(world: World) -> None:
    stable(world, {})
    world.post(leave(*world.group()._group.members.by_id))
    world.keep()
    value = world.log.groups()[GROUP].value
    assert value is not None
    assert (value.generation, value.members) == (2, ())


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_deadline_that_comes_nearer_is_told_to_the_timer(world: World, is_commit: bool) -> None:
    """The member came back with a shorter session timeout; its next sign of life counts with that."""
    leader, _ = stable(world, {"session_ms": 100_000}, {"session_ms": 200_000})
    world.post(join(leader.member_id, session_ms=6000))
    me = leader.member_id
    world.post(commit(member_id=me, generation_id=1) if is_commit else heartbeat(me, 1))
    assert world.alarm.due_ms == world.clock.now_ms + 6000


def test_heartbeats_send_nothing_to_anybody(world: World) -> None:
    leader, _ = stable(world)
    before = len(world.log.rounds)
    inbox = world.timer.actor_inbox
    for _ in range(3):
        place = world.send(heartbeat(leader.member_id, 1))
        world.dispatcher.step()
        assert place.value is ErrorCode.NONE
        assert inbox.empty()
        assert world.coordinator.actor_inbox.empty()
    assert len(world.log.rounds) == before


# The end -------------------------------------------------------------------------------------------------------------


def test_shutdown_answers_who_waits(world: World) -> None:
    leader, _ = stable(world)
    joining = world.post(join(leader.member_id))
    late = world.post(commit(1, member_id=leader.member_id, generation_id=1))
    waiting = world.post(fetch(require_stable=True))
    world.tell(GROUP, Shutdown())
    assert joining.value == Joined(ErrorCode.NOT_COORDINATOR, member_id=leader.member_id)
    world.keep()
    assert late.value == FINE, "what was decided is answered"
    assert not waiting.is_waiting
    assert world.post(heartbeat(leader.member_id, 1)).value is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_after_shutdown_no_session_ends(world: World) -> None:
    leader, _ = stable(world)
    world.tell(GROUP, Shutdown())
    world.post(heartbeat(leader.member_id, 1))
    world.advance(100_000)
    assert world.group()._group.state is State.DEAD


TO_A_DEAD_GROUP: dict[str, tuple[GroupRequest, ErrorCode]] = {
    "a new member joins": (join(), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    "an id that is not known joins": (join("ghost"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    "a static member joins": (join(instance="seat"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    "sync": (sync("ghost", 1), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    "sync of a static member": (sync("ghost", 1, instance="seat"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    "heartbeat": (heartbeat("ghost", 1), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    "leave": (leave("ghost"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    "leave of several": (leave("ghost", LeavingMember("", "seat")), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    "commit": (commit(member_id="ghost", generation_id=1), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    "commit without a member": (commit(), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    "commit in a transaction": (txn_commit((1, 0), 5), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    "delete offsets": (OffsetDelete(GROUP, (("t", (0,)),)), ErrorCode.GROUP_ID_NOT_FOUND),
    "delete": (DeleteGroup(GROUP), ErrorCode.GROUP_ID_NOT_FOUND),
}


@pytest.mark.parametrize(("request_", "error"), TO_A_DEAD_GROUP.values(), ids=TO_A_DEAD_GROUP.keys())
def test_a_dead_group_refuses_as_kafkas_does(world: World, request_: GroupRequest, error: ErrorCode) -> None:
    stable(world)
    world.tell(GROUP, Shutdown())
    assert world.post(request_).value == error_reply(request_, error)
    assert world.post(DescribeGroup(GROUP)).value == Described(ErrorCode.NONE, GROUP, State.DEAD.value)


def test_a_dead_group_still_says_what_is_durable(world: World) -> None:
    """Kafka reads nothing in a dead group, which there was deleted; here it is one that stops, and "none" would lie."""
    world.post(commit(7))
    world.keep()
    world.tell(GROUP, Shutdown())
    assert fetched(world) == 7


# In any order --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_nothing_depends_on_the_order_of_the_mailboxes(seed: int) -> None:
    """Group, writer, timer and coordinator take turns as a seed has it: requests of one sender keep their order."""
    world = World(seed=seed)
    joined = world.form({}, {}, {})
    places = [
        world.send(commit(offset, member_id=joined[offset % 3].member_id, generation_id=1)) for offset in range(30)
    ]
    last = world.send(fetch(require_stable=True))
    world.run()
    assert [place.value for place in places] == [FINE] * 30
    assert last.value.topics[0][1][0].offset == 29
    deleting = [world.send(leave(*[one.member_id for one in joined])), world.send(DeleteGroup(GROUP))]
    later = world.send(commit(77))
    world.run()
    assert deleting[1].value is ErrorCode.NONE
    assert later.value == FINE
    assert fetched(world) == 77
    data = world.log.groups()[GROUP]
    assert data.value is None
    assert {(topic, value.offset) for topic, _, value in data.offsets} == {("t", 77)}
