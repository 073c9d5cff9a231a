"""TcpConnector: members reach their coordinator by Kafka's protocol over TCP."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple, cast

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.messages import GroupRequest
from ..common.errors import StartError
from ..kafka.codec.frames import ANSWER_BYTES_MAX, API_VERSIONS, SIZE, BadAnswer, common_versions, decode, encode
from ..settings.table import Address, parse_address
from .channel import ChannelLost
from .messages import APIS, TRANSLATIONS, error_of

TIMEOUT_S = 10.0
"""For connecting and for requests that are answered at once. JoinGroup and SyncGroup have the member's timeout."""

BY_DEFAULT = -1  # replication factor: the server's default


class _Waiting(NamedTuple):
    name: str
    version: int
    correlation_id: int
    answer: asyncio.Future[Any]


class Connection(asyncio.Protocol):
    """One connection. Requests are pipelined and answered in order."""

    def __init__(self, address: Address, client_id: str) -> None:
        self.address = address
        self.versions = {API_VERSIONS: 0}
        self._client_id = client_id
        self._correlation_id = 0
        self._waiting: deque[_Waiting] = deque()
        self._rest = bytearray()
        self._transport: asyncio.Transport | None = None
        self._is_lost = False

    async def ask(self, name: str, values: Mapping[str, Any]) -> Any:
        """The response as kio's entity. Raises ChannelLost, also if the server does not serve the API."""
        if self._is_lost or self._transport is None:
            raise ChannelLost(f"the connection to {self.address} is closed")
        version = self.versions.get(name)
        if version is None:
            known = APIS[name]
            raise ChannelLost(
                f"{self.address} does not serve {name} in a version from {known.min_version} to {known.max_version}"
            )
        self._correlation_id += 1
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(name, version, self._correlation_id, answer))
        frame = encode(name, APIS[name].key, version, self._correlation_id, self._client_id, values)
        self._transport.write(frame)
        return await answer

    async def ask_in_time(self, name: str, values: Mapping[str, Any]) -> Any:
        """The same with a timeout, for requests that are answered at once."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self.ask(name, values)
        except TimeoutError as error:
            self.close()
            raise ChannelLost(f"{self.address} did not answer {name} within {TIMEOUT_S:g} s") from error

    def close(self) -> None:
        self._fail_pending("the connection was closed")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail_pending(str(exc) if exc else "closed by the server")

    def data_received(self, data: bytes) -> None:
        self._rest += data
        position = 0
        while len(self._rest) - position >= SIZE.size:
            (size,) = SIZE.unpack_from(self._rest, position)
            if not 0 < size <= ANSWER_BYTES_MAX:
                self._fail_pending(f"it does not speak Kafka's protocol: a frame of {size} bytes")
                return
            end = position + SIZE.size + size
            if end > len(self._rest):
                break
            self._answer(bytes(self._rest[position + SIZE.size : end]))
            position = end
        del self._rest[:position]

    def _answer(self, payload: bytes) -> None:
        if not self._waiting:
            self._fail_pending("it sent a response without a request")
            return
        waiting = self._waiting.popleft()
        try:
            entity = decode(waiting.name, waiting.version, waiting.correlation_id, payload)
        except BadAnswer as error:
            self._waiting.appendleft(waiting)
            self._fail_pending(f"it answered {waiting.name} with {error}")
            return
        if not waiting.answer.done():
            waiting.answer.set_result(entity)

    def _fail_pending(self, why: str) -> None:
        if not self._is_lost:
            self._is_lost = True
            if self._transport is not None:
                self._transport.abort()
        while self._waiting:
            answer = self._waiting.popleft().answer
            if not answer.done():
                answer.set_exception(ChannelLost(f"{self.address}: {why}"))


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
            have = await _find_partitions(connection, partitions)
            await _create(connection, {name: count for name, count in partitions.items() if name not in have})
            await _grow(
                connection, {name: count for name, count in partitions.items() if have.get(name, count) < count}
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
        self._finding: asyncio.Task[None] | None = None
        self._is_found = False
        self._is_closed = False

    async def ask(self, message: GroupRequest) -> Any:
        translation = TRANSLATIONS[type(message)]
        if not self._is_found:
            await self._find(message.group_id)
        entity = await self._connection.ask(translation.api, translation.values(message))
        return translation.answer(message, entity)

    def close(self) -> None:
        self._is_closed = True
        self._connection.close()

    async def _find(self, group_id: str) -> None:
        """Look for the coordinator once, also for concurrent requests."""
        if self._finding is None:
            self._finding = asyncio.get_running_loop().create_task(self._move_to_coordinator(group_id))
            self._finding.add_done_callback(_retrieve_exception)
        await asyncio.wait({self._finding})
        self._finding.result()

    async def _move_to_coordinator(self, group_id: str) -> None:
        found = await self._connection.ask_in_time("find_coordinator", {"key": group_id, "key_type": 0})
        error = error_of(found.error_code)
        if error is not ErrorCode.NONE:
            raise ChannelLost(f"the coordinator of {group_id!r} cannot be found: {error.name}")
        address = Address(found.host, found.port)
        if address != self._connection.address:
            elsewhere = await connect_to(address, self._client_id)
            self._connection.close()
            self._connection = elsewhere
            if self._is_closed:
                elsewhere.close()
        self._is_found = True


def _retrieve_exception(finding: asyncio.Task[None]) -> None:
    """The caller may have been cancelled, and asyncio logs an exception that is never retrieved."""
    if not finding.cancelled():
        finding.exception()


async def connect_to(address: Address, client_id: str) -> Connection:
    """Connect and exchange API versions. Raises ChannelLost."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            host = address.host or "localhost"
            _, connection = await loop.create_connection(lambda: Connection(address, client_id), host, address.port)
            try:
                served = await connection.ask(API_VERSIONS, {})
            except BaseException:
                connection.close()
                raise
    except TimeoutError as error:
        raise ChannelLost(f"cannot reach {address}: no answer within {TIMEOUT_S:g} s") from error
    except OSError as error:
        raise ChannelLost(f"cannot reach {address}: {error.strerror or error}; is a server running there?") from error
    except UnicodeError as error:
        raise ChannelLost(f"cannot reach {address}: {address.host!r} is not a host name: {error}") from error
    connection.versions |= common_versions(served, APIS)
    return connection


async def _find_partitions(connection: Connection, topics: Iterable[str]) -> dict[str, int]:
    asked = [{"name": topic} for topic in topics]
    if not asked:
        return {}
    flags = dict.fromkeys(
        ("include_cluster_authorized_operations", "include_topic_authorized_operations", "allow_auto_topic_creation"),
        False,
    )
    answer = await connection.ask_in_time("metadata", {"topics": asked, **flags})
    return {one.name: len(one.partitions) for one in answer.topics if one.error_code == ErrorCode.NONE}


async def _create(connection: Connection, missing: Mapping[str, int]) -> None:
    if not missing:
        return
    topics = [
        {
            "name": name,
            "num_partitions": count,
            "replication_factor": BY_DEFAULT if connection.versions.get("create_topics", 0) >= 4 else 1,
            "assignments": [],
            "configs": [],
        }
        for name, count in missing.items()
    ]
    values = {"topics": topics, "timeout": timedelta(seconds=TIMEOUT_S), "validate_only": False}
    answer = await connection.ask_in_time("create_topics", values)
    _check(answer.topics, ErrorCode.TOPIC_ALREADY_EXISTS)


async def _grow(connection: Connection, smaller: Mapping[str, int]) -> None:
    if not smaller:
        return
    topics = [{"name": name, "count": count, "assignments": None} for name, count in smaller.items()]
    values = {"topics": topics, "timeout": timedelta(seconds=TIMEOUT_S), "validate_only": False}
    answer = await connection.ask_in_time("create_partitions", values)
    _check(answer.results, ErrorCode.INVALID_PARTITIONS)  # another client has added partitions meanwhile


def _check(results: Iterable[Any], harmless: ErrorCode) -> None:
    for one in results:
        error = error_of(one.error_code)
        if error not in (ErrorCode.NONE, harmless):
            raise CoordinatorError(error, f"topic {one.name!r}: {one.error_message or error.name}")
