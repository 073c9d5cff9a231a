"""A consumer group with its actor, in a coordinator on the test's thread."""

from __future__ import annotations

from typing import Any

from actor_system.ports import ManualLog, RecordedReply
from actor_system.simulation import CoordinatorSimulation

from callboard.actors.consumer_group.group import ConsumerGroup
from callboard.actors.consumer_group.messages import (
    ConsumerGroupDescribed,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribeConsumerGroup,
)
from callboard.actors.consumer_group.records import Partition

GROUP = "g"


class ActorWorld(CoordinatorSimulation):
    """``owned`` and assignments are texts, such as "t0 t1", as in ``group_world``."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.settings.group_consumer_assignment_interval_ms = 0

    def restarted(self) -> ActorWorld:
        """A coordinator that has loaded what is durable."""
        log = ManualLog()
        log.durable = list(self.log.durable)
        return ActorWorld(log.groups(), log=log)

    def beat(self, member_id: str, epoch: int, **fields: Any) -> RecordedReply:
        """Send a heartbeat and run."""
        if "owned" in fields:
            fields["owned"] = self.partitions(fields["owned"])
        given = {"client_id": "client", "client_host": "/127.0.0.1"} | fields
        return self.post(ConsumerHeartbeat(GROUP, member_id, epoch, **given))

    def join(self, member_id: str, *topics: str, **fields: Any) -> RecordedReply:
        given = {"rebalance_timeout_ms": 60_000, "topics": topics or ("t",), "owned": ""} | fields
        return self.beat(member_id, 0, **given)

    def told(self, reply: RecordedReply) -> tuple[int, str | None]:
        """The epoch in a reply, and the assignment."""
        value: ConsumerHeartbeatReply = reply.value
        assert not value.error, value
        return value.member_epoch, self.text(value.assigned)

    def described(self) -> ConsumerGroupDescribed:
        value: ConsumerGroupDescribed = self.post(DescribeConsumerGroup(GROUP)).value
        return value

    def assigned(self) -> dict[str, str | None]:
        """What is durable, by member."""
        return {member.member_id: self.text(member.assigned) for member in self.described().members}

    @property
    def consumer_group(self) -> ConsumerGroup:
        actor: Any = self.directory.groups[GROUP].actor_inbox.actor
        group: ConsumerGroup = actor.group
        return group

    def key_types(self) -> list[int]:
        """Of the records of the last round; negative for tombstones."""
        records: list[Any] = [record for entry in self.log.rounds[-1] for record in entry.records]
        return [record.key_type if record.value is not None else -record.key_type for record in records]

    def settle(self, *member_ids: str, rounds: int = 4) -> None:
        """Let the members send heartbeats, as clients do that own what they are told, until nothing changes."""
        for _ in range(rounds):
            for member_id in member_ids:
                member = self.consumer_group.soft.members[member_id]
                owned = tuple(member.current.assigned)
                self.beat(member_id, member.current.member_epoch, owned=self.text(owned))

    def partitions(self, text: str) -> tuple[Partition, ...]:
        return tuple((self.topics_view.topic_id(item[:-1]) or b"?", int(item[-1])) for item in text.split())

    def text(self, partitions: tuple[Partition, ...] | None) -> str | None:
        if partitions is None:
            return None
        names = {self.topics_view.topic_id(name): name for name in self.topics_view.names()}
        return " ".join(sorted(f"{names.get(topic_id, '?')}{number}" for topic_id, number in partitions))


def two_members() -> ActorWorld:
    """One has two partitions of t, the other has one; both are stable."""
    world = ActorWorld()
    world.join("a")
    world.join("b")
    world.settle("a", "b")
    assert sorted(len(str(text).split()) for text in world.assigned().values()) == [1, 2]
    return world
