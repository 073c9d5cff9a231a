"""MemberChannels: the two channels of one member, and the requests that need the one for joining."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from ...actors.consumer_group.messages import ConsumerHeartbeat
from ...actors.messages import Joined, JoinGroup, LeaveGroup, Synced, SyncGroup
from .channel import ChannelLost, Connector
from .member_log import MemberLog
from .reconnecting_channel import ReconnectingChannel

log = logging.getLogger("callboard.member")

CLIENT_ID = "callboard"

LEAVE_TIMEOUT_S = 5.0
"""For LeaveGroup. Without its answer the session expires by itself."""

JOIN_GRACE_S = 5.0
"""Added to the rebalance timeout when waiting for the answer to a JoinGroup, as in Kafka's clients."""


class MemberChannels:
    """``join``: for JoinGroup, SyncGroup and LeaveGroup.

    ``main``: for heartbeats, commits and fetches, which must not wait behind a JoinGroup that is held back.
    """

    __slots__ = ("_log", "_rebalance_s", "client_id", "is_joining", "join", "main")

    def __init__(self, connector: Connector, client_id: str, rebalance_s: float, member_log: MemberLog) -> None:
        self.client_id = client_id
        self.main = ReconnectingChannel(connector, client_id)
        self.join = ReconnectingChannel(connector, client_id)
        self.is_joining = False  # a JoinGroup was sent and not answered
        self._rebalance_s = rebalance_s
        self._log = member_log

    async def send_join(self, request: JoinGroup) -> Joined | None:
        """The answer; None if there was none, see ``_ask``."""
        self.is_joining = True
        answer: Joined | None = await self._ask(request)
        self.is_joining = False  # not reset after a cancellation: the coordinator still has the request
        return answer

    async def send_sync(self, request: SyncGroup) -> Synced | None:
        """The answer; None if there was none, see ``_ask``."""
        answer: Synced | None = await self._ask(request)
        return answer

    async def send_leave(self, request: LeaveGroup | ConsumerHeartbeat, member_id: str) -> None:
        """Send a request to leave and await its answer. Without one the session will expire."""
        # On the join channel it would wait behind a pending JoinGroup.
        channel = self.join if isinstance(request, LeaveGroup) and not self.is_joining else self.main
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await _ask_with_retry(channel, request)
        except (ChannelLost, TimeoutError) as error:
            log.info("member %r could not leave: %r; its session will expire", member_id, error)

    def drop(self) -> None:
        """Close both. Pending requests raise ChannelLost."""
        self.main.drop()
        self.join.drop()

    async def _ask(self, request: JoinGroup | SyncGroup) -> Any:
        """The answer; None if the channel was lost, or the answer took longer than a rebalance may."""
        try:
            async with asyncio.timeout(self._rebalance_s + JOIN_GRACE_S):
                answer = await self.join.ask(request)
        except (ChannelLost, TimeoutError) as error:
            self._log.no_answer(type(request).__name__, error)
            self.join.drop()
            return None
        self._log.answered()
        return answer


async def _ask_with_retry(channel: ReconnectingChannel, request: LeaveGroup | ConsumerHeartbeat) -> None:
    """Retry once: a channel that was idle for long may have been lost unnoticed."""
    try:
        await channel.ask(request)
    except ChannelLost:
        await channel.ask(request)
