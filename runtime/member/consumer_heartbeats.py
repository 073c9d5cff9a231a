"""ConsumerHeartbeats: what one member of the consumer protocol sends, and when. Without I/O."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from uuid import UUID

from ...actors.consumer_group.messages import ConsumerHeartbeat
from .consumer_state import About, ConsumerState, leave_epoch, make_heartbeat
from .lease import NEVER, Lease
from .options import MemberOptions


class ConsumerHeartbeats:
    """``member_id``: chosen by the member, and kept until its process ends (KIP-1082)."""

    __slots__ = ("_full_until_s", "_group_id", "_lease", "_news", "_options", "_told", "has_asked", "member_id")

    def __init__(self, group_id: str, options: MemberOptions, lease: Lease, random: Random) -> None:
        self.member_id = str(UUID(int=random.getrandbits(128), version=4))
        self.has_asked = False  # the coordinator may know this member
        self._group_id = group_id
        self._options = options
        self._lease = lease
        self._news = asyncio.Event()
        self._told: About | None = None  # what the coordinator knows of the member
        self._full_until_s = NEVER

    def next(self, state: ConsumerState, topics: tuple[str, ...]) -> tuple[ConsumerHeartbeat, About]:
        """The next heartbeat, and what the coordinator knows of the member when it is answered."""
        self._news.clear()
        self.has_asked = True
        options = self._options
        assignor = options.assignor if isinstance(options.assignor, str) else None
        about = About(options.instance_id, options.rebalance_timeout_ms, topics, assignor)
        is_full = self._lease.now_s() < self._full_until_s
        return make_heartbeat(state, self._group_id, self.member_id, about, self._told, is_full), about

    def leave(self) -> ConsumerHeartbeat:
        instance_id = self._options.instance_id
        return ConsumerHeartbeat(self._group_id, self.member_id, leave_epoch(instance_id), instance_id)

    def answered(self, about: About) -> None:
        self._told = about

    def missed(self) -> None:
        """An answer was lost. The coordinator may handle the request later than the next ones, on another connection.

        What it then decides is in no answer, unless later heartbeats ask for everything.
        """
        self._told = None
        self._full_until_s = self._lease.now_s() + self._lease.timeouts.session_s

    def hurry(self) -> None:
        """Let ``wait`` end at once."""
        self._news.set()

    async def wait(self) -> None:
        """Until the next heartbeat is due."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._lease.timeouts.interval_s):
                await self._news.wait()

    async def wait_for_news(self) -> None:
        await self._news.wait()
