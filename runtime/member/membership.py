"""Membership: one member's side of the classic group protocol. Plain asyncio.

One task joins and syncs, another one sends heartbeats. ``reactions.py`` has the reactions to answers, ``lease.py`` the
rules for how long the member may work. An answer is ignored if the member id or the generation has changed since its
request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import Any

from ...actors.assignors.base import MemberState
from ...actors.assignors.consumer_protocol import read_assignment
from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.messages import Heartbeat, Joined, JoinGroup, LeaveGroup, LeavingMember, Protocol, Synced, SyncGroup
from .channel import ChannelLost, Connector
from .errors import Fenced, HasLeft, MemberError, refusal_message
from .leader import GroupSubscriptions, make_protocol, protocol_name
from .lease import Lease
from .offset_fetch import fetch_committed_offsets
from .options import MemberOptions
from .owned_shards import OwnedShards
from .reactions import Reaction, RequestKind, reaction_to
from .reconnecting_channel import Backoff, ReconnectingChannel
from .resources import ResourceSet
from .shards import Shard, ShardOwner, TopicPartition

log = logging.getLogger("callboard.member")

CLIENT_ID = "callboard"

CONSUMER = "consumer"
"""The protocol type of Kafka's consumers, so that members and consumers can share a group."""

LEAVE_TIMEOUT_S = 5.0
"""For LeaveGroup. Without its answer the session expires by itself."""

JOIN_GRACE_S = 5.0
"""Added to the rebalance timeout when waiting for the answer to a JoinGroup, as in Kafka's clients."""

FENCED = (
    "another process has joined with instance_id={!r}, and this member of group {!r} must stop; give each process an "
    "instance_id of its own"
)

Identity = tuple[str, int]
"""A member id and a generation."""

NO_IDENTITY: Identity = ("", -1)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


class Membership:
    """The member's state in its group, and the tasks that maintain it."""

    def __init__(
        self, connector: Connector, group_id: str, options: MemberOptions, owner: ShardOwner, random: Random
    ) -> None:
        client_id = options.client_id or CLIENT_ID
        self.group_id = group_id
        self.options = options
        self.identity = NO_IDENTITY
        self.is_leader = False
        self.lease = Lease(options.timeouts())
        self.owned = OwnedShards(owner)
        # For heartbeats, commits and fetches, which must not wait behind a JoinGroup that is held back.
        self.channel = ReconnectingChannel(connector, client_id)
        self.random = random
        self._join_channel = ReconnectingChannel(connector, client_id)
        self._connector = connector
        self._client_id = client_id
        self._owner = owner
        self._assignors = options.assignors()
        self._is_cooperative = all(assignor.is_cooperative for assignor in self._assignors)
        self._resources = ResourceSet({}, {})
        self._shard_names: dict[TopicPartition, tuple[str, int | str]] = {}
        self._has_names = False
        self._rejoin = asyncio.Event()  # set: there is a reason to join again
        self._is_joining = False  # a JoinGroup was sent and not answered
        self._is_synced = False  # the generation's assignment has arrived
        self._last_assignment: tuple[tuple[TopicPartition, ...], int] = (), -1  # and its generation
        self._lease_timer: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # Begin and end ---------------------------------------------------------------------------------------------------

    def start(self, resources: ResourceSet) -> None:
        """Start the tasks that join and send heartbeats."""
        create_task = asyncio.get_running_loop().create_task
        loops = partial(self._run, resources), self.heartbeat_loop
        self._tasks = [create_task(self._stop_on_error(loop)) for loop in loops]

    async def _run(self, resources: ResourceSet) -> None:
        await self.set_resources(resources)
        await self.join_loop()

    async def _stop_on_error(self, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await loop()
        except Exception as error:
            self.fail(error)

    def _stop_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def leave(self) -> None:
        """Release all shards, leave the group, close the channels. Tasks on the shards may commit until they end."""
        if self._tasks:
            self._tasks[0].cancel()  # heartbeats continue meanwhile
            await asyncio.wait({self._tasks[0]})
        owned = self.owned.shards
        try:
            await self.owned.revoke(tuple(owned), self.lease.revoke_deadline_s())
            self.owned.end(HasLeft(f"this member of group {self.group_id!r} has left; make another one"))
            await self._send_leave_group()
        finally:
            self._disconnect()

    async def _send_leave_group(self) -> None:
        """Not for a static member, which may return before its session ends (KIP-345)."""
        member_id = self.identity[0]
        if not member_id or self.options.instance_id is not None:
            return
        # On the join channel it would wait behind a pending JoinGroup.
        channel = self.channel if self._is_joining else self._join_channel
        request = LeaveGroup(self.group_id, (LeavingMember(member_id, None, "the member was closed"),))
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await _ask_with_retry(channel, request)
        except (ChannelLost, TimeoutError) as error:
            log.info("LeaveGroup of member %r failed: %r; its session will expire", member_id, error)

    def _disconnect(self) -> None:
        self.identity = NO_IDENTITY
        self._stop_tasks()
        self._reset_channels()
        if self._lease_timer is not None:
            self._lease_timer.cancel()

    # Resources --------------------------------------------------------------------------------------------------------

    async def set_resources(self, resources: ResourceSet) -> None:
        """Subscribe to these resources. Creates their topics first, with retries until a coordinator is reached."""
        if resources == self._resources:
            return
        before = self._resources.topics()
        new = {topic: number for topic, number in resources.topics().items() if before.get(topic) != number}
        backoff = Backoff(self.random)
        while new:
            try:
                await self._connector.ensure_topics(new)
                break
            except ChannelLost as error:
                log.info("the topics of group %r cannot be created yet: %s; retrying", self.group_id, error)
                await backoff.wait()
            except CoordinatorError as error:
                raise MemberError(
                    f"the topics of group {self.group_id!r} cannot be created: {error}; choose other names", error.code
                ) from error
        old = self._resources
        has_other_topics = resources.names != old.names or set(resources.numbers) != set(old.numbers)
        if has_other_topics or (self.is_leader and resources.numbers != old.numbers):  # the leader's numbers are used
            self._rejoin.set()
        self._resources, self._shard_names = resources, resources.shard_names()
        self._has_names = self._has_names or bool(resources.names)

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
        """Revoke what a joining member must not own: all shards, or with a cooperative assignor the unwanted ones."""
        owned = self.owned.shards
        partitions = [
            partition for partition in owned if not self._is_cooperative or partition not in self._shard_names
        ]
        await self.owned.revoke(partitions, self.lease.revoke_deadline_s())

    async def _join(self) -> Joined:
        """Repeat JoinGroup until the member is in a generation.

        Tasks on lost shards may take until the lease's end without its margin. If the member rejoined earlier, the
        coordinator would reassign the shards while these tasks still run.
        """
        backoff = Backoff(self.random)
        while True:
            await self.owned.wait_for_lost_until(self.lease.end_s())
            self._rejoin.clear()
            identity, sent_s = self.identity, _now_s()
            joined = await self._ask_to_join()
            if joined is None or identity != self.identity:
                await backoff.wait()
                continue
            reaction = reaction_to(RequestKind.JOIN, joined.error)
            if reaction is Reaction.CONTINUE:
                self._has_joined(joined, sent_s)
                if await self._confirm_membership(self.identity):
                    self._start_lease_timer()
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
            client_id=self._client_id,
            client_host="",
            session_timeout_ms=options.session_timeout_ms,
            rebalance_timeout_ms=options.rebalance_timeout_ms,
            protocol_type=CONSUMER,
            protocols=self._protocols(),
            needs_member_id=True,
            can_skip_assignment=True,
        )
        self._is_joining, self._is_synced = True, False
        answer: Joined | None = await self._ask(request)
        self._is_joining = False  # not reset after a cancellation: the coordinator still has the request
        return answer

    def _protocols(self) -> tuple[Protocol, ...]:
        owned, generation = self._last_assignment
        if self._is_cooperative:
            owned = tuple(self.owned.shards)
        topics = frozenset(self._resources.topics())
        own = MemberState(topics, owned, generation, self.options.weight)
        return tuple(
            make_protocol(assignor, self._resources, own, self._has_names, self._is_cooperative)
            for assignor in self._assignors
        )

    def _has_joined(self, joined: Joined, sent_s: float) -> None:
        self.identity = joined.member_id, joined.generation_id
        self.is_leader = joined.leader == joined.member_id
        # The rebalance ended after the last heartbeat that reported it, and the next one begins later.
        self.lease.record_rebalance(max(sent_s, self.lease.renewed_s))

    async def _sync(self, joined: Joined) -> Sequence[TopicPartition] | None:
        """The assigned partitions; None if there was no answer, or the member must rejoin."""
        identity = self.identity
        request = SyncGroup(
            self.group_id,
            joined.member_id,
            self.options.instance_id,
            joined.generation_id,
            CONSUMER,
            joined.protocol_name,
            await self._compute_assignments(joined),
        )
        sent_s = _now_s()
        synced: Synced | None = await self._ask(request)
        if synced is None or identity != self.identity:
            return None
        reaction = reaction_to(RequestKind.SYNC, synced.error)
        if reaction is not Reaction.CONTINUE:
            self.react(reaction, identity, synced.error, "the sync")
            if reaction is not Reaction.REJOIN:
                await Backoff(self.random).wait()
            return None
        self.lease.record_rebalance(sent_s)
        self._is_synced = True
        assigned = read_assignment(synced.assignment)
        if assigned is None:
            log.error("the assignment of member %r cannot be decoded; it gets no shards", identity[0])
        return () if assigned is None else assigned.partitions

    async def _compute_assignments(self, joined: Joined) -> tuple[tuple[str, bytes], ...]:
        """The assignments of all members, if this member is the leader and must compute them."""
        if not self.is_leader or joined.skip_assignment:
            return ()
        group = GroupSubscriptions(joined.members)
        numbers = dict(self._resources.numbers)
        foreign = [topic for topic in group.topics if topic not in numbers]
        if foreign:
            try:
                numbers.update(await self._connector.partitions(foreign))
            except ChannelLost:
                log.warning("topics of other members could not be looked up: %s", ", ".join(foreign))
        assignor = next(
            assignor for assignor in self._assignors if protocol_name(assignor, self._has_names) == joined.protocol_name
        )
        return group.assign(assignor, numbers)

    async def _ask(self, request: JoinGroup | SyncGroup) -> Any:
        """The answer; None if the channel was lost, or the answer took longer than a rebalance may."""
        try:
            async with asyncio.timeout(self.lease.timeouts.rebalance_s + JOIN_GRACE_S):
                return await self._join_channel.ask(request)
        except (ChannelLost, TimeoutError) as error:
            log.info("no answer to %s of %r: %r; retrying", type(request).__name__, self.group_id, error)
            self._join_channel.drop()
            return None

    # The assignment ---------------------------------------------------------------------------------------------------

    async def _apply_assignment(self, assigned: Sequence[TopicPartition]) -> bool:
        """Revoke shards that are not assigned any more, add new ones. False: rejoin, so that others get the revoked."""
        identity, owned = self.identity, self.owned.shards
        partitions = [partition for partition in assigned if partition in self._shard_names]
        if len(partitions) < len(assigned):
            level = logging.INFO if self.needs_rejoin else logging.WARNING  # its resources have changed
            log.log(
                level,
                "%d assigned partitions belong to no resource of this member",
                len(assigned) - len(partitions),
            )
        self._last_assignment = tuple(partitions), identity[1]
        kept = set(partitions)
        removed = [partition for partition in owned if partition not in kept]
        await self.owned.revoke(removed, self.lease.revoke_deadline_s())
        await self.owned.wait_for_lost(self.lease.revoke_deadline_s())
        added = [
            self._new_shard(partition, identity[1]) for partition in partitions if partition not in self.owned.shards
        ]
        if not await fetch_committed_offsets(self, added) or not await self._confirm_membership(identity):
            return False
        self._start_lease_timer()
        self.owned.add(added, identity[1])
        return not removed

    async def _confirm_membership(self, identity: Identity) -> bool:
        """Whether the member still has this identity: the process may have been stopped, and its shards reassigned.

        Only a heartbeat can confirm it, see ``Lease.record_rebalance``.
        """
        if (
            _now_s() > self.lease.renewed_s + self.lease.timeouts.interval_s
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
            self.channel.drop()
            return False

    def _new_shard(self, partition: TopicPartition, token: int) -> Shard:
        resource, name = self._shard_names[partition]
        return Shard(self._owner, resource, name, partition, token)

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
        identity, sent_s = self.identity, _now_s()
        try:
            error: ErrorCode = await self.channel.ask(
                Heartbeat(self.group_id, identity[0], self.options.instance_id, identity[1])
            )
        except ChannelLost as lost:
            log.info("no answer to a heartbeat of %r: %s; retrying", identity[0], lost)
            if not self._is_synced:
                self._join_channel.drop()  # a pending JoinGroup may be lost as well, without an error
            return False
        if identity != self.identity:
            return True
        reaction = reaction_to(RequestKind.HEARTBEAT, error)
        if reaction is Reaction.CONTINUE and self._is_synced:
            self.lease.record_stable(sent_s)
        elif reaction in (Reaction.CONTINUE, Reaction.REJOIN):
            self.lease.record_renewal(sent_s)
        if reaction is not Reaction.CONTINUE:
            self.react(reaction, identity, error, "a heartbeat")
        return reaction not in (Reaction.RETRY, Reaction.RECONNECT)

    def _start_lease_timer(self) -> None:
        if self._lease_timer is None:
            self._lease_timer = asyncio.get_running_loop().call_at(self.lease.deadline_s(), self._on_lease_timer)

    def _on_lease_timer(self) -> None:
        self._lease_timer = None
        if self.identity[1] >= 0 and self.check_lease():
            self._start_lease_timer()

    def check_lease(self) -> bool:
        """Whether the lease holds. If not, all shards are lost."""
        now_s = _now_s()
        if now_s < self.lease.deadline_s():
            return True
        self._lose_all(
            f"its lease is over; its last answered heartbeat was sent {now_s - self.lease.renewed_s:.1f} s ago"
        )
        if self.lease.is_session_over(now_s):
            self._reset_channels()
        if self._is_synced:
            self._rejoin.set()
        return False

    def _lose_all(self, reason: str) -> None:
        if self.owned.shards:
            log.warning("member %r of %r loses its shards: %s", self.identity[0], self.group_id, reason)
            self.owned.lose_all()

    def _reset_channels(self) -> None:
        self.channel.drop()
        self._join_channel.drop()

    # Reactions to answers ---------------------------------------------------------------------------------------------

    def react(self, reaction: Reaction, identity: Identity, error: ErrorCode, request: str) -> None:
        """Carry out a reaction. For those that only retry, the caller waits."""
        if identity != self.identity:
            return
        match reaction:
            case Reaction.REJOIN:
                if not self._is_joining:
                    self._rejoin.set()
            case Reaction.LOSE_SHARDS if self._is_joining:
                pass  # the answer to JoinGroup is pending; the lease limits the wait
            case Reaction.LOSE_SHARDS | Reaction.JOIN_AS_NEW:
                self._reset_membership(reaction, error, request)
            case Reaction.RECONNECT:
                self._reset_channels()
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
        self._stop_tasks()

    def _reset_membership(self, reaction: Reaction, error: ErrorCode, request: str) -> None:
        self._lose_all(f"{request} was answered {error.name}")
        self.identity = (self.identity[0] if reaction is Reaction.LOSE_SHARDS else ""), -1
        self._last_assignment = (), -1
        if self._is_joining:
            self._join_channel.drop()
        self._rejoin.set()


async def _ask_with_retry(channel: ReconnectingChannel, request: LeaveGroup) -> None:
    """Retry once: a channel that was idle for long may have been lost unnoticed."""
    try:
        await channel.ask(request)
    except ChannelLost:
        await channel.ask(request)
