"""TcpConnector: members reach their coordinator by Kafka's protocol over TCP."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, cast

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.messages import GroupRequest
from ..client.exchange import Exchange, UnsupportedApi
from ..client.versions import API_VERSIONS
from ..common.errors import StartError
from ..kafka.codec.frames import BadResponse
from ..settings.table import Address, parse_address
from .channel import ChannelLost
from .messages import TRANSLATIONS, error_of

TIMEOUT_S = 10.0
"""For connecting and for requests that are answered at once. JoinGroup and SyncGroup have the member's timeout."""

SERVER_DEFAULT = -1  # replication factor


class Connection(asyncio.Protocol):
    """One connection. Requests are pipelined; responses come in the same order."""

    def __init__(self, address: Address, client_id: str) -> None:
        self.address = address
        self.exchange = Exchange(client_id)
        self._responses: deque[asyncio.Future[Any]] = deque()
        self._transport: asyncio.Transport | None = None
        self._is_lost = False

    async def ask(self, name: str, values: Mapping[str, Any]) -> Any:
        """The response as kio's entity. Raises ChannelLost, also if the server does not serve the API."""
        if self._is_lost or self._transport is None:
            raise ChannelLost(f"the connection to {self.address} is closed")
        try:
            frame = self.exchange.request(name, values)
        except UnsupportedApi as error:
            raise ChannelLost(f"{self.address} {error}") from error
        response = asyncio.get_running_loop().create_future()
        self._responses.append(response)
        self._transport.write(frame)
        return await response

    async def ask_in_time(self, name: str, values: Mapping[str, Any]) -> Any:
        """The same with a timeout, for requests that are answered at once."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self.ask(name, values)
        except TimeoutError as error:
            self.close()
            raise ChannelLost(f"{self.address} did not answer {name} within {TIMEOUT_S:g} s") from error

    def close(self) -> None:
        self._fail_pending("closed the connection")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail_pending(f"is disconnected: {exc}" if exc else "closed the connection")

    def data_received(self, data: bytes) -> None:
        try:
            for entity in self.exchange.receive(data):
                response = self._responses.popleft()
                if not response.done():
                    response.set_result(entity)
        except BadResponse as error:
            self._fail_pending(str(error))

    def _fail_pending(self, reason: str) -> None:
        if not self._is_lost:
            self._is_lost = True
            if self._transport is not None:
                self._transport.abort()
        while self._responses:
            response = self._responses.popleft()
            if not response.done():
                response.set_exception(ChannelLost(f"{self.address} {reason}"))


class TcpConnector:
    """``bootstrap``: "host:port", or several with commas between, of which any may answer. Raises StartError.

    The group's coordinator is looked up at a channel's first request; with Callboard it is the bootstrap server.
    """

    def __init__(self, bootstrap: str) -> None:
        if not isinstance(bootstrap, str):
            raise StartError(f"bad bootstrap {bootstrap!r}: expected text, as in '127.0.0.1:9092'")
        self._addresses = tuple(parse_address("bootstrap", part.strip(), 1) for part in bootstrap.split(","))

    async def open(self, client_id: str) -> TcpChannel:
        return TcpChannel(self, await self.connect_to_any(client_id), client_id)

    async def connect_to_any(self, client_id: str) -> Connection:
        """Raises ChannelLost with the error of the last server."""
        failure = ChannelLost("no server is given")
        for address in self._addresses:
            try:
                return await connect_to(address, client_id)
            except ChannelLost as error:
                failure = error
        raise failure

    async def check_reachable(self) -> None:
        """Raises ChannelLost if no server can be reached."""
        (await self.connect_to_any("callboard")).close()

    async def ensure_topics(self, partitions: Mapping[str, int]) -> None:
        connection = await self.connect_to_any("callboard-topics")
        try:
            existing = await _find_partitions(connection, partitions)
            await _create(connection, {name: count for name, count in partitions.items() if name not in existing})
            await _grow(
                connection, {name: count for name, count in partitions.items() if existing.get(name, count) < count}
            )
        finally:
            connection.close()

    async def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        connection = await self.connect_to_any("callboard-topics")
        try:
            return await _find_partitions(connection, topics)
        finally:
            connection.close()


class TcpChannel:
    """A connection to a group's coordinator, which is looked up at the first request."""

    def __init__(self, connector: TcpConnector, connection: Connection, client_id: str) -> None:
        self._connector = connector
        self._connection = connection
        self._client_id = client_id
        self._search: asyncio.Task[None] | None = None
        self._is_at_coordinator = False
        self._is_closed = False

    async def ask(self, message: GroupRequest) -> Any:
        translation = TRANSLATIONS[type(message)]
        if not self._is_at_coordinator:
            await self._find_coordinator(message.group_id)
        response = await self._connection.ask(translation.api, translation.values(message))
        return translation.reply(message, response)

    def close(self) -> None:
        self._is_closed = True
        self._connection.close()

    async def _find_coordinator(self, group_id: str) -> None:
        """Look for the coordinator once, also for concurrent requests."""
        if self._search is None:
            self._search = asyncio.get_running_loop().create_task(self._move_to_coordinator(group_id))
            self._search.add_done_callback(_retrieve_exception)
        await asyncio.wait({self._search})
        self._search.result()

    async def _move_to_coordinator(self, group_id: str) -> None:
        response = await self._connection.ask_in_time("find_coordinator", {"key": group_id, "key_type": 0})
        error = error_of(response.error_code)
        if error is not ErrorCode.NONE:
            raise ChannelLost(f"the coordinator of {group_id!r} cannot be found: {error.name}")
        address = Address(response.host, response.port)
        if address != self._connection.address:
            coordinator = await connect_to(address, self._client_id)
            self._connection.close()
            self._connection = coordinator
            if self._is_closed:
                coordinator.close()
        self._is_at_coordinator = True


def _retrieve_exception(search: asyncio.Task[None]) -> None:
    """The caller may have been cancelled, and asyncio logs an exception that is never retrieved."""
    if not search.cancelled():
        search.exception()


async def connect_to(address: Address, client_id: str) -> Connection:
    """Connect and exchange API versions. Raises ChannelLost."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            host = address.host or "localhost"
            _, connection = await loop.create_connection(lambda: Connection(address, client_id), host, address.port)
            try:
                response = await connection.ask(API_VERSIONS, {})
            except BaseException:
                connection.close()
                raise
    except TimeoutError as error:
        raise ChannelLost(f"cannot reach {address}: no answer within {TIMEOUT_S:g} s") from error
    except OSError as error:
        raise ChannelLost(f"cannot reach {address}: {error.strerror or error}; is a server running there?") from error
    except UnicodeError as error:
        raise ChannelLost(f"cannot reach {address}: {address.host!r} is not a host name: {error}") from error
    connection.exchange.use_versions(response)
    return connection


async def _find_partitions(connection: Connection, topics: Iterable[str]) -> dict[str, int]:
    requested = [{"name": topic} for topic in topics]
    if not requested:
        return {}
    flags = dict.fromkeys(
        ("include_cluster_authorized_operations", "include_topic_authorized_operations", "allow_auto_topic_creation"),
        False,
    )
    response = await connection.ask_in_time("metadata", {"topics": requested, **flags})
    return {topic.name: len(topic.partitions) for topic in response.topics if topic.error_code == ErrorCode.NONE}


async def _create(connection: Connection, missing: Mapping[str, int]) -> None:
    if not missing:
        return
    topics = [
        {
            "name": name,
            "num_partitions": count,
            "replication_factor": SERVER_DEFAULT if connection.exchange.versions.get("create_topics", 0) >= 4 else 1,
            "assignments": [],
            "configs": [],
        }
        for name, count in missing.items()
    ]
    values = {"topics": topics, "timeout": timedelta(seconds=TIMEOUT_S), "validate_only": False}
    response = await connection.ask_in_time("create_topics", values)
    _check(response.topics, ErrorCode.TOPIC_ALREADY_EXISTS)


async def _grow(connection: Connection, smaller: Mapping[str, int]) -> None:
    if not smaller:
        return
    topics = [{"name": name, "count": count, "assignments": None} for name, count in smaller.items()]
    values = {"topics": topics, "timeout": timedelta(seconds=TIMEOUT_S), "validate_only": False}
    response = await connection.ask_in_time("create_partitions", values)
    _check(response.results, ErrorCode.INVALID_PARTITIONS)  # another client has added partitions meanwhile


def _check(results: Iterable[Any], harmless: ErrorCode) -> None:
    for result in results:
        error = error_of(result.error_code)
        if error not in (ErrorCode.NONE, harmless):
            raise CoordinatorError(error, f"topic {result.name!r}: {result.error_message or error.name}")
