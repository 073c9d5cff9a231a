"""Membership: one member's side of the classic group protocol. Plain asyncio.

One task joins and syncs, another one sends heartbeats. ``reactions.py`` has the reactions to answers, ``lease.py`` the
rules for how long the member may work, ``resource_subscription.py`` what it wants to own. An answer is ignored if the
member id or the generation has changed since its request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from ...actors.assignors.consumer_protocol import read_assignment
from ...actors.errors import ErrorCode
from ...actors.messages import Heartbeat, Joined, JoinGroup, LeaveGroup, LeavingMember, SyncGroup
from .channel import ChannelLost, Connector
from .errors import FENCED, Fenced, HasLeft, MemberError, refusal_message
from .group_membership import Identity
from .lease import NEVER, Lease
from .lease_timer import LeaseTimer
from .member_channels import CLIENT_ID, MemberChannels
from .member_log import MemberLog
from .member_tasks import MemberTasks
from .offset_fetch import fetch_committed_offsets
from .options import MemberOptions
from .owned_shards import OwnedShards
from .reactions import Reaction, RequestKind, reaction_to
from .reconnecting_channel import Backoff
from .resource_subscription import ResourceSubscription
from .resources import ResourceSet
from .shards import ShardOwner, TopicPartition
from .static_return import are_assigned

log = logging.getLogger("callboard.member")

CONSUMER = "consumer"
"""The protocol type of Kafka's consumers, so that members and consumers can share a group."""

NO_IDENTITY: Identity = ("", -1)


class Membership:
    """The member's state in its group, and the tasks that maintain it."""

    def __init__(
        self,
        connector: Connector,
        group_id: str,
        options: MemberOptions,
        owner: ShardOwner,
        random: Random,
        clock_s: Callable[[], float],
    ) -> None:
        self.group_id = group_id
        self.options = options
        self.identity = NO_IDENTITY
        self.is_leader = False
        self.lease = Lease(options.timeouts(), clock_s)
        self.member_log = MemberLog(group_id, lambda: self.identity)
        self.owned = OwnedShards(owner, self.member_log)
        self.channels = MemberChannels(
            connector, options.client_id or CLIENT_ID, self.lease.timeouts.rebalance_s, self.member_log
        )
        self.random = random
        self._subscription = ResourceSubscription(connector, group_id, options)
        self._rejoin = asyncio.Event()  # set: there is a reason to join again
        self._is_synced = False  # the generation's assignment has arrived
        self._lease_timer = LeaseTimer(self.lease, self._look_at_lease)
        self._silent_since_s = NEVER
        self._tasks = MemberTasks(self.fail)

    # Begin and end ---------------------------------------------------------------------------------------------------

    def start(self, resources: ResourceSet) -> None:
        """Start the tasks that join and send heartbeats."""
        self._tasks.start(partial(self._run, resources), self.heartbeat_loop)

    async def _run(self, resources: ResourceSet) -> None:
        await self.set_resources(resources)
        await self.join_loop()

    async def leave(self) -> None:
        """Release all shards, leave the group, close the channels. Tasks on the shards may commit until they end.

        Tasks on shards that the member has lost before are awaited like those in ``_join``.
        """
        await self._tasks.stop_joining()
        owned = self.owned.shards
        try:
            await self.owned.revoke(tuple(owned), self.lease.revoke_left_s())
            self.owned.end(HasLeft(f"this member of group {self.group_id!r} has left; make another one"))
            await self.owned.wait_for_lost_at_most(self.lease.end_s() - self.lease.now_s())
            await self._send_leave_group()
        finally:
            self._disconnect()

    async def _send_leave_group(self) -> None:
        """Not for a static member, which may return before its session ends (KIP-345)."""
        member_id = self.identity[0]
        if not member_id or self.options.instance_id is not None:
            return
        await self.channels.send_leave(
            LeaveGroup(self.group_id, (LeavingMember(member_id, None, "the member was closed"),)), member_id
        )

    def _disconnect(self) -> None:
        self.identity = NO_IDENTITY
        self._tasks.cancel()
        self.channels.drop()
        self._lease_timer.cancel()

    # Resources --------------------------------------------------------------------------------------------------------

    async def set_resources(self, resources: ResourceSet) -> None:
        """Subscribe to these resources. Creates their topics first, with retries until a coordinator is reached."""
        if resources == self._subscription.resources:
            return
        await self._subscription.create_topics(resources, self.random)
        if self._subscription.replace_resources(resources, self.is_leader):
            self._rejoin.set()

    # Join and sync ---------------------------------------------------------------------------------------------------

    async def join_loop(self) -> None:
        """Join, and rejoin when needed. Raises MemberError if the member cannot continue."""
        while True:
            await self._revoke_before_join()
            joined = await self._join()
            assigned = await self._sync(joined)
            if assigned is not None and await self._apply_assignment(assigned):
                await self._rejoin.wait()

    async def _revoke_before_join(self) -> None:
        partitions = self._subscription.partitions_to_revoke(self.owned.shards)
        await self.owned.revoke(partitions, self.lease.revoke_left_s())

    async def _join(self) -> Joined:
        """Repeat JoinGroup until the member is in a generation.

        Tasks on lost shards may take until the lease's end without its margin. If the member rejoined earlier, the
        coordinator would reassign the shards while these tasks still run.
        """
        backoff = Backoff(self.random)
        while True:
            await self.owned.wait_for_lost_at_most(self.lease.end_s() - self.lease.now_s())
            self._rejoin.clear()
            identity, sent_s = self.identity, self.lease.now_s()
            joined = await self._ask_to_join()
            if joined is None or identity != self.identity:
                await backoff.wait()
                continue
            reaction = reaction_to(RequestKind.JOIN, joined.error)
            if reaction is Reaction.CONTINUE:
                self._has_joined(joined, sent_s)
                if await self._confirm_membership(self.identity):
                    self._lease_timer.start()
                    return joined
                continue
            if reaction is Reaction.RETRY_WITH_ID:
                self.identity = joined.member_id, -1
                continue
            self.react(reaction, identity, joined.error, "the join")
            await backoff.wait()

    async def _ask_to_join(self) -> Joined | None:
        """None if there was no answer."""
        options, member_id = self.options, self.identity[0]
        request = JoinGroup(
            group_id=self.group_id,
            member_id=member_id,
            group_instance_id=options.instance_id,
            client_id=self.channels.client_id,
            client_host="",
            session_timeout_ms=options.session_ms(),
            rebalance_timeout_ms=options.rebalance_timeout_ms,
            protocol_type=CONSUMER,
            protocols=self._subscription.protocols(self.owned.shards),
            needs_member_id=True,
            can_skip_assignment=True,
        )
        self._is_synced = False
        return await self.channels.send_join(request)

    def _has_joined(self, joined: Joined, sent_s: float) -> None:
        self.identity = joined.member_id, joined.generation_id
        self.is_leader = joined.leader == joined.member_id
        # The rebalance ended after the last heartbeat that reported it, and the next one begins later.
        self._extend_lease(self.lease.record_rebalance, max(sent_s, self.lease.renewed_s))

    async def _sync(self, joined: Joined) -> Sequence[TopicPartition] | None:
        """The assigned partitions; None if there was no answer, or the member must rejoin."""
        identity = self.identity
        must_assign = self.is_leader and not joined.skip_assignment
        request = SyncGroup(
            self.group_id,
            joined.member_id,
            self.options.instance_id,
            joined.generation_id,
            CONSUMER,
            joined.protocol_name,
            await self._subscription.compute_assignments(joined) if must_assign else (),
        )
        sent_s = self.lease.now_s()
        synced = await self.channels.send_sync(request)
        if synced is None or identity != self.identity:
            return None
        reaction = reaction_to(RequestKind.SYNC, synced.error)
        if reaction is not Reaction.CONTINUE:
            self.react(reaction, identity, synced.error, "the sync")
            if reaction is not Reaction.REJOIN:
                await Backoff(self.random).wait()
            return None
        self._extend_lease(self.lease.record_rebalance, sent_s)
        self._is_synced = True
        to_check = await self._subscription.partitions_to_check(joined)
        if to_check and not await are_assigned(self.channels.main, self.group_id, to_check):
            self._rejoin.set()
        assigned = read_assignment(synced.assignment)
        if assigned is None:
            log.error("the assignment of member %r cannot be decoded; it gets no shards", identity[0])
        return () if assigned is None else assigned.partitions

    # The assignment ---------------------------------------------------------------------------------------------------

    async def _apply_assignment(self, assigned: Sequence[TopicPartition]) -> bool:
        """Revoke shards that are not assigned any more, add new ones.

        False: rejoin, so that others get what this member claimed and was not assigned. It may have lost it meanwhile.
        """
        identity, owned = self.identity, self.owned.shards
        # Resources may change during the waits below. Then the member rejoins, with those that it has then.
        found = {partition: self._subscription.find_shard(partition) for partition in assigned}
        shards = {partition: shard for partition, shard in found.items() if shard is not None}
        if len(shards) < len(assigned):
            level = logging.INFO if self.needs_rejoin else logging.WARNING  # its resources have changed
            log.log(
                level,
                "%d assigned partitions belong to no resource of this member",
                len(assigned) - len(shards),
            )
        self._subscription.last_assignment = tuple(shards), identity[1]
        removed = [partition for partition in owned if partition not in shards]
        await self.owned.revoke(removed, self.lease.revoke_left_s())
        await self.owned.wait_for_lost(self.lease.revoke_left_s())
        added = [
            self.owned.new_shard(partition, *shard, token=identity[1])
            for partition, shard in shards.items()
            if partition not in self.owned.shards
        ]
        if not await fetch_committed_offsets(self, added) or not await self._confirm_membership(identity):
            return False
        self._lease_timer.start()
        self.owned.add(added, identity[1])
        return all(partition in shards for partition in self._subscription.claimed)

    async def _confirm_membership(self, identity: Identity) -> bool:
        """Whether the member still has this identity: the process may have been stopped, and its shards reassigned.

        Only a heartbeat can confirm it, see ``Lease.record_rebalance``.
        """
        if (
            self.lease.now_s() > self.lease.renewed_s + self.lease.timeouts.interval_s
            and not await self._send_heartbeat_in_time()
        ):
            await Backoff(self.random).wait()
        return identity == self.identity and self.check_lease()

    async def _send_heartbeat_in_time(self) -> bool:
        """Send one more heartbeat. An answer after the duration of a lease would be useless."""
        timeouts = self.lease.timeouts
        try:
            async with asyncio.timeout(timeouts.session_s - timeouts.margin_s):
                return await self._send_heartbeat()
        except TimeoutError:
            self.channels.main.drop()
            return False

    @property
    def needs_rejoin(self) -> bool:
        """Whether there is a reason to rejoin."""
        return self._rejoin.is_set()

    # Heartbeats and the lease ----------------------------------------------------------------------------------------

    async def heartbeat_loop(self) -> None:
        """Send heartbeats until cancelled."""
        interval_s, backoff = self.lease.timeouts.interval_s, Backoff(self.random)
        await asyncio.sleep(interval_s * self.random.random())  # spreads the heartbeats of members that start together
        while True:
            if self.identity[1] < 0 or await self._send_heartbeat():
                backoff = Backoff(self.random)
                await asyncio.sleep(interval_s)
            else:
                await backoff.wait()

    async def _send_heartbeat(self) -> bool:
        """False if there was no answer, or it asks for a retry."""
        identity, sent_s = self.identity, self.lease.now_s()
        try:
            error: ErrorCode = await self.channels.main.ask(
                Heartbeat(self.group_id, identity[0], self.options.instance_id, identity[1])
            )
        except ChannelLost as lost:
            self.member_log.no_answer("a heartbeat", lost)
            if not self._is_synced:
                self.channels.join.drop()  # a pending JoinGroup may be lost as well, without an error
            return False
        if self.member_log.is_unanswered:
            self.member_log.answered()
        if identity != self.identity:
            return True
        reaction = reaction_to(RequestKind.HEARTBEAT, error)
        if reaction is Reaction.CONTINUE and self._is_synced:
            self._extend_lease(self.lease.record_stable, sent_s)
        elif reaction in (Reaction.CONTINUE, Reaction.REJOIN):
            self._extend_lease(self.lease.record_renewal, sent_s)
        if reaction is not Reaction.CONTINUE:
            self.react(reaction, identity, error, "a heartbeat")
        return reaction not in (Reaction.RETRY, Reaction.RECONNECT)

    def _extend_lease(self, record: Callable[[float], None], sent_s: float) -> None:
        """Record an answer. If the lease was over before, it stays so: somebody may have seen that and stopped work.

        The clock is read after the change. So whoever compared an earlier time with the old deadline, also in another
        thread, has seen the same.
        """
        deadline_s = self.lease.deadline_s()
        record(sent_s)
        if self.owned.shards and self.lease.now_s() >= deadline_s:
            self.owned.lose_all("its lease was over before it was extended")
            self._rejoin.set()

    def _look_at_lease(self) -> bool:
        """Called once in a heartbeat interval. Tries another connection once if the coordinator answers nothing.

        Its server may be frozen, and the group may have moved to another one. Whether the lease holds.
        """
        since_s = self.lease.renewed_s
        if self.lease.is_coordinator_silent() and since_s != self._silent_since_s:
            self._silent_since_s = since_s
            self.channels.main.close_open()
        return self.identity[1] >= 0 and self.check_lease()

    def check_lease(self) -> bool:
        """Whether the lease holds. If not, all shards are lost."""
        lease = self.lease
        if not lease.is_over():
            return True
        self.owned.lose_all(
            f"its lease is over; its last answered heartbeat was sent {lease.now_s() - lease.renewed_s:.1f} s ago"
        )
        if lease.is_session_over():
            self.channels.drop()
        if self._is_synced:
            self._rejoin.set()
        return False

    # Reactions to answers ---------------------------------------------------------------------------------------------

    def react(self, reaction: Reaction, identity: Identity, error: ErrorCode, request: str) -> None:
        """Carry out a reaction. For those that only retry, the caller waits."""
        if identity != self.identity:
            return
        match reaction:
            case Reaction.REJOIN:
                if not self.channels.is_joining:
                    self._rejoin.set()
            case Reaction.LOSE_SHARDS if self.channels.is_joining:
                pass  # the answer to JoinGroup is pending; the lease limits the wait
            case Reaction.LOSE_SHARDS | Reaction.JOIN_AS_NEW:
                self._reset_membership(reaction, error, request)
            case Reaction.RECONNECT:
                self.channels.drop()
            case Reaction.FENCED:
                self.fail(Fenced(FENCED.format(self.options.instance_id, self.group_id), error))
            case Reaction.FAIL:
                self.fail(
                    MemberError(refusal_message(f"{request} of a member of group {self.group_id!r}", error), error)
                )

    def fail(self, error: BaseException) -> None:
        """Stop: all shards are lost, and ``next_assignment`` raises ``error``."""
        self.owned.end(error)
        self.identity = NO_IDENTITY
        self._tasks.cancel()

    def _reset_membership(self, reaction: Reaction, error: ErrorCode, request: str) -> None:
        self.owned.lose_all(f"{request} was answered {error.name}")
        self.identity = (self.identity[0] if reaction is Reaction.LOSE_SHARDS else ""), -1
        self._subscription.last_assignment = (), -1
        if self.channels.is_joining:
            self.channels.join.drop()
        self._rejoin.set()
