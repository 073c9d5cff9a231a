"""Clients of a simulated coordinator that send requests at the moment at which something ends."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from callboard.actors.consumer_group.messages import ConsumerHeartbeat
from callboard.actors.messages import Commit, Heartbeat, OffsetCommit, OffsetFetch, TxnOffsetCommit
from callboard.actors.transactions.messages import AddOffsets, EndTransaction, InitProducerId
from callboard.runtime.member.channel import ChannelLost
from callboard.runtime.testing.simulation.history import Exchange, Listener
from callboard.runtime.testing.simulation.scenario import Sim

from .players import TOPIC, SimulatedClient


class ExpiryRacer(SimulatedClient):
    """Commits again at the moment at which its last commit expires, during a retention scan."""

    def __init__(self, sim: Sim, name: str, group_id: str, retention_s: float) -> None:
        self.group_id = group_id
        self.retention_s = retention_s
        super().__init__(sim, name)

    async def run(self) -> None:
        while True:
            with suppress(ChannelLost):
                await self._commit()
                await asyncio.sleep(self.retention_s - 0.01)
                await self._commit_during_retention_scan()
                await self.ask(OffsetFetch(self.group_id, ((TOPIC, (0,)),), True))

    async def _commit_during_retention_scan(self) -> None:
        sim = self.sim
        try:
            if sim.set(offsets_retention_check_interval_ms=3):
                await self.pause(0.005)
                await self._commit()
        finally:
            while not sim.set(offsets_retention_check_interval_ms=10_000):
                await self.pause()

    async def _commit(self) -> None:
        commit = Commit(TOPIC, 0, self.sim.random.randrange(1000), -1, self.unique())
        await self.ask(OffsetCommit(self.group_id, "", None, -1, (commit,)))


class TransactionalRacer(SimulatedClient):
    """Commits an offset again in a transaction, which is open while the last commit expires."""

    def __init__(self, sim: Sim, name: str, group_id: str, retention_s: float) -> None:
        self.group_id = group_id
        self.retention_s = retention_s
        super().__init__(sim, name)

    async def run(self) -> None:
        while True:
            with suppress(ChannelLost):
                await self._race()
            await self.pause()

    async def _race(self) -> None:
        answer = await self.ask(InitProducerId(self.name, int(self.retention_s * 1000)))
        if answer.error:
            return
        producer = answer.producer_id, answer.producer_epoch
        await self.ask(OffsetCommit(self.group_id, "", None, -1, self._commits()))
        committed_s = self.sim.now_s
        await asyncio.sleep(self.retention_s * self.sim.random.random())
        await self.ask(AddOffsets(self.name, *producer, self.group_id))
        await self.ask(TxnOffsetCommit(self.group_id, self.name, *producer, "", None, -1, self._commits()))
        await asyncio.sleep(max(committed_s + self.retention_s - self.sim.now_s, 0) + self.sim.random.random() * 4)
        await self.ask(EndTransaction(self.name, *producer, True))
        await self.ask(OffsetFetch(self.group_id, ((TOPIC, (0, 1)),), True))

    def _commits(self) -> tuple[Commit, ...]:
        """For both partitions, or one of them."""
        partitions = self.sim.random.choice(((0, 1), (0,)))
        offset = self.sim.random.randrange(1000)
        return tuple(Commit(TOPIC, partition, offset, -1, self.unique()) for partition in partitions)


class LateHeartbeats(SimulatedClient, Listener):
    """Sends heartbeats of members, mostly dead ones, with an older generation, as if they were late."""

    def __init__(self, sim: Sim, name: str, group_id: str) -> None:
        self.group_id = group_id
        self._last: dict[str, Heartbeat] = {}  # by member id
        sim.history.listeners.append(self)
        super().__init__(sim, name)

    def arrived(self, exchange: Exchange) -> None:
        message = exchange.message
        if exchange.client != self.name and isinstance(message, Heartbeat) and message.group_id == self.group_id:
            self._last[message.member_id] = message

    async def run(self) -> None:
        while True:
            await self.pause(0.5)
            for message in list(self._last.values())[-8:]:
                with suppress(ChannelLost):
                    await self.ask(message._replace(generation_id=message.generation_id - 1))


class LateConsumers(SimulatedClient, Listener):
    """Sends heartbeats and commits of members of the consumer protocol with epochs that are too old, or too new."""

    def __init__(self, sim: Sim, name: str, group_id: str) -> None:
        self.group_id = group_id
        self._epochs: dict[str, list[int]] = {}  # by member id, in their order
        self._instances: dict[str, str | None] = {}
        self._commits: dict[str, OffsetCommit] = {}
        sim.history.listeners.append(self)
        super().__init__(sim, name)

    def arrived(self, exchange: Exchange) -> None:
        message = exchange.message
        if exchange.client == self.name:
            return
        if isinstance(message, ConsumerHeartbeat) and message.member_epoch > 0:
            self._instances[message.member_id] = message.instance_id
            epochs = self._epochs.setdefault(message.member_id, [])
            if message.member_epoch not in epochs:
                epochs.append(message.member_epoch)
        elif isinstance(message, OffsetCommit) and message.member_id in self._epochs:
            self._commits[message.member_id] = message

    async def run(self) -> None:
        while True:
            await self.pause(0.5)
            for member_id in list(self._epochs)[-4:]:
                with suppress(ChannelLost):
                    await self.ask(self._heartbeat(member_id))
                    if member_id in self._commits:
                        await self.ask(self._late_commit(member_id))

    def _heartbeat(self, member_id: str) -> ConsumerHeartbeat:
        """As if the member had given everything back."""
        epochs = self._epochs[member_id]
        epoch = self.sim.random.choice((*epochs[:-2], epochs[-1] + 100))
        return ConsumerHeartbeat(self.group_id, member_id, epoch, self._instances[member_id], owned=())

    def _late_commit(self, member_id: str) -> OffsetCommit:
        """The last commit once more; as others do, its values differ."""
        message = self._commits[member_id]
        return message._replace(
            commits=tuple(commit._replace(metadata=self.unique()) for commit in message.commits),
        )
