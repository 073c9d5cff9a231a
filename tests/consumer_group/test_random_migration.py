"""Random members of both protocols in one group, and restarts: no partition has two users, and all get one in the end.

The members behave as Kafka's clients. Those of the classic protocol have an eager assignor: they give up all
partitions before they join.
"""

from __future__ import annotations

import random
from typing import Any

from actor_system.ports import RecordedReply
from consumer_group.actor_world import GROUP
from consumer_group.migration_world import MigrationWorld, assignment_text

from callboard.actors.consumer_group.group import ConsumerGroup
from callboard.actors.consumer_group.invariants import check
from callboard.actors.errors import ErrorCode
from callboard.actors.group.classic import ClassicGroup

PARTITIONS = ("t0", "t1", "t2")
SEEDS = 8
STEPS = 60
ROUNDS = 80  # of heartbeats, until nothing changes
ROUND_MS = 3_000  # after a restart there may be members whose answers were lost, until their rebalance timeout


class Consumer:
    """A member of the consumer protocol. ``used``: the partitions that it reads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = 0
        self.used: set[str] = set()

    def step(self, world: MigrationWorld) -> None:
        owned = " ".join(sorted(self.used))
        reply = world.beat(self.name, self.epoch, owned=owned) if self.epoch else world.join(self.name)
        if reply.value.error:
            self.epoch, self.used = 0, set()
            return
        self.epoch, assigned = world.told(reply)
        if assigned is not None:
            self.used = set(assigned.split())

    def leave(self, world: MigrationWorld) -> None:
        world.beat(self.name, -1)

    def disconnect(self) -> None:
        """Nothing of it waits for the coordinator."""


class Classic:
    """A member of the classic protocol. ``pending``: its JoinGroup or SyncGroup that is not answered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.used: set[str] = set()
        self.pending: RecordedReply | None = None
        self.handle: Any = None

    def step(self, world: MigrationWorld) -> None:
        if self.pending is not None:
            if not self.pending.is_waiting:
                pending, self.pending = self.pending, None
                self.handle(world, pending.value)
            return
        error = (
            world.classic_beat(self.member_id, self.generation) if self.generation >= 0 else ErrorCode.NOT_COORDINATOR
        )
        if error is not ErrorCode.NONE:
            self._join(world, error)

    def _join(self, world: MigrationWorld, error: ErrorCode) -> None:
        self.used = set()
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self._send(world.classic_join(self.member_id), self._joined)

    def _send(self, reply: RecordedReply, handle: Any) -> None:
        self.pending, self.handle = reply, handle

    def _joined(self, world: MigrationWorld, joined: Any) -> None:
        if joined.error is not ErrorCode.NONE:
            self.generation = -1
            self.member_id = "" if joined.error is ErrorCode.UNKNOWN_MEMBER_ID else self.member_id
            return
        self.member_id, self.generation = joined.member_id, joined.generation_id
        members = [member.member_id for member in joined.members]
        assigned = {member_id: " ".join(PARTITIONS[number :: len(members)]) for number, member_id in enumerate(members)}
        self._send(world.classic_sync(self.member_id, self.generation, assigned), self._synced)

    def _synced(self, world: MigrationWorld, synced: Any) -> None:
        if synced.error is not ErrorCode.NONE:
            self._join(world, synced.error)
        else:
            self.used = set(assignment_text(synced.assignment).split())

    def leave(self, world: MigrationWorld) -> None:
        world.leave(self.member_id)

    def disconnect(self) -> None:
        if self.pending is not None:
            self.pending, self.generation, self.used = None, -1, set()


class Play:
    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.world = MigrationWorld()
        self.members: list[Consumer | Classic] = []
        self.count = 0
        self.kind = ""
        self.changes = 0  # of the kind of the group

    def step(self) -> None:
        self.draw.choice((self.enter, self.leave, self.restart, *[self.beat] * 9))()
        self.check()

    def enter(self) -> None:
        if len(self.members) < 3:
            self.count += 1
            self.members.append(self.draw.choice((Consumer, Classic))(f"M{self.count}"))

    def leave(self) -> None:
        settled = [member for member in self.members if isinstance(member, Consumer) or member.pending is None]
        if settled:
            member = self.draw.choice(settled)
            self.members.remove(member)
            member.leave(self.world)

    def restart(self) -> None:
        self.world = self.world.restarted()
        for member in self.members:
            member.disconnect()

    def beat(self) -> None:
        if self.members:
            self.draw.choice(self.members).step(self.world)

    def check(self) -> None:
        used = [partition for member in self.members for partition in member.used]
        assert len(used) == len(set(used)), f"a partition has two users: {[(m.name, m.used) for m in self.members]}"
        ref = self.world.directory.groups.get(GROUP)
        group = None if ref is None else ref.actor_inbox.actor.group  # type: ignore[union-attr]
        if isinstance(group, ConsumerGroup):
            check(group)
        elif isinstance(group, ClassicGroup):
            group.check()
        for listed in self.world.listed():
            self.changes += listed.group_type != self.kind
            self.kind = listed.group_type

    def settle(self) -> None:
        self.members = self.members or [Consumer("last")]
        for _ in range(ROUNDS):
            self.world.advance(ROUND_MS)
            for member in self.members:
                member.step(self.world)
                self.check()
        assert {partition for member in self.members for partition in member.used} == set(PARTITIONS)
        assert self.world.kind_and_state[1] == "Stable"
        if not any(isinstance(member, Consumer) for member in self.members):
            assert self.world.kind_and_state[0] == "classic"


def test_no_partition_has_two_users() -> None:
    changes = 0
    for seed in range(SEEDS):
        play = Play(seed)
        for _ in range(STEPS):
            play.step()
        play.settle()
        changes += play.changes
    assert changes > 2 * SEEDS
