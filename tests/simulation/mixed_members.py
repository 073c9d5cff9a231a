"""Members of both protocols in one group, which changes between them (KIP-848), in virtual time, with all faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from callboard.actors.assignors.consumer_protocol import (
    MemberAssignment,
    Subscription,
    read_assignment,
    write_assignment,
    write_subscription,
)
from callboard.actors.messages import Protocol
from callboard.runtime.member.member import Member
from callboard.runtime.member.shards import Shard
from callboard.runtime.testing.simulation.chaos import Chaos
from callboard.runtime.testing.simulation.scenario import Sim

from .consumer_members import consumer_settings
from .players import Worker
from .worker_groups import GROUP, MemberGroup

JOBS = "jobs"


class ClassicConsumer(Worker):
    """A worker with the subscriptions and assignments of Kafka's consumers. It owns nothing when it joins again."""

    topic = JOBS
    offer = Protocol("range", write_subscription(Subscription((JOBS,)), version=1))

    def __init__(self, *args: Any, next_token: Callable[[], int], **options: Any) -> None:
        self.next_token = next_token
        super().__init__(*args, **options)

    def _token(self) -> int:
        return self.next_token()

    def _encode(self, partitions: list[int]) -> bytes:
        return write_assignment(MemberAssignment(tuple((JOBS, number) for number in partitions)))

    def _decode(self, assignment: bytes) -> list[int]:
        read = read_assignment(assignment)
        assert read is not None
        return [number for _, number in read.partitions]


class MixedGroup(MemberGroup):
    """Each member that starts draws its protocol.

    Work has a token of its own, in the order in which it begins: a group that is empty, and then used with the other
    protocol, begins again with low epochs.
    """

    def __init__(self, sim: Sim, parts: int) -> None:
        super().__init__(sim, {JOBS: parts}, rebalance_timeouts_ms=(8000, 20_000), protocol="consumer")
        self.parts = parts
        self.classic: dict[str, ClassicConsumer] = {}
        self._begun = 0

    def start(self, name: str) -> None:
        self._start(name, self.sim.random.random() < 0.5)

    def _start(self, name: str, is_classic: bool) -> None:
        self.classic.pop(name, None)  # it restarts, perhaps with the other protocol
        if not is_classic:
            super().start(name)
        elif name not in self.leaving and name not in self.ending:
            self.leaving[name] = asyncio.Event()
            session_s = self.sim.random.choice((6.0, 10.0))
            self.classic[name] = ClassicConsumer(
                self.sim, name, GROUP, self.parts, session_s=session_s, next_token=self._next_token
            )

    def _next_token(self) -> int:
        self._begun += 1
        return self._begun

    def leave(self) -> None:
        if len(self.leaving) > 1:
            self._end(self._drawn())

    def _end(self, name: str) -> None:
        leaving = self.leaving.pop(name)
        if name in self.classic:
            self.classic.pop(name).leave()
        else:
            self.ending.add(name)
            leaving.set()

    def replace(self) -> None:
        """A member leaves, and one with the other protocol joins, as in a rolling upgrade."""
        if self.leaving:
            name = self._drawn()
            is_classic = name in self.classic
            self._end(name)
            self._count += 1
            self._start(f"m{self._count}", not is_classic)

    def die(self) -> None:
        super().die()
        for name in self.classic.keys() - self.leaving.keys():
            del self.classic[name]

    async def _run(self, member: Member, owner: str) -> None:
        async def work(shard: Shard) -> None:
            with self.sim.works_on((GROUP, shard.resource, shard.name), owner, self._next_token()):
                await self._work(shard)

        async with member:
            await member.run(work)

    def _check_look(self, shard: Shard) -> None:
        """Tokens of both protocols cannot be compared."""


async def mixed_members(sim: Sim) -> None:
    """Members of both protocols join, leave, die and lose answers; the group is upgraded and downgraded."""
    await sim.begin(
        **consumer_settings(group_consumer_assignment_interval_ms=sim.random.choice((0, 0, 1000))),
    )
    parts = sim.random.randint(2, 4)
    assert sim.coordinator.current is not None
    sim.coordinator.current.ensure_topics({JOBS: parts})
    member_group = MixedGroup(sim, parts)
    member_group.join()
    member_group.join()
    actions = {**member_group.actions(), **{f"replace {number}": member_group.replace for number in range(3)}}
    del actions["freeze"]
    await Chaos(sim, actions).run(18)
    await sim.calm()
    await member_group.settle()
