"""ReconnectingChannel: a channel that reopens after a loss. Backoff: the wait before a retry."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from ...actors.messages import GroupRequest
from .channel import Channel, ChannelLost, Connector

BACKOFF_MIN_S = 0.05
BACKOFF_MAX_S = 1.0
"""As Kafka's retry.backoff.max.ms."""


class Backoff:
    """Exponential backoff with jitter, so that many members do not retry at the same time."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._delay_s = BACKOFF_MIN_S

    @property
    def has_waited(self) -> bool:
        return self._delay_s > BACKOFF_MIN_S

    async def wait(self) -> None:
        delay_s = self._delay_s * self._random.uniform(0.5, 1)
        self._delay_s = min(2 * self._delay_s, BACKOFF_MAX_S)
        await asyncio.sleep(delay_s)


class ReconnectingChannel:
    """A channel of one member. It is opened by the first request, and again after it was lost or closed."""

    __slots__ = ("_channel", "_client_id", "_connector", "_opening")

    def __init__(self, connector: Connector, client_id: str) -> None:
        self._connector = connector
        self._client_id = client_id
        self._channel: Channel | None = None
        self._opening: asyncio.Task[Channel] | None = None

    async def ask(self, message: GroupRequest) -> Any:
        """Send a request and await its answer. Raises ChannelLost; the next request opens a new channel."""
        channel = self._channel or await self._open()
        try:
            return await channel.ask(message)
        except ChannelLost:
            channel.close()
            if self._channel is channel:
                self._channel = None
            raise

    def close_open(self) -> None:
        """Close the channel if it is open. Pending requests raise ChannelLost."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def drop(self) -> None:
        """Close the channel, also while it is being opened. Pending requests raise ChannelLost."""
        self.close_open()
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None

    async def _open(self) -> Channel:
        """Open one channel for all callers that wait for it."""
        opening = self._opening
        if opening is None:
            opening = self._opening = asyncio.get_running_loop().create_task(self._connector.open(self._client_id))
            opening.add_done_callback(self._opened)
        await asyncio.wait({opening})
        if opening.cancelled():
            raise ChannelLost("the channel was closed while it was being opened")
        return opening.result()

    def _opened(self, opening: asyncio.Task[Channel]) -> None:
        is_current, failed = self._opening is opening, opening.cancelled() or opening.exception() is not None
        if is_current:
            self._opening = None
        if failed:
            return
        if is_current:
            self._channel = opening.result()
        else:
            opening.result().close()
