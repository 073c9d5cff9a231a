"""Groups with many members that leave, or that become groups of the other protocol: no turn handles all members."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from actor_system.ports import ManualLog, RecordedReply
from actor_system.requests import join, leave
from consumer_group.actor_world import GROUP
from consumer_group.migration_world import MigrationWorld
from work_counter import WorkCounter

from callboard.actors.assignors.consumer_protocol import Subscription, write_subscription
from callboard.actors.assignors.server.base import AssignmentPending, GroupToAssign, TargetAssignment
from callboard.actors.consumer_group.messages import ConsumerHeartbeat
from callboard.actors.consumer_group.records import (
    ClassicMember,
    ConsumerRecord,
    CurrentRecord,
    CurrentValue,
    GroupEpochRecord,
    GroupEpochValue,
    MemberRecord,
    MemberValue,
    TargetEpochRecord,
    TargetEpochValue,
    TargetRecord,
)
from callboard.actors.coordinator.actor import DEFAULT_PORTS
from callboard.actors.messages import GroupRequest, Protocol

FEW, MANY = 400, 1_200
LINES_PER_MEMBER = 25
"""Executed lines: to sort members by the hashes of their ids, and comprehensions. Removing a member takes 100."""

LINES_PER_PARTITION = 3
CLASSIC = ClassicMember(45_000, (("range", write_subscription(Subscription(("t",), None))),))


class WorkingAssignor:
    """One that never ends. Of a large group it works in a thread."""

    name = "uniform"

    def assign(self, _group: GroupToAssign) -> TargetAssignment:
        raise AssignmentPending


class LargeMixedGroup:
    """Members of the classic protocol, and "C" of the consumer protocol, all stable and without partitions."""

    def __init__(self, count: int) -> None:
        log = ManualLog()
        self.classic_ids = [f"m{number}" for number in range(count)]
        records: list[ConsumerRecord] = [
            GroupEpochRecord(GROUP, GroupEpochValue(2)),
            TargetEpochRecord(GROUP, TargetEpochValue(2)),
        ]
        for member_id in (*self.classic_ids, "C"):
            about = MemberValue(topics=("t",), rebalance_timeout_ms=60_000, classic=CLASSIC)
            records += (
                MemberRecord(GROUP, member_id, about._replace(classic=None) if member_id == "C" else about),
                TargetRecord(GROUP, member_id, ()),
                CurrentRecord(GROUP, member_id, CurrentValue(2, 2)),
            )
        partition = MigrationWorld().directory.partitions.number_of(GROUP)
        log.durable = [(partition, record) for record in records]
        ports = DEFAULT_PORTS._replace(assignors={"uniform": WorkingAssignor()})
        self.world = MigrationWorld(log.groups(), log=log, consumer_groups=ports)

    def longest_turn(self, request: GroupRequest) -> int:
        """The lines of the longest turn until the request is answered and all actors are idle."""
        counter, log = WorkCounter(), self.world.log
        self.reply = RecordedReply()
        self.world.directory.post(request, self.reply)
        self._count_turns(counter)
        while log.in_flight:
            log.complete_append()
            self._count_turns(counter)
        return counter.longest

    def _count_turns(self, counter: WorkCounter) -> None:
        with counter.counting():
            while self.world.dispatcher.step():
                counter.end_piece()


def all_classic_members_leave(group: LargeMixedGroup) -> GroupRequest:
    return leave(*group.classic_ids, group_id=GROUP)


def last_consumer_leaves(_group: LargeMixedGroup) -> GroupRequest:
    return ConsumerHeartbeat(GROUP, "C", -1)


def consumer_joins_the_classic_group(group: LargeMixedGroup) -> GroupRequest:
    group.world.post(last_consumer_leaves(group))
    return ConsumerHeartbeat(GROUP, "D", 0, rebalance_timeout_ms=60_000, topics=("t",), owned=())


@pytest.mark.parametrize(
    "request_of", [all_classic_members_leave, last_consumer_leaves, consumer_joins_the_classic_group]
)
def test_turns_do_not_grow_with_the_number_of_members(request_of: Callable[[LargeMixedGroup], GroupRequest]) -> None:
    few, many = LargeMixedGroup(FEW), LargeMixedGroup(MANY)
    growth = many.longest_turn(request_of(many)) - few.longest_turn(request_of(few))
    assert growth <= LINES_PER_MEMBER * (MANY - FEW)
    assert not many.reply.value.error


def test_turns_do_not_grow_with_the_partitions_that_a_classic_member_owns() -> None:
    assert longest_join(MANY) - longest_join(FEW) <= LINES_PER_PARTITION * (MANY - FEW)


def longest_join(owned_count: int) -> int:
    group = LargeMixedGroup(2)
    owned = tuple(("t", number) for number in range(owned_count))
    offer = Protocol("range", write_subscription(Subscription(("t",), None, owned), version=1))
    longest = group.longest_turn(join("m0", group_id=GROUP, protocols=[offer]))
    assert not group.reply.value.error
    return longest
