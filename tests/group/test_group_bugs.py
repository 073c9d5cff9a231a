"""A bug in a group fails the current request. Every other request gets one reply, and the group restarts."""

from __future__ import annotations

from typing import Any

import pytest
from actor_system.manual_log import COMMITTED, fetch_offset, form_stable_group, held_simulation, start_joining
from actor_system.ports import RecordedReply
from actor_system.requests import GROUP, commit, fetch, heartbeat, join, leave, offers, sync
from actor_system.simulation import CoordinatorSimulation
from actor_system.table_patches import patch_function

from callboard.actors.errors import ErrorCode
from callboard.actors.group.classic import ClassicGroup
from callboard.actors.group.failed_group import FAILED_FOR_MS, FailedGroup
from callboard.actors.group.states import State
from callboard.actors.messages import (
    Committed,
    DeleteGroup,
    DescribeGroup,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    Synced,
    SyncGroup,
)
from callboard.actors.timer.messages import Expired


@pytest.fixture
def simulation() -> CoordinatorSimulation:
    return held_simulation()


class Bug(Exception):
    """The exception of a planted bug."""


def plant_bug(monkeypatch: pytest.MonkeyPatch, target: type | str, *, after: bool = False, times: int = 1) -> None:
    """Make requests of a class, a method of ClassicGroup, or a function of its tables raise, before or after it ran."""
    bugs_left = [times]

    def make(original: Any) -> Any:
        def failing(*args: Any) -> Any:
            is_target = isinstance(target, str) or (type(args[1]) is target and len(args) == 4)
            if is_target and bugs_left[0]:
                bugs_left[0] -= 1
                if after:
                    original(*args)
                raise Bug(target)
            return original(*args)

        return failing

    method = target if isinstance(target, str) else "handle"
    if hasattr(ClassicGroup, method):
        monkeypatch.setattr(ClassicGroup, method, make(getattr(ClassicGroup, method)))
    else:
        patch_function(monkeypatch, method, make)


def assert_bug_is_reply(reply: RecordedReply) -> None:
    assert [type(error) for error in reply.errors] == [Bug]
    assert reply.answers == []


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("request_class", "make_request"),
    [
        (Heartbeat, lambda member: heartbeat(member.member_id, 1)),
        (OffsetCommit, lambda member: commit(member_id=member.member_id, generation_id=1)),
        (JoinGroup, lambda member: join(member.member_id, protocols=offers("range", metadata=b"2"))),
        (JoinGroup, lambda member: join(client="newcomer")),
        (SyncGroup, lambda member: sync(member.member_id, 1)),
        (LeaveGroup, lambda member: leave(member.member_id)),
        (DescribeGroup, lambda member: DescribeGroup(GROUP)),
    ],
)
def test_bug_is_reply_of_request_and_group_restarts(
    simulation: CoordinatorSimulation,
    monkeypatch: pytest.MonkeyPatch,
    request_class: type,
    make_request: Any,
    after: bool,
) -> None:
    leader, follower = form_stable_group(simulation)
    simulation.holds_appends = False
    simulation.post(commit(5, member_id=leader.member_id, generation_id=1))
    ref = simulation.directory.groups[GROUP]
    plant_bug(monkeypatch, request_class, after=after)
    assert_bug_is_reply(simulation.post(make_request(leader)))
    assert simulation.directory.groups[GROUP] is ref, "the ActorRef stays the same"
    group = simulation.classic_group()
    assert (group.state, group.generation) == (State.STABLE, 1)
    group.members.check()
    for member in (leader, follower):
        assert simulation.post(heartbeat(member.member_id, 1)).value is ErrorCode.NONE
    assert simulation.post(sync(follower.member_id, 1)).value.assignment == b"of " + follower.member_id.encode()
    assert fetch_offset(simulation) == 5


def test_bug_answers_all_parked_requests(simulation: CoordinatorSimulation, monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = form_stable_group(simulation)
    join_reply = simulation.post(join(leader.member_id))
    plant_bug(monkeypatch, Heartbeat)
    assert_bug_is_reply(simulation.post(heartbeat(follower.member_id, 1)))
    assert join_reply.value == Joined(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id=leader.member_id)


def test_bug_while_replies_are_sent_loses_no_reply(
    simulation: CoordinatorSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of the join phase some parked joins have been removed from their members when the bug occurs."""
    leader, follower = form_stable_group(simulation)
    leader_reply = simulation.post(join(leader.member_id))
    plant_bug(monkeypatch, "begin_generation", after=True)
    follower_reply = simulation.post(join(follower.member_id))
    assert_bug_is_reply(follower_reply)
    assert not leader_reply.is_waiting
    assert (simulation.classic_group().state, simulation.classic_group().generation) == (State.STABLE, 1)


def test_bug_in_deadline_handler_restarts_group(
    simulation: CoordinatorSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request waits for a reply; the group and its sessions restart."""
    form_stable_group(simulation, {"session_ms": 10_000})
    plant_bug(monkeypatch, "start_join_phase")
    simulation.advance(10_000)
    assert simulation.classic_group().state is State.STABLE
    simulation.advance(9_990)
    assert simulation.classic_group().state is State.STABLE
    simulation.advance(10)
    assert simulation.classic_group().state is State.EMPTY


def test_bug_while_commit_is_in_flight_loses_no_reply(
    simulation: CoordinatorSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, _ = form_stable_group(simulation)
    commit_reply = simulation.post(commit(9, member_id=leader.member_id, generation_id=1))
    plant_bug(monkeypatch, Heartbeat)
    simulation.post(heartbeat(leader.member_id, 1))
    assert commit_reply.is_waiting
    simulation.complete_append()
    assert commit_reply.value == COMMITTED
    assert fetch_offset(simulation) == 9


def test_bug_while_assignment_is_in_flight_applies_its_record(
    simulation: CoordinatorSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record becomes durable after the restart and defines the state of the group."""
    [join_reply] = start_joining(simulation)
    simulation.advance(3000)
    member_id = join_reply.value.member_id
    sync_reply = simulation.post(sync(member_id, 1, {member_id: b"part"}))
    plant_bug(monkeypatch, Heartbeat)
    assert_bug_is_reply(simulation.post(heartbeat(member_id, 1)))
    assert sync_reply.value == Synced(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert simulation.classic_group().state is State.EMPTY
    simulation.complete_append()
    assert (simulation.classic_group().state, simulation.classic_group().generation) == (State.STABLE, 1)
    assert simulation.post(sync(member_id, 1)).value.assignment == b"part"


def test_bug_in_append_handler_restarts_group(
    simulation: CoordinatorSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    [join_reply] = start_joining(simulation)
    simulation.advance(3000)
    member_id = join_reply.value.member_id
    sync_reply = simulation.post(sync(member_id, 1, {member_id: b"part"}))
    plant_bug(monkeypatch, "appended")
    simulation.complete_append()
    assert sync_reply.value == Synced(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert simulation.post(sync(member_id, 1)).value.assignment == b"part"
    assert not simulation.post(fetch(require_stable=True)).is_waiting


def test_bug_while_delete_waits_completes_delete(
    simulation: CoordinatorSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation.post(commit(1))
    delete_reply = simulation.post(DeleteGroup(GROUP))
    later = simulation.post(commit(2))
    plant_bug(monkeypatch, Heartbeat)
    assert_bug_is_reply(simulation.post(heartbeat("ghost", 1)))
    simulation.complete_all_appends()
    assert delete_reply.value is ErrorCode.NONE
    assert later.value == COMMITTED
    assert fetch_offset(simulation) == 2


def test_bugs_within_restart_limit_keep_group(
    simulation: CoordinatorSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three bugs in ten seconds are within the limit."""
    leader, _ = form_stable_group(simulation, {"session_ms": 60_000}, {"session_ms": 60_000})
    plant_bug(monkeypatch, JoinGroup, after=True, times=20)
    for number in range(20):
        assert_bug_is_reply(simulation.post(join(client=f"c{number}")))
        simulation.advance(3400)
        assert simulation.post(heartbeat(leader.member_id, 1)).value is ErrorCode.NONE


def exceed_restart_limit(
    simulation: CoordinatorSimulation, monkeypatch: pytest.MonkeyPatch, request_class: type = LeaveGroup
) -> None:
    plant_bug(monkeypatch, request_class, times=4)
    for _ in range(4):
        assert_bug_is_reply(simulation.post(leave("ghost")))
    assert isinstance(simulation.directory.groups[GROUP].actor_inbox.actor, FailedGroup)


def test_too_many_bugs_replace_group_by_failed_group(
    simulation: CoordinatorSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests get COORDINATOR_NOT_AVAILABLE, other groups are not affected, and later the group is activated again."""
    leader, follower = form_stable_group(simulation)
    simulation.holds_appends = False
    simulation.post(commit(5, member_id=leader.member_id, generation_id=1))
    exceed_restart_limit(simulation, monkeypatch)
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert simulation.post(heartbeat(leader.member_id, 1)).value is unavailable
    assert simulation.post(join(leader.member_id)).value == Joined(unavailable)
    assert simulation.post(sync(leader.member_id, 1)).value == Synced(unavailable)
    assert simulation.post(leave(leader.member_id)).value.error is unavailable
    assert simulation.post(commit(6, member_id=leader.member_id, generation_id=1)).value == Committed((unavailable,))
    assert simulation.post(fetch()).value.error is unavailable
    assert simulation.post(DescribeGroup(GROUP)).value.error is unavailable
    assert simulation.post(DeleteGroup(GROUP)).value is unavailable
    assert simulation.post(commit(1, group_id="other")).value == COMMITTED
    simulation.advance(FAILED_FOR_MS - 1)
    assert simulation.post(heartbeat(leader.member_id, 1)).value is unavailable
    simulation.advance(1)
    assert simulation.post(heartbeat(leader.member_id, 1)).value is unavailable, (
        "the first request activates the group again"
    )
    for member in (leader, follower):
        assert simulation.post(heartbeat(member.member_id, 1)).value is ErrorCode.NONE
    assert fetch_offset(simulation) == 5


def test_failed_group_answers_requests_in_flight(
    simulation: CoordinatorSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that becomes durable is answered, and its offset is there when the group is active again."""
    leader, _ = form_stable_group(simulation)
    commit_reply = simulation.post(commit(9, member_id=leader.member_id, generation_id=1))
    seeing = simulation.post(fetch(require_stable=True))
    exceed_restart_limit(simulation, monkeypatch)
    assert seeing.value.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert commit_reply.is_waiting
    simulation.advance(FAILED_FOR_MS)
    simulation.post(heartbeat(leader.member_id, 1))
    assert simulation.post(heartbeat(leader.member_id, 1)).value is ErrorCode.COORDINATOR_NOT_AVAILABLE, (
        "the commit still waits for its append"
    )
    simulation.complete_all_appends()
    assert commit_reply.value == COMMITTED
    simulation.post(heartbeat(leader.member_id, 1))
    assert fetch_offset(simulation) == 9


def test_failed_group_completes_delete_in_flight(
    simulation: CoordinatorSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation.post(commit(1))
    simulation.complete_all_appends()
    delete_reply = simulation.post(DeleteGroup(GROUP))
    commit_reply = simulation.post(commit(2))
    exceed_restart_limit(simulation, monkeypatch)
    assert commit_reply.value == Committed((ErrorCode.COORDINATOR_NOT_AVAILABLE,))
    simulation.complete_all_appends()
    assert delete_reply.value is ErrorCode.NONE
    simulation.advance(FAILED_FOR_MS)
    simulation.post(fetch())
    assert simulation.post(fetch()).value.topics[0][1][0].offset == -1
    assert GROUP not in simulation.directory.groups
    assert GROUP not in simulation.directory.passivated


class FailingReply(RecordedReply):
    """A ``ReplyTo`` that raises, like a response that cannot be encoded."""

    def set(self, value: Any = None) -> None:
        super().set(value)
        raise OSError("nowhere to put it")

    def set_exception(self, exc_info: Any = None) -> None:
        super().set_exception(exc_info)
        raise OSError("nowhere to put it")


def test_failing_reply_to_does_not_affect_other_replies(simulation: CoordinatorSimulation) -> None:
    """The first of two joins has such a reply_to at the end of the join phase, then a commit and a deletion."""
    failing_reply = FailingReply()
    simulation.directory.post(join(client="spoiled"), failing_reply)
    other_reply = simulation.post(join(client="other"))
    simulation.complete_append()
    simulation.advance(6000)
    assert len(failing_reply.answers) == 1
    assert other_reply.value.generation_id == 1
    assert simulation.classic_group().state is State.COMPLETING_REBALANCE, "the group continues"
    simulation.post(leave(*simulation.classic_group().members.by_id))
    simulation.complete_append()
    spoiled_commit, spoiled_delete, spoiled_fetch = FailingReply(), FailingReply(), FailingReply()
    simulation.directory.post(commit(1), spoiled_commit)
    simulation.directory.post(fetch(require_stable=True), spoiled_fetch)
    fetch_reply = simulation.post(fetch(require_stable=True))
    simulation.complete_append()
    assert len(spoiled_commit.answers) == len(spoiled_fetch.answers) == 1
    assert fetch_reply.value.topics[0][1][0].offset == 1
    simulation.directory.post(DeleteGroup(GROUP), spoiled_delete)
    simulation.run()
    later = simulation.post(commit(2))
    simulation.complete_all_appends()
    assert later.value == COMMITTED
    assert len(spoiled_delete.answers) == 1


def test_bug_with_failing_reply_to_keeps_group(
    simulation: CoordinatorSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, _ = form_stable_group(simulation)
    plant_bug(monkeypatch, Heartbeat)
    failing_reply = FailingReply()
    simulation.directory.post(heartbeat(leader.member_id, 1), failing_reply)
    simulation.run()
    assert len(failing_reply.errors) == 1
    assert simulation.post(heartbeat(leader.member_id, 1)).value is ErrorCode.NONE


def test_expired_with_unknown_name_is_ignored(simulation: CoordinatorSimulation) -> None:
    form_stable_group(simulation)
    simulation.tell(GROUP, Expired((("session", "ghost"), ("pending", "ghost"), ("join",), ("sync",))))
    assert simulation.classic_group().state is State.STABLE
