"""ConsumerReconciler: gives back what a member of the consumer protocol must not own, and takes new partitions."""

from __future__ import annotations

import asyncio
from typing import Protocol

from ...actors.consumer_group.records import Partition
from .consumer_state import ConsumerState, Event, Partitions, Phase
from .consumer_topics import ConsumerTopics
from .group_membership import GroupMembership
from .offset_fetch import fetch_committed_offsets
from .shards import Shard


class ConsumerMember(GroupMembership, Protocol):
    """``ConsumerMembership``, which imports this module."""

    state: ConsumerState
    topics: ConsumerTopics

    def apply(self, event: Event, argument: object = None) -> None: ...


class ConsumerReconciler:
    """Follows the state of one member, in a task of its own."""

    def __init__(self, member: ConsumerMember) -> None:
        self._member = member
        self._changed = asyncio.Event()

    def state_changed(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Give back partitions and take new ones. Those that stay are not touched."""
        prepared: dict[Partition, Shard] = {}
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._member.state.phase is Phase.RELEASING:
                await self._release()
            elif self._member.state.phase is Phase.TAKING:
                prepared = await self._prepare(prepared)
                if self._take(prepared):
                    prepared = {}  # the same partitions may come again with the same tokens
            elif self._member.state.phase is Phase.STABLE:
                self._member.owned.add((), self._member.state.epoch)

    async def _release(self) -> None:
        joins, partitions = self._member.state.joins, self._member.state.to_release()
        await self._member.owned.revoke(
            self._member.topics.topic_partitions(sorted(partitions)), self._member.lease.revoke_left_s()
        )
        if joins == self._member.state.joins:
            self._member.apply(Event.RELEASED, partitions)

    async def _prepare(self, prepared: dict[Partition, Shard]) -> dict[Partition, Shard]:
        """The shards that are to be taken, with their offsets, which are fetched while a heartbeat names them."""
        await self._member.owned.wait_for_lost(self._member.lease.revoke_left_s())
        shards = {
            partition: self._find_prepared(prepared, partition) or self._new_shard(partition)
            for partition in sorted(self._takeable())
        }
        new = [shard for partition, shard in shards.items() if prepared.get(partition) is not shard]
        return shards if await fetch_committed_offsets(self._member, new) else {}

    def _takeable(self) -> Partitions:
        """Those that belong to a resource. A partition of others is given back after the next heartbeats."""
        return frozenset(
            partition for partition in self._member.state.to_take() if self._member.topics.shard_of(partition)
        )

    def _find_prepared(self, prepared: dict[Partition, Shard], partition: Partition) -> Shard | None:
        """None also if the member has lost the partition meanwhile, and others may have committed."""
        shard = prepared.get(partition)
        return shard if shard is not None and shard.token == self._member.state.assigned.get(partition) else None

    def _new_shard(self, partition: Partition) -> Shard:
        shard = self._member.topics.shard_of(partition)
        assert shard is not None, "filtered by _takeable"
        return self._member.owned.new_shard(*shard, token=self._member.state.assigned[partition])

    def _take(self, prepared: dict[Partition, Shard]) -> bool:
        """Begin work on all new partitions, if an answered heartbeat has named them."""
        wanted = self._takeable()
        if self._member.needs_rejoin or not wanted <= self._member.state.may_take() or not self._member.check_lease():
            return False
        shards = [self._find_prepared(prepared, partition) for partition in sorted(wanted)]
        added = [shard for shard in shards if shard is not None]
        if len(added) < len(wanted):
            return False  # one of them has come again meanwhile; its offset must be read again
        self._member.owned.add(added, self._member.state.epoch)
        if wanted:
            self._member.apply(Event.TAKEN, wanted)
        return True
