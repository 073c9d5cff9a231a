"""GroupChannel: a channel to the coordinator of one group, which is looked up at the first request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ...actors.messages import GroupRequest
from .channel import Channel, ChannelLost

Locate = Callable[[str], Coroutine[Any, Any, Channel]]


class GroupChannel:
    """``Channel``. ``locate`` opens a channel to the coordinator of a group, or raises ChannelLost.

    All requests of a channel are about one group. When its coordinator moves, the member opens another channel.
    """

    __slots__ = ("_channel", "_is_closed", "_locate", "_search", "group_id")

    def __init__(self, locate: Locate) -> None:
        self.group_id = ""
        """Empty before the first request."""
        self._locate = locate
        self._channel: Channel | None = None
        self._search: asyncio.Task[None] | None = None
        self._is_closed = False

    async def ask(self, message: GroupRequest) -> Any:
        channel = self._channel or await self._find(message.group_id)
        return await channel.ask(message)

    def close(self) -> None:
        self._is_closed = True
        if self._search is not None:
            self._search.cancel()
        if self._channel is not None:
            self._channel.close()

    async def _find(self, group_id: str) -> Channel:
        """Look for the coordinator once, also for concurrent requests."""
        if self._search is None:
            self.group_id = group_id
            self._search = asyncio.get_running_loop().create_task(self._run_search(group_id))
            self._search.add_done_callback(_retrieve_exception)
            if self._is_closed:
                self._search.cancel()
        await asyncio.wait({self._search})
        if self._search.cancelled():
            raise ChannelLost("the channel was closed before the coordinator was found")
        self._search.result()
        assert self._channel is not None, "set by the search"
        return self._channel

    async def _run_search(self, group_id: str) -> None:
        self._channel = await self._locate(group_id)


def _retrieve_exception(search: asyncio.Task[None]) -> None:
    """The caller may have been cancelled, and asyncio logs an exception that is never retrieved."""
    if not search.cancelled():
        search.exception()
