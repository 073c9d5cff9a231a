"""GroupActor with a manual log: replies and state changes before and after records are durable."""

from __future__ import annotations

from typing import Any

import pytest
from actor_system.manual_log import COMMITTED, fetch_offset, form_stable_group, held_simulation, start_joining
from actor_system.requests import GROUP, commit, fetch, heartbeat, join, leave, sync
from actor_system.simulation import CoordinatorSimulation
from actor_system.transactions import txn_commit

from callboard.actors.errors import ErrorCode
from callboard.actors.group.classic import ClassicGroup
from callboard.actors.group.contexts import APPEND_ERRORS
from callboard.actors.group.requests import reject
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
    OffsetDelete,
    OffsetFetch,
    Shutdown,
    Synced,
)
from callboard.actors.records import CLASSIC, GroupRecord, GroupValue, OffsetRecord

METADATA_LIMIT = "offset_metadata_max_bytes"


@pytest.fixture
def simulation() -> CoordinatorSimulation:
    return held_simulation()


# Durable first -------------------------------------------------------------------------------------------------------


def test_commit_is_answered_and_visible_when_durable(simulation: CoordinatorSimulation) -> None:
    reply = simulation.post(commit(7))
    assert reply.is_waiting
    assert fetch_offset(simulation) == -1
    simulation.complete_append()
    assert reply.value == COMMITTED
    assert fetch_offset(simulation) == 7


def test_failed_commit_does_not_change_offsets(simulation: CoordinatorSimulation) -> None:
    simulation.post(commit(7))
    simulation.complete_append()
    reply = simulation.post(commit(8))
    simulation.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert reply.value == Committed((ErrorCode.NOT_COORDINATOR,))
    assert fetch_offset(simulation) == 7


@pytest.mark.parametrize(
    ("append_error", "expected_error"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_append_error_is_mapped_for_clients(
    simulation: CoordinatorSimulation, append_error: ErrorCode, expected_error: ErrorCode
) -> None:
    reply = simulation.post(commit())
    simulation.fail(append_error)
    assert reply.value == Committed((expected_error,))
    join_reply = simulation.post(join())
    simulation.advance(3000)
    sync_reply = simulation.post(sync(join_reply.value.member_id, 1))
    simulation.fail(append_error)
    assert sync_reply.value == Synced(expected_error)


def test_refused_partition_keeps_own_error_if_append_fails(simulation: CoordinatorSimulation) -> None:
    simulation.settings.offset_metadata_max_bytes = 3
    request = commit()._replace(commits=(Commit("t", 0, 1, -1, "long"), Commit("t", 1, 1, -1, "")))
    reply = simulation.post(request)
    simulation.fail()
    assert reply.value == Committed(
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NOT_COORDINATOR), limit=METADATA_LIMIT
    )


def test_commit_without_records_is_answered_at_once(simulation: CoordinatorSimulation) -> None:
    simulation.settings.offset_metadata_max_bytes = 3
    assert simulation.post(commit(metadata="long")).value == Committed(
        (ErrorCode.OFFSET_METADATA_TOO_LARGE,), limit=METADATA_LIMIT
    )
    assert simulation.post(commit()._replace(commits=())).value == Committed(())
    assert not simulation.log.rounds


def test_refused_commit_returns_error_for_each_partition(simulation: CoordinatorSimulation) -> None:
    request = commit(generation_id=3, member_id="ghost")._replace(commits=commit().commits * 3)
    simulation.post(join())
    assert simulation.post(request).value == Committed((ErrorCode.UNKNOWN_MEMBER_ID,) * 3)


def test_commit_appends_one_entry(simulation: CoordinatorSimulation) -> None:
    """All records of the commit are written, or none."""
    simulation.post(commit()._replace(commits=tuple(Commit("t", number, 1, -1, "") for number in range(5))))
    assert [len(entry.records) for entry in simulation.log.in_flight] == [5]


def test_sync_is_answered_when_assignment_is_durable(simulation: CoordinatorSimulation) -> None:
    join_replies = start_joining(simulation, {"client": "a"}, {"client": "b"})
    simulation.advance(6000)
    leader, follower = (reply.value for reply in join_replies)
    assignments = {follower.member_id: b"part"}
    sync_replies = [
        simulation.post(sync(follower.member_id, 1)),
        simulation.post(sync(leader.member_id, 1, assignments)),
    ]
    assert all(reply.is_waiting for reply in sync_replies)
    assert simulation.post(heartbeat(leader.member_id, 1)).value is ErrorCode.NONE
    assert simulation.post(DescribeGroup(GROUP)).value.state == "CompletingRebalance"
    simulation.complete_append()
    assert [reply.value.assignment for reply in sync_replies] == [b"part", b""]
    assert simulation.post(DescribeGroup(GROUP)).value.state == "Stable"
    data = simulation.log.groups()[GROUP]
    assert data.value == simulation.group().data.value
    assert data.value is not None
    assert data.value.generation == 1


# First and last record -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"version": 4}, ErrorCode.MEMBER_ID_REQUIRED),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({}, None),
    ],
)
def test_first_join_appends_group_record(
    simulation: CoordinatorSimulation, options: dict[str, Any], error: ErrorCode | None
) -> None:
    """As in Kafka, the record contains only the group's name and is written once. No request waits for it."""
    reply = simulation.post(join(**options))
    assert reply.is_waiting if error is None else reply.error is error
    simulation.post(join(version=4, client="another"))
    simulation.complete_append()
    assert not simulation.log.in_flight
    state_timestamp_ms = simulation.classic_group().machine.since_ms
    first_record = GroupRecord(GROUP, GroupValue("", 0, None, None, state_timestamp_ms, ()))
    assert [record for _, record in simulation.log.durable] == [first_record]


def test_first_join_of_group_with_offsets_appends_no_record(simulation: CoordinatorSimulation) -> None:
    simulation.post(commit(1))
    simulation.post(join(version=4))
    simulation.complete_all_appends()
    assert [type(record) for _, record in simulation.log.durable] == [OffsetRecord]


def test_group_with_only_pending_members_survives_restart(simulation: CoordinatorSimulation) -> None:
    simulation.post(join(version=4))
    simulation.complete_append()
    restarted = CoordinatorSimulation(simulation.log.groups())
    assert restarted.listed() == (ListedGroup(GROUP, "", "Empty", CLASSIC),)


@pytest.mark.parametrize("error", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.MESSAGE_TOO_LARGE])
def test_failed_first_record_removes_group(simulation: CoordinatorSimulation, error: ErrorCode) -> None:
    """Parked requests get an error, pending ids are unknown, and the next join starts again."""
    pending, join_reply = simulation.post(join(version=4)), simulation.post(join())
    simulation.fail(error)
    assert join_reply.error is APPEND_ERRORS.get(error, error)
    assert simulation.post(join(pending.value.member_id)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert not simulation.log.in_flight
    second_reply = simulation.post(join(version=4))
    simulation.complete_append()
    assert isinstance(simulation.log.durable[0][1], GroupRecord)
    assert list(simulation.classic_group().members.pending) == [second_reply.value.member_id]


def test_leave_of_last_member_is_answered_when_durable(simulation: CoordinatorSimulation) -> None:
    leader, follower = form_stable_group(simulation)
    follower_reply = simulation.post(leave(follower.member_id))
    assert follower_reply.value.error is ErrorCode.NONE, "no record while the group has members"
    leader_reply = simulation.post(leave(leader.member_id))
    assert leader_reply.is_waiting
    assert simulation.post(DescribeGroup(GROUP)).value.state == "Empty"
    simulation.complete_append()
    assert leader_reply.value == Left(ErrorCode.NONE, (LeftMember(leader.member_id, None, ErrorCode.NONE),))


@pytest.mark.parametrize("error", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.MESSAGE_TOO_LARGE])
def test_leave_of_last_member_removes_it_even_if_append_fails(
    simulation: CoordinatorSimulation, error: ErrorCode
) -> None:
    [member] = form_stable_group(simulation, {})
    reply = simulation.post(leave(member.member_id))
    simulation.fail(error)
    assert reply.value == Left(APPEND_ERRORS.get(error, error))
    assert simulation.post(heartbeat(member.member_id, 1)).value is ErrorCode.UNKNOWN_MEMBER_ID


def test_leave_of_last_member_in_flight_is_answered_after_bug(
    simulation: CoordinatorSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    [member] = form_stable_group(simulation, {})
    reply = simulation.post(leave(member.member_id))

    def failing(*_args: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(ClassicGroup, "handle", failing)
        assert simulation.post(heartbeat("anybody", 1)).errors
    assert reply.is_waiting
    simulation.complete_append()
    assert reply.value.error is ErrorCode.NONE
    assert simulation.post(DescribeGroup(GROUP)).value.state == "Empty"


# Stable fetches ------------------------------------------------------------------------------------------------------


def test_stable_fetch_waits_for_earlier_commits(simulation: CoordinatorSimulation) -> None:
    commit_reply = simulation.post(commit(1))
    stable_1 = simulation.post(fetch(require_stable=True))
    simulation.post(commit(2))
    stable_2 = simulation.post(fetch(require_stable=True))
    assert stable_1.is_waiting
    assert fetch_offset(simulation) == -1, "fetches without require_stable do not wait"
    simulation.complete_append()
    assert commit_reply.value == COMMITTED
    assert stable_1.value.topics[0][1][0].offset == 1
    assert stable_2.is_waiting
    simulation.complete_append()
    assert stable_2.value.topics[0][1][0].offset == 2
    assert not simulation.post(fetch(require_stable=True)).is_waiting


def test_stable_fetch_is_answered_after_failed_commit(simulation: CoordinatorSimulation) -> None:
    simulation.post(commit(1))
    fetch_reply = simulation.post(OffsetFetch(GROUP, None, require_stable=True))
    simulation.fail()
    assert fetch_reply.value.topics == ()


# Deletion ------------------------------------------------------------------------------------------------------------


def test_delete_waits_for_commits_in_flight(simulation: CoordinatorSimulation) -> None:
    simulation.post(commit(1))
    simulation.complete_append()
    late_reply = simulation.post(commit(2, partition=1))
    delete_reply = simulation.post(DeleteGroup(GROUP))
    assert delete_reply.is_waiting
    simulation.complete_append()
    assert late_reply.value == COMMITTED
    assert delete_reply.is_waiting, "its tombstones are in flight"
    assert [type(record) for record in simulation.log.in_flight[0].records] == [OffsetRecord, OffsetRecord, GroupRecord]
    simulation.complete_append()
    assert delete_reply.value is ErrorCode.NONE
    assert simulation.log.groups()[GROUP].is_empty()
    assert GROUP not in simulation.directory.groups
    assert simulation.listed() == ()


def test_requests_during_delete_are_handled_by_new_group(simulation: CoordinatorSimulation) -> None:
    simulation.post(commit(1))
    simulation.complete_append()
    simulation.post(DeleteGroup(GROUP))
    later = {
        "commit": simulation.post(commit(5)),
        "join": simulation.post(join()),
        "delete": simulation.post(DeleteGroup(GROUP)),
    }
    assert fetch_offset(simulation) == 1, "the group is deleted only when its tombstones are durable"
    assert all(reply.is_waiting for reply in later.values())
    simulation.complete_append()
    assert all(reply.is_waiting for reply in (later["commit"], later["join"]))
    assert later["delete"].value is ErrorCode.NON_EMPTY_GROUP, "a member has joined meanwhile"
    simulation.complete_append()
    assert later["commit"].value == COMMITTED
    simulation.advance(3000)
    assert later["join"].value.generation_id == 1
    assert fetch_offset(simulation) == 5


def test_failed_delete_keeps_group(simulation: CoordinatorSimulation) -> None:
    simulation.post(commit(1))
    simulation.complete_append()
    delete_reply = simulation.post(DeleteGroup(GROUP))
    later = simulation.post(commit(2))
    simulation.fail()
    assert delete_reply.value is ErrorCode.NOT_COORDINATOR
    simulation.complete_append()
    assert later.value == COMMITTED
    assert fetch_offset(simulation) == 2
    assert simulation.group().active.in_flight.deletion is None


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
def test_delete_of_group_with_members_is_refused(simulation: CoordinatorSimulation, state: str) -> None:
    [join_reply] = start_joining(simulation)
    if state != "PreparingRebalance":
        simulation.advance(3000)
    if state == "Stable":
        simulation.post(sync(join_reply.value.member_id, 1))
        simulation.complete_append()
    assert simulation.post(DescribeGroup(GROUP)).value.state == state
    assert simulation.post(DeleteGroup(GROUP)).value is ErrorCode.NON_EMPTY_GROUP


def test_delete_of_group_with_only_pending_members_succeeds(simulation: CoordinatorSimulation) -> None:
    pending = simulation.post(join(version=4)).value.member_id
    delete_reply = simulation.post(DeleteGroup(GROUP))
    simulation.complete_all_appends()
    assert delete_reply.value is ErrorCode.NONE
    assert simulation.post(join(pending)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert simulation.deadlines == 0, "the deadline of the pending id is cancelled"


def test_each_of_two_deletes_gets_one_reply(simulation: CoordinatorSimulation) -> None:
    simulation.post(commit(1))
    deletions = [simulation.post(DeleteGroup(GROUP)) for _ in range(3)]
    simulation.complete_all_appends()
    assert deletions[0].value is ErrorCode.NONE
    assert [reply.value for reply in deletions[1:]] == [ErrorCode.GROUP_ID_NOT_FOUND] * 2


# Time ----------------------------------------------------------------------------------------------------------------


def test_session_expires_by_timer(simulation: CoordinatorSimulation) -> None:
    form_stable_group(simulation, {"session_ms": 10_000}, {"session_ms": 20_000})
    simulation.advance(9990)
    assert len(simulation.classic_group().members) == 2
    simulation.advance(10)
    assert len(simulation.classic_group().members) == 1
    assert simulation.post(DescribeGroup(GROUP)).value.state == "PreparingRebalance"


def test_group_that_becomes_empty_appends_record(simulation: CoordinatorSimulation) -> None:
    form_stable_group(simulation, {})
    simulation.post(leave(*simulation.classic_group().members.by_id))
    simulation.complete_append()
    value = simulation.log.groups()[GROUP].value
    assert value is not None
    assert (value.generation, value.members) == (2, ())


@pytest.mark.parametrize("is_commit", [True, False])
def test_earlier_deadline_is_sent_to_timer(simulation: CoordinatorSimulation, is_commit: bool) -> None:
    """The member rejoined with a shorter session timeout."""
    leader, _ = form_stable_group(simulation, {"session_ms": 100_000}, {"session_ms": 200_000})
    simulation.post(join(leader.member_id, session_ms=6000))
    member_id = leader.member_id
    simulation.post(commit(member_id=member_id, generation_id=1) if is_commit else heartbeat(member_id, 1))
    assert simulation.alarm.due_ms == simulation.clock.now_ms + 6000


def test_heartbeat_sends_no_messages(simulation: CoordinatorSimulation) -> None:
    leader, _ = form_stable_group(simulation)
    rounds_before = len(simulation.log.rounds)
    inbox = simulation.timer.actor_inbox
    for _ in range(3):
        reply = simulation.send(heartbeat(leader.member_id, 1))
        simulation.dispatcher.step()
        assert reply.value is ErrorCode.NONE
        assert inbox.empty()
        assert simulation.coordinator.actor_inbox.empty()
    assert len(simulation.log.rounds) == rounds_before


# Shutdown ------------------------------------------------------------------------------------------------------------


def test_shutdown_answers_parked_requests(simulation: CoordinatorSimulation) -> None:
    leader, _ = form_stable_group(simulation)
    join_reply = simulation.post(join(leader.member_id))
    commit_reply = simulation.post(commit(1, member_id=leader.member_id, generation_id=1))
    fetch_reply = simulation.post(fetch(require_stable=True))
    simulation.tell(GROUP, Shutdown())
    assert join_reply.value == Joined(ErrorCode.NOT_COORDINATOR, member_id=leader.member_id)
    simulation.complete_append()
    assert commit_reply.value == COMMITTED, "a commit in flight is answered"
    assert not fetch_reply.is_waiting
    assert simulation.post(heartbeat(leader.member_id, 1)).value is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_no_session_expires_after_shutdown(simulation: CoordinatorSimulation) -> None:
    leader, _ = form_stable_group(simulation)
    simulation.tell(GROUP, Shutdown())
    simulation.post(heartbeat(leader.member_id, 1))
    simulation.advance(100_000)
    assert simulation.classic_group().state is State.DEAD


REQUESTS_TO_DEAD_GROUP: dict[str, tuple[GroupRequest, ErrorCode]] = {
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


@pytest.mark.parametrize(("request_", "error"), REQUESTS_TO_DEAD_GROUP.values(), ids=REQUESTS_TO_DEAD_GROUP.keys())
def test_dead_group_returns_same_errors_as_kafka(
    simulation: CoordinatorSimulation, request_: GroupRequest, error: ErrorCode
) -> None:
    form_stable_group(simulation)
    simulation.tell(GROUP, Shutdown())
    assert simulation.post(request_).value == reject(request_, error)
    assert simulation.post(DescribeGroup(GROUP)).value == Described(ErrorCode.NONE, GROUP, State.DEAD.value)


def test_dead_group_answers_fetch(simulation: CoordinatorSimulation) -> None:
    """A dead group returns its offsets while the server stops. In Kafka a dead group was deleted and returns none."""
    simulation.post(commit(7))
    simulation.complete_append()
    simulation.tell(GROUP, Shutdown())
    assert fetch_offset(simulation) == 7


# Random order of turns -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_results_do_not_depend_on_order_of_mailboxes(seed: int) -> None:
    """Actors have their turns in random order; requests of one sender keep their order."""
    simulation = CoordinatorSimulation(seed=seed)
    members = simulation.form_group({}, {}, {})
    replies = [
        simulation.send(commit(offset, member_id=members[offset % 3].member_id, generation_id=1))
        for offset in range(30)
    ]
    last_reply = simulation.send(fetch(require_stable=True))
    simulation.run()
    assert [reply.value for reply in replies] == [COMMITTED] * 30
    assert last_reply.value.topics[0][1][0].offset == 29
    delete_replies = [
        simulation.send(leave(*[member.member_id for member in members])),
        simulation.send(DeleteGroup(GROUP)),
    ]
    later = simulation.send(commit(77))
    simulation.run()
    assert delete_replies[1].value is ErrorCode.NONE
    assert later.value == COMMITTED
    assert fetch_offset(simulation) == 77
    data = simulation.log.groups()[GROUP]
    assert data.value is None
    assert {(topic, value.offset) for topic, _, value in data.offsets} == {("t", 77)}
