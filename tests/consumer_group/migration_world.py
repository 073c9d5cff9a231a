"""A group that changes between the classic and the consumer protocol, with its actor and real subscriptions."""

from __future__ import annotations

from typing import Any

from actor_system.ports import ManualLog, RecordedReply
from actor_system.requests import heartbeat, join, leave, sync
from consumer_group.actor_world import GROUP, ActorWorld

from callboard.actors.assignors.consumer_protocol import (
    MemberAssignment,
    Subscription,
    read_assignment,
    write_assignment,
    write_subscription,
)
from callboard.actors.errors import ErrorCode
from callboard.actors.messages import DescribeGroup, Joined, Protocol, Synced
from callboard.actors.records import CLASSIC


class MigrationWorld(ActorWorld):
    """Members of the classic protocol are named in lower case, those of the consumer protocol in upper case."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.settings.group_initial_rebalance_delay_ms = 0

    def restarted(self) -> MigrationWorld:
        log = ManualLog()
        log.durable = list(self.log.durable)
        restarted = MigrationWorld(log.groups(), log=log)
        restarted.random.draw_as(self.random)  # else it would make the same member ids again
        return restarted

    def classic_join(self, member_id: str = "", owned: str = "", topics: str = "t", **changes: Any) -> RecordedReply:
        names = tuple(changes.pop("protocols", ("range",)))
        metadata = write_subscription(Subscription(tuple(topics.split()), None, named(owned)), version=1)
        offers = [Protocol(name, metadata) for name in names]
        reply = self.post(join(member_id, group_id=GROUP, protocols=offers, **changes))
        self.advance(0)  # the initial delay of a new group
        return reply

    def joined(self, member_id: str, owned: str = "", **changes: Any) -> int:
        value: Joined = self.classic_join(member_id, owned, **changes).value
        assert value.error is ErrorCode.NONE, value
        return value.generation_id

    def classic_sync(self, member_id: str, generation: int, assigned: dict[str, str] | None = None) -> RecordedReply:
        assignments = {
            name: write_assignment(MemberAssignment(named(text)), 1) for name, text in (assigned or {}).items()
        }
        return self.post(sync(member_id, generation, assignments, group_id=GROUP))

    def synced(self, member_id: str, generation: int, assigned: dict[str, str] | None = None) -> str:
        value: Synced = self.classic_sync(member_id, generation, assigned).value
        assert value.error is ErrorCode.NONE, value
        return assignment_text(value.assignment)

    def classic_beat(self, member_id: str, generation: int) -> ErrorCode:
        error: ErrorCode = self.post(heartbeat(member_id, generation, group_id=GROUP)).value
        return error

    def leave(self, *member_ids: str) -> RecordedReply:
        return self.post(leave(*member_ids, group_id=GROUP))

    @property
    def kind_and_state(self) -> tuple[str, str]:
        [listed] = self.listed()
        return listed.group_type, listed.state

    def classic_state(self) -> str:
        described = self.post(DescribeGroup(GROUP)).value
        assert self.kind_and_state[0] == CLASSIC
        state: str = described.state
        return state


def named(text: str) -> tuple[tuple[str, int], ...]:
    return tuple((item[:-1], int(item[-1])) for item in text.split())


def assignment_text(data: bytes) -> str:
    assignment = read_assignment(data)
    assert assignment is not None
    return " ".join(sorted(f"{topic}{number}" for topic, number in assignment.partitions))


def classic_pair(**options: Any) -> tuple[MigrationWorld, str, str]:
    """Two members of a stable classic group in generation 2: one has t0 and t1, the other t2."""
    world = MigrationWorld()
    first: str = world.classic_join(**options).value.member_id
    world.synced(first, 1, {first: "t0 t1 t2"})
    pending = world.classic_join(**options)
    assert world.joined(first, "t0 t1 t2", **options) == 2
    second: str = pending.value.member_id
    parked = world.classic_sync(second, 2)
    assert world.synced(first, 2, {first: "t0 t1", second: "t2"}) == "t0 t1"
    assert assignment_text(parked.value.assignment) == "t2"
    assert world.kind_and_state == ("classic", "Stable")
    return world, first, second


def mixed(**options: Any) -> tuple[MigrationWorld, str]:
    """A classic member and the member "C" of the consumer protocol, both stable in epoch 2."""
    world = MigrationWorld()
    member: str = world.classic_join(**options).value.member_id
    world.synced(member, 1, {member: "t0 t1 t2"})
    world.join("C")
    world.joined(member, "t0 t1 t2", **options)
    kept = world.synced(member, 1)
    assert world.joined(member, kept, **options) == 2
    assert world.synced(member, 2) == kept
    world.settle("C")
    assert world.kind_and_state == ("consumer", "Stable")
    return world, member
