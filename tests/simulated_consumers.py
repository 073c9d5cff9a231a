"""Members of consumer groups (KIP-848) in virtual time, as clients of the processes of a simulated cluster."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from simulated_processes import DELAY_S, SimulatedWorker, WireChannel

from callboard.actors.consumer_group.messages import ConsumerHeartbeat, ConsumerHeartbeatReply
from callboard.actors.consumer_group.records import Partition
from callboard.actors.errors import ErrorCode
from callboard.actors.javahash import offsets_partition
from callboard.runtime.member.channel import ChannelLost
from callboard.runtime.testing.simulation.loop import Process, VirtualLoop

HEARTBEAT_S = 0.5
RETRY_S = 0.1
TIMEOUT_S = 1.0
RETRIABLE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


class Owners:
    """Which member works on each partition of a group: never two."""

    def __init__(self) -> None:
        self._members: dict[tuple[str, Partition], str] = {}

    def change(self, member: ConsumerMember, partitions: frozenset[Partition]) -> None:
        for partition in member.partitions - partitions:
            del self._members[member.group, partition]
        for partition in partitions - member.partitions:
            other = self._members.setdefault((member.group, partition), member.member_id)
            assert other == member.member_id, f"{member.member_id} gets {partition} of {other} in {member.group}"


class ConsumerMember:
    """Sends heartbeats to the coordinator, and everything about itself after an error, as clients do.

    ``changes``: how often other partitions were assigned. ``beats``: heartbeats that succeeded. ``fenced``: errors
    after which it has joined again. ``errors``: all that it was answered.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        group: str,
        member_id: str,
        topic: str,
        workers: Mapping[str, SimulatedWorker],
        owners: Owners,
    ) -> None:
        self.loop = loop
        self.process = Process(loop, member_id)
        self.group = group
        self.member_id = member_id
        self.epoch = 0
        self.partitions: frozenset[Partition] = frozenset()
        self.changes = self.beats = self.fenced = 0
        self.errors: set[ErrorCode] = set()
        self._topic = topic
        self._workers = workers
        self._owners = owners
        self._draw = random.Random(member_id)
        self._channel: WireChannel | None = None
        self._told: frozenset[Partition] | None = None  # what the coordinator was told of last; None for nothing

    async def run(self) -> None:
        while True:
            is_served = False
            with suppress(ChannelLost, TimeoutError):
                is_served = await self._beat()
            if not is_served:
                self._channel, self._told = None, None
            await asyncio.sleep(HEARTBEAT_S if is_served else RETRY_S)

    async def leave(self) -> None:
        """Give everything back, then say goodbye, as a consumer that closes."""
        self._use(frozenset())
        with suppress(ChannelLost, TimeoutError):
            await self._ask(ConsumerHeartbeat(self.group, self.member_id, -1))

    async def _beat(self) -> bool:
        """Whether a coordinator has answered the heartbeat."""
        owned = None if self.partitions == self._told else tuple(sorted(self.partitions))
        about: dict[str, Any] = {"owned": owned}
        if self._told is None:
            about |= {"rebalance_timeout_ms": 60_000, "topics": (self._topic,)}
        self._told = self.partitions
        reply = await self._ask(ConsumerHeartbeat(self.group, self.member_id, self.epoch, **about))
        if reply.error:
            self._note(reply.error)
            return False
        self.beats += 1
        self.epoch = reply.member_epoch
        if reply.assigned is not None:
            self._use(frozenset(reply.assigned))
        return True

    def _note(self, error: ErrorCode) -> None:
        self.errors.add(error)
        if error not in RETRIABLE:
            self.fenced += 1
            self.epoch = 0
            self._use(frozenset())

    def _use(self, partitions: frozenset[Partition]) -> None:
        self.changes += partitions != self.partitions
        self._owners.change(self, partitions)
        self.partitions = partitions

    async def _ask(self, message: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
        if self._channel is None:
            self._channel = await self._find()
        async with asyncio.timeout(TIMEOUT_S):
            reply: ConsumerHeartbeatReply = await self._channel.ask(message)
        return reply

    async def _find(self) -> WireChannel:
        """By any node that is alive: what it says may be old."""
        await asyncio.sleep(DELAY_S)
        worker = self._draw.choice([each for each in self._workers.values() if not each.process.is_dead])
        register = worker.register
        if register is not None:
            session = register.owners[offsets_partition(self.group, register.counts.offsets)]
            node = register.nodes.get(session)
            for found in self._workers.values():
                if node is not None and found.name == node.name and not found.process.is_dead:
                    return WireChannel(self, found, self.member_id)
        raise ChannelLost("nobody coordinates the group")
