"""What lies between a Member and its coordinator, as protocols: a Door that opens Channels.

A Member knows nothing of sockets. ``LocalDoor`` leads to a coordinator in this process, ``TcpDoor`` to one anywhere;
a simulation has its own, with a network that delays, loses and cuts. Requests are the actors' messages, and answers
are the tuples that the coordinator gives: an error in an answer is an answer, no exception.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, Protocol

from ...actors.messages import GroupRequest


class ChannelLost(ConnectionError):
    """The way to the coordinator is gone. Whatever was asked may have happened, or not."""


class Channel(Protocol):
    """One connection. Answers come in Kafka's order: one request at a time, only heartbeats and commits overlap."""

    def ask(self, message: GroupRequest) -> Awaitable[Any]:
        """To be awaited: the answer, ``Joined``, ``Synced``, an ``ErrorCode``, ``Left``, ``Committed`` or ``Fetched``.

        Raises ChannelLost; the channel is of no use afterwards. Cancelling the wait takes nothing back.
        """

    def close(self) -> None:
        """Hang up. Who waits for an answer gets ChannelLost. Can be called twice."""


class Door(Protocol):
    """Where the coordinator of a group is. One door serves any number of members."""

    async def open(self, client_id: str) -> Channel:
        """A new channel to the coordinator. Raises ChannelLost when nobody is there.

        A member opens two: one for joining, syncing and leaving, one for heartbeats, commits and fetches, because a
        heartbeat must not wait behind a join that is parked.
        """

    async def ensure_topics(self, partitions: Mapping[str, int]) -> None:
        """Make the topics that are missing and grow those with fewer partitions, so that Kafka's tools see them.

        Raises ChannelLost when nobody is there, CoordinatorError when it cannot be done.
        """

    async def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions these topics have, by name; those that are not there are left out.

        Raises ChannelLost when nobody is there.
        """
