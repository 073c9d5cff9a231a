"""Running groups whose offsets are reset again and again, while clients without a generation commit old positions."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from callboard.actors.consumer_group.messages import JOIN_EPOCH, ConsumerHeartbeat
from callboard.actors.errors import ErrorCode
from callboard.actors.group.reset_messages import ResetOffset, ResetOffsets
from callboard.actors.messages import Commit, OffsetCommit
from callboard.runtime.member.channel import ChannelLost
from callboard.runtime.testing.simulation.chaos import Action, Chaos
from callboard.runtime.testing.simulation.history import Exchange, Listener
from callboard.runtime.testing.simulation.scenario import Sim

from .players import HOST, TOPIC, SimulatedClient
from .shared_log import AWAY_S, MovingPartitions
from .worker_groups import WorkerGroup

CLASSIC_GROUP, CONSUMER_GROUP = "company", "night"
PARTITIONS = 3
FIRST_RESET = 1_000_000  # no member commits such offsets, and each reset has others
BURST_S = 4.0
"""After a reset late commits come within this time, before and after the members are back."""


class Resetter(SimulatedClient):
    """Evicts all members of a group and sets some of its offsets, or deletes them."""

    def __init__(self, sim: Sim, name: str, group_id: str) -> None:
        self.group_id = group_id
        self._next_offset = FIRST_RESET
        super().__init__(sim, name)

    async def run(self) -> None:
        while True:
            await self.pause(5.0)
            with suppress(ChannelLost):
                await self.ask(ResetOffsets(self.group_id, tuple(map(self._target, self._partitions()))))

    def _partitions(self) -> list[int]:
        draw = self.sim.random
        return sorted(draw.sample(range(PARTITIONS), draw.randint(1, PARTITIONS)))

    def _target(self, partition: int) -> ResetOffset:
        self._next_offset += 1
        return ResetOffset(TOPIC, partition, None if self.sim.random.random() < 0.2 else self._next_offset)


class LateCommitter(SimulatedClient, Listener):
    """Commits what members have committed before, without a generation: most of it soon after a reset."""

    def __init__(self, sim: Sim, name: str, group_id: str) -> None:
        self.group_id = group_id
        self._positions: dict[int, int] = {}
        self._was_reset = asyncio.Event()
        sim.history.listeners.append(self)
        super().__init__(sim, name)

    def arrived(self, exchange: Exchange) -> None:
        message = exchange.message
        if isinstance(message, OffsetCommit) and message.group_id == self.group_id and message.generation_id >= 0:
            self._positions |= {commit.partition: commit.offset for commit in message.commits}
        elif isinstance(message, ResetOffsets) and message.group_id == self.group_id:
            self._was_reset.set()

    async def run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(20 * self.sim.random.random()):
                    await self._was_reset.wait()
            self._was_reset.clear()
            end_s = self.sim.now_s + BURST_S * self.sim.random.random()
            while self.sim.now_s < end_s:
                await self._commit()
                await self.pause(0.2)

    async def _commit(self) -> None:
        if not self._positions:
            return
        partition = self.sim.random.choice(sorted(self._positions))
        late = Commit(TOPIC, partition, self._positions[partition], -1, self.unique())
        with suppress(ChannelLost):
            await self.ask(OffsetCommit(self.group_id, "", None, -1, (late,)))


class ConsumerWorker(SimulatedClient):
    """A member of the consumer protocol, which commits positions of all partitions of the topic."""

    def __init__(self, sim: Sim, name: str, group_id: str) -> None:
        self.group_id = group_id
        self._epoch = JOIN_EPOCH
        super().__init__(sim, name)

    async def run(self) -> None:
        position = 0
        while True:
            await self.pause(2.0)
            with suppress(ChannelLost):
                await self._beat()
                if self._epoch != JOIN_EPOCH and self.sim.random.random() < 0.7:
                    position += 1
                    await self._commit(position)

    async def _beat(self) -> None:
        joins: dict[str, Any] = (
            {"rebalance_timeout_ms": 20_000, "topics": (TOPIC,), "owned": ()} if self._epoch == JOIN_EPOCH else {}
        )
        beat = ConsumerHeartbeat(self.group_id, self.name, self._epoch, client_id=self.name, client_host=HOST, **joins)
        reply = await self.ask(beat)
        if reply.error is ErrorCode.NONE:
            self._epoch = reply.member_epoch
        elif reply.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self._epoch = JOIN_EPOCH

    async def _commit(self, position: int) -> None:
        partition = self.sim.random.randrange(PARTITIONS)
        commits = (Commit(TOPIC, partition, position, -1, self.unique()),)
        sent = OffsetCommit(self.group_id, self.name, None, self._epoch, commits, supports_group_id_not_found=True)
        await self.ask(sent)


async def resets(sim: Sim) -> None:
    """Groups of both protocols; the coordinator crashes, its disk fills up, and other nodes take its partitions."""
    actions: dict[str, Action] = {}
    partitions = MovingPartitions(sim) if sim.random.random() < 0.3 else None
    if partitions is not None:
        sim.coordinator.setup = sim.coordinator.setup._replace(store=partitions.make)
        actions |= {f"partition moves, {number}": partitions.move for number in range(3)}
    await sim.begin(
        group_initial_rebalance_delay_ms=sim.random.choice((0, 3000)), group_consumer_assignment_interval_ms=0
    )
    workers_group = WorkerGroup(sim, PARTITIONS, group_id=CLASSIC_GROUP, is_watched=False)
    workers_group.join()
    workers_group.join()
    ConsumerWorker(sim, "n1", CONSUMER_GROUP)
    for group_id in (CLASSIC_GROUP, CONSUMER_GROUP):
        Resetter(sim, f"r-{group_id}", group_id)
        LateCommitter(sim, f"l-{group_id}", group_id)
    actions |= workers_group.actions()
    action_names = (*actions, "crash", "power cut", "clean restart", "full disk", "appends refused", "hang up")
    await Chaos(sim, actions).run(16, action_names, pause_s=5)
    await sim.calm()
    if partitions is not None:
        await sim.until(partitions.are_complete, 2 * max(AWAY_S), "all partitions are back")
    await sim.sleep(5)
