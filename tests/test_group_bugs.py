"""A bug inside of a group: who asked hears of it, all are answered once, the group begins anew from its records."""

from __future__ import annotations

from typing import Any

import pytest
from stage.held import FINE, begun, fetched, held_world, stable
from stage.ports import Place
from stage.requests import GROUP, commit, fetch, heartbeat, join, leave, offers, sync
from stage.world import World

from callboard.actors.errors import ErrorCode
from callboard.actors.group.classic import ClassicGroup
from callboard.actors.group.failed_group import FAILED_FOR_MS, FailedGroup
from callboard.actors.group.states import State
from callboard.actors.messages import Committed, DeleteGroup, DescribeGroup, Joined, Synced
from callboard.actors.timer.messages import Expired


@pytest.fixture
def world() -> World:
    return held_world()


class Bug(Exception):
    """What a test plants in a handler."""


def plant(monkeypatch: pytest.MonkeyPatch, method: str, *, after: bool = False, times: int = 1) -> None:
    """Let a method of ClassicGroup fail, before or after it has done its work."""
    original, left = getattr(ClassicGroup, method), [times]

    def failing(self: ClassicGroup, *args: Any, **kwargs: Any) -> Any:
        if left[0]:
            left[0] -= 1
            if after:
                original(self, *args, **kwargs)
            raise Bug(method)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(ClassicGroup, method, failing)


def is_told_of_the_bug(place: Place) -> None:
    assert [type(error) for error in place.errors] == [Bug]
    assert place.answers == []


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("method", "ask"),
    [
        ("heartbeat", lambda one: heartbeat(one.member_id, 1)),
        ("commit_error", lambda one: commit(member_id=one.member_id, generation_id=1)),
        ("join", lambda one: join(one.member_id, protocols=offers("range", metadata=b"2"))),
        ("join", lambda one: join(client="newcomer")),
        ("sync", lambda one: sync(one.member_id, 1)),
        ("leave", lambda one: leave(one.member_id)),
        ("describe", lambda one: DescribeGroup(GROUP)),
    ],
)
def test_a_bug_is_told_to_who_asked_and_the_group_begins_anew(
    world: World, monkeypatch: pytest.MonkeyPatch, method: str, ask: Any, after: bool
) -> None:
    leader, follower = stable(world)
    world.holds_back = False
    world.post(commit(5, member_id=leader.member_id, generation_id=1))
    ref = world.directory.groups[GROUP]
    plant(monkeypatch, method, after=after)
    is_told_of_the_bug(world.post(ask(leader)))
    assert world.directory.groups[GROUP] is ref, "its address is the same"
    actor = world.group()
    assert (actor._group.state, actor._group.generation) == (State.STABLE, 1)
    actor._group.members.check()
    for one in (leader, follower):
        assert world.post(heartbeat(one.member_id, 1)).value is ErrorCode.NONE
    assert world.post(sync(follower.member_id, 1)).value.assignment == b"of " + follower.member_id.encode()
    assert fetched(world) == 5


def test_a_bug_answers_everybody_who_waited(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = stable(world)
    joining = world.post(join(leader.member_id))
    plant(monkeypatch, "heartbeat")
    is_told_of_the_bug(world.post(heartbeat(follower.member_id, 1)))
    assert joining.value == Joined(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id=leader.member_id)


def test_a_bug_in_the_middle_of_answering_loses_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The join phase ends: some of those who wait have been taken off their places when the bug strikes."""
    leader, follower = stable(world)
    first = world.post(join(leader.member_id))
    plant(monkeypatch, "_begin_generation", after=True)
    second = world.post(join(follower.member_id))
    is_told_of_the_bug(second)
    assert not first.is_waiting
    assert (world.group()._group.state, world.group()._group.generation) == (State.STABLE, 1)


def test_a_bug_when_a_deadline_passes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asked: the group begins anew all the same, and its sessions with it."""
    stable(world, {"session_ms": 10_000})
    plant(monkeypatch, "_session_expired")
    world.advance(10_000)
    assert world.group()._group.state is State.STABLE
    world.advance(9_990)
    assert world.group()._group.state is State.STABLE
    world.advance(10)
    assert world.group()._group.state is State.EMPTY


def test_a_bug_while_a_commit_is_on_its_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    leader, _ = stable(world)
    late = world.post(commit(9, member_id=leader.member_id, generation_id=1))
    plant(monkeypatch, "heartbeat")
    world.post(heartbeat(leader.member_id, 1))
    assert late.is_waiting
    world.keep()
    assert late.value == FINE
    assert fetched(world) == 9


def test_a_bug_while_an_assignment_is_on_its_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record becomes durable after the group began anew: it is the group then."""
    [joining] = begun(world)
    world.advance(3000)
    me = joining.value.member_id
    syncing = world.post(sync(me, 1, {me: b"part"}))
    plant(monkeypatch, "heartbeat")
    is_told_of_the_bug(world.post(heartbeat(me, 1)))
    assert syncing.value == Synced(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert world.group()._group.state is State.EMPTY
    world.keep()
    assert (world.group()._group.state, world.group()._group.generation) == (State.STABLE, 1)
    assert world.post(sync(me, 1)).value.assignment == b"part"


def test_a_bug_when_a_record_is_durable(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    [joining] = begun(world)
    world.advance(3000)
    me = joining.value.member_id
    syncing = world.post(sync(me, 1, {me: b"part"}))
    plant(monkeypatch, "appended")
    world.keep()
    assert syncing.value == Synced(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert world.post(sync(me, 1)).value.assignment == b"part"
    assert not world.post(fetch(require_stable=True)).is_waiting


def test_a_bug_while_a_deletion_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.post(commit(1))
    deleting = world.post(DeleteGroup(GROUP))
    later = world.post(commit(2))
    plant(monkeypatch, "heartbeat")
    is_told_of_the_bug(world.post(heartbeat("ghost", 1)))
    world.keep_all()
    assert deleting.value is ErrorCode.NONE
    assert later.value == FINE
    assert fetched(world) == 2


def test_many_bugs_do_not_take_the_group_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three in ten seconds are borne for ever."""
    leader, _ = stable(world, {"session_ms": 60_000}, {"session_ms": 60_000})
    plant(monkeypatch, "join", after=True, times=20)
    for number in range(20):
        is_told_of_the_bug(world.post(join(client=f"c{number}")))
        world.advance(3400)
        assert world.post(heartbeat(leader.member_id, 1)).value is ErrorCode.NONE


def fail_too_often(world: World, monkeypatch: pytest.MonkeyPatch, method: str = "leave") -> None:
    plant(monkeypatch, method, times=4)
    for _ in range(4):
        is_told_of_the_bug(world.post(leave("ghost")))
    assert isinstance(world.directory.groups[GROUP].actor_inbox.actor, FailedGroup)


def test_too_many_bugs_make_a_group_fail_for_a_while(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody is told to come again; the other groups do not notice; then it is back, from what is durable."""
    leader, follower = stable(world)
    world.holds_back = False
    world.post(commit(5, member_id=leader.member_id, generation_id=1))
    fail_too_often(world, monkeypatch)
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.post(heartbeat(leader.member_id, 1)).value is gone
    assert world.post(join(leader.member_id)).value == Joined(gone, member_id=leader.member_id)
    assert world.post(sync(leader.member_id, 1)).value == Synced(gone)
    assert world.post(leave(leader.member_id)).value.error is gone
    assert world.post(commit(6, member_id=leader.member_id, generation_id=1)).value == Committed((gone,))
    assert world.post(fetch()).value.error is gone
    assert world.post(DescribeGroup(GROUP)).value.error is gone
    assert world.post(DeleteGroup(GROUP)).value is gone
    assert world.post(commit(1, group_id="other")).value == FINE
    world.advance(FAILED_FOR_MS - 1)
    assert world.post(heartbeat(leader.member_id, 1)).value is gone
    world.advance(1)
    assert world.post(heartbeat(leader.member_id, 1)).value is gone, "the first that comes wakes it"
    for one in (leader, follower):
        assert world.post(heartbeat(one.member_id, 1)).value is ErrorCode.NONE
    assert fetched(world) == 5


def test_a_group_that_fails_answers_what_was_under_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that becomes durable meanwhile is answered so, and is there when the group is back."""
    leader, _ = stable(world)
    late = world.post(commit(9, member_id=leader.member_id, generation_id=1))
    seeing = world.post(fetch(require_stable=True))
    fail_too_often(world, monkeypatch)
    assert seeing.value.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert late.is_waiting
    world.advance(FAILED_FOR_MS)
    world.post(heartbeat(leader.member_id, 1))
    assert world.post(heartbeat(leader.member_id, 1)).value is ErrorCode.COORDINATOR_NOT_AVAILABLE, "it still waits"
    world.keep_all()
    assert late.value == FINE
    world.post(heartbeat(leader.member_id, 1))
    assert fetched(world) == 9


def test_a_group_that_fails_while_it_is_deleted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.post(commit(1))
    world.keep_all()
    deleting = world.post(DeleteGroup(GROUP))
    waiting = world.post(commit(2))
    fail_too_often(world, monkeypatch)
    assert waiting.value == Committed((ErrorCode.COORDINATOR_NOT_AVAILABLE,))
    world.keep_all()
    assert deleting.value is ErrorCode.NONE
    world.advance(FAILED_FOR_MS)
    world.post(fetch())
    assert world.post(fetch()).value.topics[0][1][0].offset == -1
    assert GROUP not in world.directory.groups
    assert GROUP not in world.directory.passivated


class Spoiled(Place):
    """A place that cannot take its answer: the front door failed to encode it."""

    def set(self, value: Any = None) -> None:
        super().set(value)
        raise OSError("nowhere to put it")

    def set_exception(self, exc_info: Any = None) -> None:
        super().set_exception(exc_info)
        raise OSError("nowhere to put it")


def test_a_place_that_takes_no_answer_costs_nobody_else_theirs(world: World) -> None:
    """The first of two is answered in vain at the end of the join phase; so is its commit, and a deletion."""
    spoiled = Spoiled()
    world.directory.post(join(client="spoiled"), spoiled)
    other = world.post(join(client="other"))
    world.keep()
    world.advance(6000)
    assert len(spoiled.answers) == 1
    assert other.value.generation_id == 1
    assert world.group()._group.state is State.COMPLETING_REBALANCE, "the group goes on"
    world.post(leave(*world.group()._group.members.by_id))
    world.keep()
    spoiled_commit, spoiled_delete, spoiled_fetch = Spoiled(), Spoiled(), Spoiled()
    world.directory.post(commit(1), spoiled_commit)
    world.directory.post(fetch(require_stable=True), spoiled_fetch)
    waiting = world.post(fetch(require_stable=True))
    world.keep()
    assert len(spoiled_commit.answers) == len(spoiled_fetch.answers) == 1
    assert waiting.value.topics[0][1][0].offset == 1
    world.directory.post(DeleteGroup(GROUP), spoiled_delete)
    world.run()
    later = world.post(commit(2))
    world.keep_all()
    assert later.value == FINE
    assert len(spoiled_delete.answers) == 1


def test_a_bug_whose_asker_is_gone_does_not_take_the_group_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    leader, _ = stable(world)
    plant(monkeypatch, "heartbeat")
    spoiled = Spoiled()
    world.directory.post(heartbeat(leader.member_id, 1), spoiled)
    world.run()
    assert len(spoiled.errors) == 1
    assert world.post(heartbeat(leader.member_id, 1)).value is ErrorCode.NONE


def test_a_stray_expiry_is_no_bug(world: World) -> None:
    stable(world)
    world.tell(GROUP, Expired((("session", "ghost"), ("pending", "ghost"), ("join",), ("sync",))))
    assert world.group()._group.state is State.STABLE
