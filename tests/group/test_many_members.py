"""Groups with many members: no turn of their actor handles all members, and other actors run in between."""

from __future__ import annotations

import pytest
from actor_system.ports import RecordedReply
from actor_system.requests import GROUP, SESSION_MS, join, offers, sync
from actor_system.simulation import CoordinatorSimulation
from work_counter import WorkCounter

from callboard.actors.errors import ErrorCode
from callboard.actors.group.states import State
from callboard.actors.messages import DescribeGroup, GroupRequest, Joined, Shutdown, Unload
from callboard.actors.timer.messages import Expired

MEMBERS = 1_500
TURN_MAX = 12_000
"""Executed lines. A turn handles 128 members, and answering a member takes about 60; all would be 90,000."""


class LargeGroup:
    """A group of ``MEMBERS`` in its first generation, without assignments. Its log holds the appends."""

    def __init__(self) -> None:
        self.simulation = CoordinatorSimulation(holds_appends=True)
        replies = [self._post(join(client=f"c{number}")) for number in range(MEMBERS)]
        self.simulation.run()
        self.simulation.complete_append()
        self.simulation.advance(10_000)
        self.members: list[Joined] = [reply.value for reply in replies]
        self.leader = next(member for member in self.members if member.members)

    def _post(self, request: GroupRequest) -> RecordedReply:
        reply = RecordedReply()
        self.simulation.directory.post(request, reply)
        return reply

    def longest_turn(self, request: GroupRequest | None = None) -> int:
        """The lines of the longest turn until all actors are idle. None: after the round of the log in flight."""
        counter = WorkCounter()
        with counter.counting():
            if request is None:
                self.simulation.log.complete_append()
            else:
                self.last_reply = self._post(request)
            counter.end_piece()
            while self.simulation.dispatcher.step():
                counter.end_piece()
        return counter.longest

    def sync_all(self) -> list[RecordedReply]:
        """Members send SyncGroup, the leader last. Its assignment is not durable yet."""
        generation = self.leader.generation_id
        followers = [member for member in self.members if member is not self.leader]
        replies = [self._post(sync(member.member_id, generation)) for member in followers]
        assignments = {member.member_id: member.member_id.encode() for member in self.members}
        assert self.longest_turn(sync(self.leader.member_id, generation, assignments)) < TURN_MAX
        return [*replies, self.last_reply]


def test_members_get_their_assignments_in_pieces() -> None:
    group = LargeGroup()
    replies = group.sync_all()
    assert all(reply.is_waiting for reply in replies)
    assert group.longest_turn() < TURN_MAX
    assert {reply.value.assignment for reply in replies} == {member.member_id.encode() for member in group.members}
    assert group.simulation.classic_group().state is State.STABLE
    group.simulation.classic_group().check()


def test_last_join_of_a_generation_is_handled_in_pieces() -> None:
    group = LargeGroup()
    group.sync_all()
    group.simulation.complete_append()
    *others, last = group.members
    replies = [group._post(join(member.member_id)) for member in (group.leader, *others) if member is not last]
    group.simulation.run()
    assert group.longest_turn(join(last.member_id)) < TURN_MAX
    assert not any(reply.is_waiting for reply in replies[1:])
    generation = {reply.value.generation_id for reply in (*replies[1:], group.last_reply)}
    assert generation == {group.leader.generation_id + 1}


def test_rebalance_before_the_assignment_answers_waiting_members_in_pieces() -> None:
    group = LargeGroup()
    generation = group.leader.generation_id
    waiting = [
        group._post(sync(member.member_id, generation)) for member in group.members if member is not group.leader
    ]
    group.simulation.run()
    changed = join(group.leader.member_id, protocols=offers("range", metadata=b"v2"))
    assert group.longest_turn(changed) < TURN_MAX
    assert {reply.error for reply in waiting} == {ErrorCode.REBALANCE_IN_PROGRESS}


def test_group_is_described_in_pieces() -> None:
    group = LargeGroup()
    assert group.longest_turn(DescribeGroup(GROUP)) < TURN_MAX
    assert len(group.last_reply.value.members) == MEMBERS


def test_sessions_that_end_together_are_handled_in_pieces() -> None:
    group = LargeGroup()
    names = tuple(member.session.name for member in group.simulation.classic_group().members)
    group.simulation.clock.now_ms += SESSION_MS * 1000
    counter = WorkCounter()
    with counter.counting():
        group.simulation.directory.groups[GROUP].tell(Expired(names))
        while group.simulation.dispatcher.step():
            counter.end_piece()
    assert counter.longest < 4 * TURN_MAX


@pytest.mark.parametrize("message", [Unload(), Shutdown()], ids=["partition lost", "server stops"])
def test_group_that_ends_answers_waiting_members_in_pieces(message: Unload | Shutdown) -> None:
    group = LargeGroup()
    generation = group.leader.generation_id
    waiting = [
        group._post(sync(member.member_id, generation)) for member in group.members if member is not group.leader
    ]
    group.simulation.run()
    counter = WorkCounter()
    with counter.counting():
        group.simulation.directory.groups[GROUP].tell(message)
        while group.simulation.dispatcher.step():
            counter.end_piece()
    assert counter.longest < TURN_MAX
    assert {reply.error for reply in waiting} == {ErrorCode.NOT_COORDINATOR}
    assert group.simulation.deadlines == 0
