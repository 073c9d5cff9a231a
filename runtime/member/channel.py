"""The protocols between a Member and its coordinator: a Connector opens Channels.

``LocalConnector`` reaches a coordinator in this process, ``TcpConnector`` one over TCP. The simulation has its own,
with a network that delays and loses messages. Requests are the actors' messages, answers are the coordinator's tuples.
An error code in an answer is not raised.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, Protocol

from ...actors.messages import GroupRequest
from ..client.connection import ChannelLost as ChannelLost


class Channel(Protocol):
    """One connection. Requests are answered in order."""

    def ask(self, message: GroupRequest) -> Awaitable[Any]:
        """Await the answer: ``Joined``, ``Synced``, ``Left``, ``Committed``, ``Fetched``, ``ErrorCode``.

        Raises ChannelLost; the channel cannot be used afterwards. Cancelling the wait does not cancel the request.
        """

    def close(self) -> None:
        """Close the connection. Pending requests raise ChannelLost. May be called twice."""


class Connector(Protocol):
    """Opens channels to a group's coordinator, for any number of members."""

    async def open(self, client_id: str) -> Channel:
        """Open a channel to the coordinator. Raises ChannelLost if it cannot be reached.

        A member opens two: one for JoinGroup, SyncGroup and LeaveGroup, one for heartbeats, commits and fetches. So a
        heartbeat never waits behind a JoinGroup that the coordinator holds back.
        """

    async def ensure_topics(self, partitions: Mapping[str, int]) -> None:
        """Create missing topics and add missing partitions, so that Kafka's tools see them.

        Raises ChannelLost if the coordinator cannot be reached, CoordinatorError if it refuses.
        """

    async def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """Partition counts by topic name; unknown topics are left out.

        Raises ChannelLost if the coordinator cannot be reached.
        """

    async def topic_ids(self, topics: Iterable[str]) -> dict[str, bytes]:
        """The ids of topics by name; unknown topics are left out. Raises ChannelLost."""

    async def consumer_session_timeout_ms(self, group_id: str) -> int:
        """The session timeout of a group of the consumer protocol. Raises ChannelLost and CoordinatorError."""
