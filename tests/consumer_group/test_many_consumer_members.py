"""Groups with many members: no turn handles all when they leave, are loaded, or the group changes its protocol."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from actor_system.ports import ManualLog, RecordedReply
from actor_system.requests import join, leave
from actor_system.simulation import EPOCH
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
from callboard.actors.errors import ErrorCode
from callboard.actors.group.offsets import GroupData
from callboard.actors.messages import (
    GroupRequest,
    GroupsLoaded,
    PartitionGained,
    PartitionLoaded,
    PartitionLost,
    Protocol,
)

FEW, MANY = 400, 1_200
LINES_PER_MEMBER = 27
"""Executed lines: to sort members by the hashes of their ids, and comprehensions. Removing a member takes 100."""

LINES_PER_COPIED_MEMBER = 2
"""The members are copied by code in C."""

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
        count_turns(self.world, counter)
        while log.in_flight:
            log.complete_append()
            count_turns(self.world, counter)
        return counter.longest

    def longest_turn_after_failure(self) -> int:
        """The same after the log has refused the records of a member that leaves."""
        counter, world = WorkCounter(), self.world
        reply = RecordedReply()
        world.directory.post(leave(self.classic_ids[0], group_id=GROUP), reply)
        world.dispatcher.run()
        world.log.fail()
        count_turns(world, counter)
        assert reply.value.error is ErrorCode.NOT_COORDINATOR
        return counter.longest


def count_turns(world: MigrationWorld, counter: WorkCounter) -> None:
    """Run until all actors are idle."""
    with counter.counting():
        while world.dispatcher.step():
            counter.end_piece()


def longest_turn_of_load(data: GroupData) -> tuple[int, MigrationWorld]:
    """The partition of a group is gained from another node while others are served."""
    world, counter = MigrationWorld(), WorkCounter()
    partition, epoch = world.directory.partitions.number_of(GROUP), EPOCH + 1
    world.tell_coordinator(PartitionLost(partition, EPOCH))
    world.tell_coordinator(PartitionGained(partition, epoch))
    world.coordinator.tell(GroupsLoaded(partition, epoch, {}, {GROUP: data}))
    world.coordinator.tell(PartitionLoaded(partition, epoch))
    count_turns(world, counter)
    return counter.longest, world


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


def test_turns_after_a_failed_append_do_not_grow_with_the_number_of_members() -> None:
    few, many = LargeMixedGroup(FEW), LargeMixedGroup(MANY)
    growth = many.longest_turn_after_failure() - few.longest_turn_after_failure()
    assert growth <= LINES_PER_COPIED_MEMBER * (MANY - FEW)
    assert many.world.deadlines == MANY + 1, "the member that has not left has a session again"


@pytest.mark.parametrize("is_classic", [False, True], ids=["consumer", "classic"])
def test_turns_of_a_load_do_not_grow_with_the_number_of_members(is_classic: bool) -> None:
    longest = []
    for count in (FEW, MANY):
        group = LargeMixedGroup(count)
        if is_classic:
            group.world.post(last_consumer_leaves(group))
        lines, world = longest_turn_of_load(group.world.log.groups()[GROUP])
        longest.append(lines)
        assert world.deadlines == count + 1, "sessions of all members, and of C or until the rebalance after it ends"
        assert world.kind_and_state[0] == ("classic" if is_classic else "consumer")
    assert longest[1] - longest[0] <= LINES_PER_COPIED_MEMBER * (MANY - FEW)


def test_turns_do_not_grow_with_the_partitions_that_a_classic_member_owns() -> None:
    assert longest_join(MANY) - longest_join(FEW) <= LINES_PER_PARTITION * (MANY - FEW)


def longest_join(owned_count: int) -> int:
    group = LargeMixedGroup(2)
    owned = tuple(("t", number) for number in range(owned_count))
    offer = Protocol("range", write_subscription(Subscription(("t",), None, owned), version=1))
    longest = group.longest_turn(join("m0", group_id=GROUP, protocols=[offer]))
    assert not group.reply.value.error
    return longest
