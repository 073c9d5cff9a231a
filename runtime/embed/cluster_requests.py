"""ClusterRequests: the admin methods' requests to the nodes of a cluster, over TCP, also to that of this process.

A request about a group goes to the node that owns it, a list is asked of all nodes. While partitions move, requests are
repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.messages import ExplainGroup, Fetched, GroupRequest, OffsetFetch
from ...actors.recorder.now import GroupNow
from ...actors.recorder.recorded import GroupRecorded
from ..client.connection import ChannelLost, Connection, connect_to
from ..client.errors import RETRIABLE_ERRORS
from ..client.reaching import connect_to_any
from ..kafka.codec.message_json import read_message, write_message
from ..kafka.codec.own_api import ASK_NODE
from ..kafka.node_subjects import SUBJECTS
from ..member.messages import TRANSLATIONS, error_of
from ..member.tcp import create_topics, delete_topic, grow_topics
from ..settings.address import Address
from ..topics.known import lag_in_steps, needs_lag, with_lag
from .admin_requests import NamedTopics, Recorded, no_such_topic, uses_topic
from .cluster_offsets import describe_topics, offsets_since
from .consumer_groups import DESCRIBE, describe_values, read_response
from .forwarded_requests import error_of_reply
from .group_owners import GroupOwners
from .in_pieces import run_in_pieces
from .node_resets import NodeResets
from .results import ListedGroup, TopicDescription

CLIENT_ID = "callboard-admin"
TIMEOUT_S = 30.0
"""For a request with its repetitions. A takeover takes seconds."""
RETRY_PAUSE_S = 0.1
CONCURRENT_GROUPS_MAX = 100

T = TypeVar("T")
OwnResets = Callable[[], Coroutine[Any, Any, NodeResets]]
SetSettings = Callable[[Mapping[str, float | bool | str | None]], Awaitable[None]]


class ClusterRequests:
    """``AdminRequests``. ``set_settings``: changes those of this process's node. ``own_resets``: its resets."""

    def __init__(self, owners: GroupOwners, set_settings: SetSettings, own_resets: OwnResets) -> None:
        self._set_settings = set_settings
        self.resets = own_resets
        self._owners = owners
        self._connections: dict[Address, Connection] = {}

    def close(self) -> None:
        while self._connections:
            self._connections.popitem()[1].close()

    # Groups ----------------------------------------------------------------------------------------------------------

    async def ask(self, message: GroupRequest) -> Any:
        return await self._repeat(partial(self._ask_owner, message))

    async def _ask_owner(self, message: GroupRequest) -> Any:
        translation = TRANSLATIONS.get(type(message))
        if translation is None:
            return await self._ask_own(message, SUBJECTS[type(message).__name__].reply)
        address = self._owners.owner(message.group_id).address
        response = await self._ask(address, translation.api, translation.values(message))
        return _final(message.group_id, translation.reply(message, response))

    async def _ask_own(self, message: GroupRequest, reply: Any) -> Any:
        """By the API that Kafka does not have. Raises CoordinatorError, also for a node of an older version."""
        address = self._owners.owner(message.group_id).address
        values = {"subject": type(message).__name__, "group_id": message.group_id, "asked_by": b""}
        response = await self._ask(address, ASK_NODE, {**values, "content": write_message(message)})
        if response.error_code:
            text = f"group {message.group_id!r}: {response.error_message or error_of(response.error_code).name}"
            raise CoordinatorError(error_of(response.error_code), text)
        return _final(message.group_id, read_message(reply, response.content))

    async def describe_consumer_group(self, group: str) -> NamedTopics:
        return await self._repeat(partial(self._describe_consumer_group, group))

    async def _describe_consumer_group(self, group: str) -> NamedTopics:
        response = await self._ask(self._owners.owner(group).address, DESCRIBE, describe_values(group))
        error = error_of(response.groups[0].error_code)
        if error in RETRIABLE_ERRORS:
            raise _refused(error, f"group {group!r}")
        return read_response(response, error)

    async def rebalances(self, group: str) -> Recorded:
        recorded: GroupRecorded = await self._repeat(partial(self._ask_own, ExplainGroup(group), GroupRecorded))
        if recorded.error:
            raise _refused(recorded.error, f"group {group!r}")
        now = recorded.now
        if now is not None and needs_lag(now) and now.offsets is not None and now.offsets.lag is None:
            now = await _with_lag(self, group, now)
        return Recorded(recorded.records, now)

    async def list_groups(
        self, states: frozenset[str] = frozenset(), types: frozenset[str] = frozenset()
    ) -> Sequence[ListedGroup]:
        return await self._repeat(partial(self._list_groups, states, types))

    async def _list_groups(self, states: frozenset[str], types: frozenset[str]) -> list[ListedGroup]:
        """A group that moves meanwhile may be in the lists of two nodes."""
        lists = await asyncio.gather(*map(self._list_groups_of, self._owners.addresses()))
        groups = {group.group_id: group for listed in lists for group in listed}
        return [
            group
            for group in groups.values()
            if (not states or group.state.lower() in states) and (not types or group.type.lower() in types)
        ]

    async def _list_groups_of(self, address: Address) -> list[ListedGroup]:
        response = await self._ask(address, "list_groups", {"states_filter": (), "types_filter": ()})
        if response.error_code:
            raise _refused(error_of(response.error_code), f"the groups of {address}")
        return [
            ListedGroup(group.group_id, group.group_state, group.protocol_type, group.group_type)
            for group in response.groups
        ]

    async def groups_of_topic(self, topic: str) -> Iterable[str]:
        names = [group.group_id for group in await self.list_groups()]
        group_ids: list[str] = []
        for first in range(0, len(names), CONCURRENT_GROUPS_MAX):
            chunk = names[first : first + CONCURRENT_GROUPS_MAX]
            answers = await asyncio.gather(*(uses_topic(self, name, topic) for name in chunk))
            group_ids += [name for name, has_topic in zip(chunk, answers, strict=True) if has_topic]
        return group_ids

    # Topics ----------------------------------------------------------------------------------------------------------

    async def topics(self) -> Sequence[TopicDescription]:
        return await self._repeat(partial(self._describe_topics, None))

    async def describe_topic(self, name: str) -> TopicDescription:
        topics = await self._repeat(partial(self._describe_topics, [name]))
        if not topics:
            raise no_such_topic(name)
        return topics[0]

    async def _describe_topics(self, names: Sequence[str] | None) -> list[TopicDescription]:
        return await describe_topics(self._ask, await self._connect_to_any(), names)

    async def offsets_since(self, name: str, numbers: Sequence[int], time_ms: int) -> Mapping[int, int]:
        return await self._repeat(partial(self._offsets_since, name, numbers, time_ms))

    async def _offsets_since(self, name: str, numbers: Sequence[int], time_ms: int) -> dict[int, int]:
        return await offsets_since(self._ask, await self._connect_to_any(), name, numbers, time_ms)

    async def create_topic(self, name: str, partitions: int) -> None:
        await create_topics(await self._connect_to_any(), {name: partitions})

    async def grow_topic(self, name: str, partitions: int) -> None:
        await grow_topics(await self._connect_to_any(), {name: partitions})

    async def delete_topic(self, name: str) -> None:
        await self.describe_topic(name)
        await delete_topic(await self._connect_to_any(), name)

    async def set(self, settings: Mapping[str, float | bool | str | None]) -> None:
        await self._set_settings(settings)

    # Connections -----------------------------------------------------------------------------------------------------

    async def _connect_to_any(self) -> Connection:
        """To this process's node, or another one that answers."""
        addresses = self._owners.addresses()
        for address in addresses:
            connection = self._connections.get(address)
            if connection is not None and not connection.is_lost:
                return connection
        connection = await connect_to_any(addresses, CLIENT_ID, self._owners.security)
        return self._keep(connection)

    async def _ask(self, address: Address, api: str, values: Mapping[str, Any]) -> Any:
        """Raises ChannelLost, also for a node that does not answer in time."""
        connection = self._connections.get(address)
        try:
            async with asyncio.timeout(self._owners.timeout_s()):
                if connection is None or connection.is_lost:
                    connection = self._keep(await connect_to(address, CLIENT_ID, self._owners.security))
                if api not in connection.exchange.versions:
                    text = f"the node {address} has an older version of Callboard, which has no {api}"
                    raise CoordinatorError(ErrorCode.UNSUPPORTED_VERSION, text)
                return await connection.ask(api, values)
        except TimeoutError as error:
            if connection is not None:
                connection.close()
            raise ChannelLost(f"{address} does not answer") from error

    def _keep(self, connection: Connection) -> Connection:
        """Another request may have connected meanwhile; its connection is used then."""
        known = self._connections.get(connection.address)
        if known is not None and not known.is_lost:
            connection.close()
            return known
        self._connections[connection.address] = connection
        return connection

    async def _repeat(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Ask again while the group, or its node, is not available. Raises the last error after the time."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + TIMEOUT_S
        while True:
            try:
                return await ask()
            except (ChannelLost, CoordinatorError) as error:
                is_final = isinstance(error, CoordinatorError) and error.code not in RETRIABLE_ERRORS
                if is_final or loop.time() > deadline_s:
                    raise
                await asyncio.sleep(RETRY_PAUSE_S)


def _final(group: str, reply: Any) -> Any:
    """The reply, unless its error says to ask again: then CoordinatorError is raised."""
    error = error_of_reply(reply)
    if error in RETRIABLE_ERRORS:
        raise _refused(error, f"group {group!r}")
    return reply


def _refused(error: ErrorCode, subject: str) -> CoordinatorError:
    return CoordinatorError(error, f"{subject}: {error.name}")


async def _with_lag(requests: ClusterRequests, group: str, now: GroupNow) -> GroupNow:
    """In topics that other nodes lead than the one that has the group. Not if one of them does not answer."""
    try:
        fetched: Fetched = await requests.ask(OffsetFetch(group, None))
        topics = await requests._describe_topics([topic for topic, _ in fetched.topics])
    except (ChannelLost, CoordinatorError):
        return now
    ends = {topic.name: [partition.end_offset for partition in topic.partitions] for topic in topics}
    return with_lag(now, await run_in_pieces(lag_in_steps(fetched.topics, ends)))
