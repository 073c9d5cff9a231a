"""ConsumerMembership: one member's side of the consumer protocol (KIP-848). Plain asyncio.

One task sends heartbeats, another one is the ``ConsumerReconciler``. ``consumer_state.py`` decides what is
next, ``reactions.py`` has the reactions to errors, ``lease.py`` the rules for how long the member may work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from random import Random

from ...actors.consumer_group.messages import ConsumerHeartbeat, ConsumerHeartbeatReply
from ...actors.errors import ErrorCode
from .channel import ChannelLost, Connector
from .consumer_heartbeats import ConsumerHeartbeats
from .consumer_reconciler import ConsumerReconciler
from .consumer_session import ConsumerSession
from .consumer_state import ConsumerState, Event, Phase, answer_of, step
from .consumer_topics import ConsumerTopics
from .errors import FENCED, Fenced, HasLeft, MemberError, refusal_message
from .group_membership import Identity
from .lease import SILENT_SESSION_PART, Lease
from .lease_timer import LeaseTimer
from .member_channels import CLIENT_ID, MemberChannels
from .member_log import MemberLog
from .member_tasks import MemberTasks
from .options import HEARTBEATS_PER_SESSION, MemberOptions
from .owned_shards import OwnedShards
from .reactions import Reaction, RequestKind, reaction_to
from .reconnecting_channel import Backoff
from .resources import ResourceSet
from .shards import ShardOwner

log = logging.getLogger("callboard.member")

NOT_IN_GROUP = -1


class ConsumerMembership:
    """The member's state in its group, and the tasks that maintain it."""

    is_leader = False
    """The coordinator computes assignments."""

    def __init__(
        self,
        connector: Connector,
        group_id: str,
        options: MemberOptions,
        owner: ShardOwner,
        random: Random,
        clock_s: Callable[[], float],
    ) -> None:
        """Raises ValueError for options of the classic protocol."""
        options.check_consumer()
        self.group_id = group_id
        self.options = options
        self.state = ConsumerState()
        self.lease = Lease(options.timeouts(), clock_s)
        self._heartbeats = ConsumerHeartbeats(group_id, options, self.lease, random)
        self.member_log = MemberLog(group_id, lambda: self.identity)
        self._session = ConsumerSession(connector, group_id, options, self.lease, self.member_log)
        self.owned = OwnedShards(owner, self.member_log)
        self.channels = MemberChannels(
            connector, options.client_id or CLIENT_ID, self.lease.timeouts.rebalance_s, self.member_log
        )
        self.random = random
        self.topics = ConsumerTopics(connector, group_id)
        self._reconciler = ConsumerReconciler(self)
        self._lease_timer = LeaseTimer(self.lease, self._look_at_lease)
        self._tasks = MemberTasks(self.fail)

    @property
    def identity(self) -> Identity:
        """The member id and the member epoch."""
        return self._heartbeats.member_id, self.state.epoch if self.state.is_in_group else NOT_IN_GROUP

    # Begin and end ---------------------------------------------------------------------------------------------------

    def start(self, resources: ResourceSet) -> None:
        """Start the tasks that join and send heartbeats."""
        self._tasks.start(partial(self._run, resources), self.heartbeat_loop)

    async def _run(self, resources: ResourceSet) -> None:
        await self.set_resources(resources)
        await self._reconciler.run()

    async def leave(self) -> None:
        """Release all shards, leave the group, close the channels. Tasks on the shards may commit until they end."""
        await self._tasks.stop_joining()
        self.apply(Event.LEAVE)
        if not self.state.is_in_group:
            self._tasks.cancel()  # the next heartbeat would join
        try:
            await self.owned.revoke(tuple(self.owned.shards), self.lease.revoke_left_s())
            self.owned.end(HasLeft(f"this member of group {self.group_id!r} has left; make another one"))
            self._tasks.cancel()
            await self.owned.wait_for_lost_at_most(self.lease.end_s() - self.lease.now_s())
            if self._heartbeats.has_asked and self.state.phase is Phase.LEAVING:
                await self.channels.send_leave(self._heartbeats.leave(), self._heartbeats.member_id)
        finally:
            self.apply(Event.END)
            self._tasks.cancel()
            self.channels.drop()
            self._lease_timer.cancel()

    def fail(self, error: BaseException) -> None:
        """Stop: all shards are lost, and ``next_assignment`` raises ``error``."""
        self.owned.end(error)
        self.apply(Event.END)
        self._tasks.cancel()

    async def set_resources(self, resources: ResourceSet) -> None:
        """Subscribe to these resources. Creates their topics first, with retries until a coordinator is reached."""
        if resources == self.topics.resources:
            return
        await self.topics.create_topics(resources, self.random)
        self.topics.subscribe(resources)
        self._heartbeats.hurry()

    def apply(self, event: Event, argument: object = None) -> None:
        self.state = step(self.state, event, argument)
        self._reconciler.state_changed()
        if self.state.has_news():
            self._heartbeats.hurry()

    # Heartbeats ------------------------------------------------------------------------------------------------------

    async def heartbeat_loop(self) -> None:
        """Join, send heartbeats, and join again after all was lost. Raises MemberError if the member cannot go on."""
        await self._heartbeats.wait_for_news()  # there are resources
        backoff = Backoff(self.random)
        while True:
            if not self.state.is_in_group:
                await self._prepare_to_join(backoff)
            if await self._send_heartbeat():
                backoff = Backoff(self.random)
                await self._heartbeats.wait()
            else:
                await backoff.wait()

    async def _prepare_to_join(self, backoff: Backoff) -> None:
        """Wait for work on lost shards; ask for the session timeout, which the coordinator decides.

        A static member that joins again first gives its instance id back, which it may still have.
        """
        await self.owned.wait_for_lost_at_most(self.lease.end_s() - self.lease.now_s())
        if self.state.phase is Phase.ABANDONING:
            self.apply(Event.ABANDONED)
        while not await self._session.begin():
            await backoff.wait()
        if self.options.instance_id is not None and self._heartbeats.has_asked:
            await self._release_instance_id()

    async def _release_instance_id(self) -> None:
        reply = await self._ask(self._heartbeats.leave())
        if reply is not None and reply.error is ErrorCode.FENCED_INSTANCE_ID:
            self.react(Reaction.FENCED, self.identity, reply.error, "a heartbeat")

    async def _send_heartbeat(self) -> bool:
        """False if there was no answer, or it asks for a retry."""
        before, sent_s = self.state, self.lease.now_s()
        request, about = self._heartbeats.next(before, self.topics.names())
        kind = RequestKind.CONSUMER_HEARTBEAT if before.is_in_group else RequestKind.CONSUMER_JOIN
        reply = await self._ask(request)
        if before.joins != self.state.joins:
            return True
        if reply is None:
            self._heartbeats.missed()
            self.apply(Event.UNANSWERED)
            return False
        reaction = reaction_to(kind, reply.error)
        if reaction is Reaction.CONTINUE:
            self._heartbeats.answered(about)
            await self._accept(reply, before, sent_s)
        else:
            self._refused(reaction, reply)
        return reaction not in (Reaction.RETRY, Reaction.RECONNECT)

    async def _ask(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply | None:
        """None if the channel was lost, or the coordinator does not answer: its server may be frozen."""
        try:
            async with asyncio.timeout(self.lease.timeouts.session_s * SILENT_SESSION_PART):
                reply: ConsumerHeartbeatReply = await self.channels.main.ask(request)
        except (ChannelLost, TimeoutError) as error:
            self.member_log.no_answer("a heartbeat", error)
            self.channels.main.drop()
            return None
        self.member_log.answered()
        return reply

    async def _accept(self, reply: ConsumerHeartbeatReply, before: ConsumerState, sent_s: float) -> None:
        """Take note of an assignment, and extend the lease."""
        if reply.assigned is not None:
            known = await self.topics.find_known(reply.assigned)
            if len(known) < len(reply.assigned):
                self._heartbeats.missed()  # asks for the assignment again
            reply = reply._replace(assigned=tuple(known))
        if before.joins != self.state.joins:
            return
        self._use_interval(reply.heartbeat_interval_ms)
        self.apply(Event.ANSWERED, answer_of(reply, before.owned()))
        if self.state.phase is not Phase.RELEASING:
            self._extend_lease(self.lease.record_rebalance, sent_s)
        if self._session.is_question_due:
            await self._extend_session(self.state.joins, sent_s)
        self._lease_timer.start()

    async def _extend_session(self, joins: int, sent_s: float) -> None:
        session_ms = await self._session.ask()
        if session_ms is not None and joins == self.state.joins:
            self._extend_lease(self.lease.record_renewal, sent_s)
            self._session.use(session_ms)

    def _use_interval(self, interval_ms: int) -> None:
        """The coordinator's interval, or the member's if it is shorter."""
        timeouts = self.lease.timeouts
        interval_s = min(interval_ms / 1000, timeouts.session_s / HEARTBEATS_PER_SESSION)
        if self.options.heartbeat_interval_ms is None and interval_s != timeouts.interval_s:
            self.lease.timeouts = timeouts._replace(interval_s=interval_s)

    def _refused(self, reaction: Reaction, reply: ConsumerHeartbeatReply) -> None:
        if reply.error is ErrorCode.UNRELEASED_INSTANCE_ID and not self.member_log.is_unanswered:
            self.member_log.is_unanswered = True
            log.warning(
                "instance_id=%r of group %r is in use; waiting until that member has left or its session has ended",
                self.options.instance_id,
                self.group_id,
            )
        self.react(reaction, self.identity, reply.error, "a heartbeat")

    # The lease -------------------------------------------------------------------------------------------------------

    def _extend_lease(self, record: Callable[[float], None], sent_s: float) -> None:
        """Record an answer. If the lease was over before, it stays so: somebody may have seen that and stopped work.

        The clock is read after the change. So whoever compared an earlier time with the old deadline, also in another
        thread, has seen the same.
        """
        deadline_s = self.lease.deadline_s()
        record(sent_s)
        if self.owned.shards and self.lease.now_s() >= deadline_s:
            self._abandon(Event.LEASE_OVER, "its lease was over before it was extended")

    def _look_at_lease(self) -> bool:
        return self.state.is_in_group and self.check_lease()

    def check_lease(self) -> bool:
        """Whether the lease holds. If not, all shards are lost."""
        lease = self.lease
        if not lease.is_over():
            return True
        self._abandon(
            Event.LEASE_OVER,
            f"its lease is over; its last answered heartbeat was sent {lease.now_s() - lease.renewed_s:.1f} s ago",
        )
        if lease.is_session_over():
            self.channels.drop()
        return False

    def _abandon(self, event: Event, reason: str) -> None:
        self.owned.lose_all(reason)
        self.apply(event)
        self._heartbeats.hurry()

    def react(self, reaction: Reaction, identity: Identity, error: ErrorCode, request: str) -> None:
        """Carry out a reaction. For those that only retry, the caller waits."""
        if identity != self.identity:
            return
        match reaction:
            case Reaction.LOSE_SHARDS | Reaction.JOIN_AS_NEW:
                self._abandon(Event.FENCED, f"{request} was answered {error.name}")
            case Reaction.RECONNECT:
                self.channels.drop()
            case Reaction.FENCED:
                self.fail(Fenced(FENCED.format(self.options.instance_id, self.group_id), error))
            case Reaction.FAIL:
                text = refusal_message(f"{request} of a member of group {self.group_id!r}", error)
                self.fail(MemberError(text, error))

    # The assignment --------------------------------------------------------------------------------------------------

    @property
    def needs_rejoin(self) -> bool:
        """Whether the offsets that are being fetched may not be needed any more."""
        return self.state.phase is not Phase.TAKING
