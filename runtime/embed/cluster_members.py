"""ClusterConnector: members in a process of a cluster reach the node that owns their group.

That is the node of this process, or another one over TCP. When the group moves, the member's channels are closed, and
it opens others. Its membership and its session are the group's, so they move with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from ...actors.messages import GroupRequest
from ..client.connection import ChannelLost, Connection, connect_to
from ..client.reaching import connect_to_any
from ..member.channel import Channel
from ..member.group_channel import GroupChannel
from ..member.local import LocalConnector
from ..member.tcp import TcpChannel, ensure_topics, find_partitions, find_session_timeout_ms, find_topic_ids
from .group_owners import GroupOwner, GroupOwners

CLIENT_ID = "callboard-topics"

OpenRemote = Callable[[GroupOwner, str], Coroutine[Any, Any, Channel]]
"""``open_remote(owner, client_id)`` opens a channel to another node. Simulations have their own."""


class Route(NamedTuple):
    group_id: str
    session: str


class ClusterConnector:
    """``Connector``. ``local``: reaches the node of this process; None if there is none."""

    def __init__(self, owners: GroupOwners, local: LocalConnector | None) -> None:
        self.local = local
        self._owners = owners
        self.open_remote: OpenRemote = self._open_over_tcp
        self._routes: WeakKeyDictionary[Channel, Route] = WeakKeyDictionary()

    async def open(self, client_id: str) -> GroupChannel:
        return GroupChannel(partial(self._open_to_owner, client_id))

    async def _open_to_owner(self, client_id: str, group_id: str) -> Channel:
        owner = self._owners.owner(group_id)
        if self.local is not None and self._owners.is_own(owner):
            inner = await self.local.open(client_id)
            channel: Channel = LeasedChannel(inner, self._owners.has_lease)
        else:
            channel = await self.open_remote(owner, client_id)
        self._routes[channel] = Route(group_id, owner.session)
        return channel

    async def _open_over_tcp(self, owner: GroupOwner, client_id: str) -> Channel:
        try:
            async with asyncio.timeout(self._owners.timeout_s()):
                return TcpChannel(await connect_to(owner.address, client_id, self._owners.security))
        except TimeoutError as error:
            raise ChannelLost(f"{owner.address} does not answer") from error

    def close_moved(self) -> None:
        """Close channels to nodes that do not own the group now. They may be frozen, so no answer is waited for."""
        for channel, route in list(self._routes.items()):
            if self._session_of(route.group_id) != route.session:
                del self._routes[channel]
                channel.close()

    def _session_of(self, group_id: str) -> str:
        try:
            return self._owners.owner(group_id).session
        except ChannelLost:
            return ""

    async def ensure_topics(self, partitions: Mapping[str, int]) -> None:
        if self.local is not None:
            await self.local.ensure_topics(partitions)
            return
        connection = await self._connect_to_any()
        try:
            await ensure_topics(connection, partitions)
        finally:
            connection.close()

    async def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        if self.local is not None:
            return await self.local.partitions(topics)
        connection = await self._connect_to_any()
        try:
            return await find_partitions(connection, topics)
        finally:
            connection.close()

    async def topic_ids(self, topics: Iterable[str]) -> dict[str, bytes]:
        if self.local is not None:
            return await self.local.topic_ids(topics)
        connection = await self._connect_to_any()
        try:
            return await find_topic_ids(connection, topics)
        finally:
            connection.close()

    async def consumer_session_timeout_ms(self, group_id: str) -> int:
        if self.local is not None:
            return await self.local.consumer_session_timeout_ms(group_id)
        connection = await self._connect_to_any()
        try:
            return await find_session_timeout_ms(connection, group_id)
        finally:
            connection.close()

    async def _connect_to_any(self) -> Connection:
        return await connect_to_any(self._owners.addresses(), CLIENT_ID, self._owners.security)


class LeasedChannel:
    """``Channel`` to the node of this process, which answers only while nobody else can own its groups.

    The lease is looked at after the request was sent. So a member that counts its own lease from then is right: a node
    that takes the group over gives all members a whole session later.
    """

    def __init__(self, inner: Channel, has_lease: Callable[[], bool]) -> None:
        self._inner = inner
        self._has_lease = has_lease
        self.close = inner.close

    async def ask(self, message: GroupRequest) -> Any:
        if not self._has_lease():
            raise ChannelLost("this process has shown no sign of life to its cluster for too long")
        return await self._inner.ask(message)
