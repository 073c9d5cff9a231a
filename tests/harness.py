"""A node in this process, on a folder and a free port, and clients that send it raw frames.

Requests and responses go through kio (``peers.wire``), so that the server's encoding is checked by another library.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import fields, is_dataclass
from datetime import timedelta
from functools import wraps
from pathlib import Path
from random import Random
from ssl import SSLContext, SSLObject
from typing import Any, NamedTuple, ParamSpec, cast
from uuid import UUID

import uvloop
from kio.serial import _introspect as introspect
from peers.wire import FRAME_SIZE, Hangup, Plain, decode, encode

from callboard.runtime.disk.disk import Disk
from callboard.runtime.kafka.api import APIS
from callboard.runtime.kafka.authorization.authorizer import Authorizer
from callboard.runtime.node.environment import Environment, WorkClocks
from callboard.runtime.node.node import Node
from callboard.runtime.settings.table import Options, Settings

DEADLINE_S = 120.0  # only a test that hangs reaches it
OLDEST = {api.name: api.min_version for api in APIS}
NEWEST = {api.name: api.max_version for api in APIS}
TOPICS = (("t", 3), ("u", 1))

P = ParamSpec("P")


def async_test(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a coroutine test on uvloop, as ``callboard serve`` does."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def run_with_deadline() -> None:
            async with asyncio.timeout(DEADLINE_S):
                await test(*args, **kwargs)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_with_deadline())

    return run


class Client:
    """One connection. ``ask`` waits for each response; ``write`` and ``receive`` pipeline requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, name: str, version: int | None = None, **values: Plain) -> dict[str, Plain]:
        """Send one request, by default in the newest version, and return its response."""
        version = NEWEST[name] if version is None else version
        self.write(frame(name, version, **values))
        return await self.receive(name, version)

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def receive(self, name: str, version: int | None = None) -> dict[str, Plain]:
        """The next response, decoded as a response to the given request."""
        return decode(name, NEWEST[name] if version is None else version, await self.receive_frame())

    async def receive_frame(self) -> bytes:
        """The next response without its size. Raises Hangup at the end of the connection."""
        try:
            (size,) = FRAME_SIZE.unpack(await self._reader.readexactly(FRAME_SIZE.size))
            return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Hangup(str(error)) from error

    async def responses_until_disconnect(self) -> list[bytes]:
        """All responses until the server closes the connection."""
        frames = []
        while True:
            try:
                frames.append(await self.receive_frame())
            except Hangup:
                return frames

    async def read_to_end(self) -> bytes:
        """All bytes until the server closes the connection."""
        return await self._reader.read()

    @property
    def tls(self) -> SSLObject:
        """Of a connection with TLS."""
        tls: SSLObject = self._writer.get_extra_info("ssl_object")
        return tls

    async def close(self) -> None:
        self._writer.close()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)


class NodeHarness:
    """A running node. ``restart`` replaces it by another one on the same folder, with another port."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        options: Mapping[str, Any],
        authorizer: Authorizer | None = None,
        environment: Environment | None = None,
    ) -> None:
        defaults = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 4}
        self._settings = Settings(**{**defaults, **settings})
        self._options = Options(data=folder, **{"topics": TOPICS, **options})
        disk = Disk(self._options.file_mode)
        self._environment = environment or Environment(
            disk=disk, authorizer=authorizer, work_clocks=WorkClocks(budget_ns=lambda: 0)
        )
        self._clients: list[Client] = []
        self.node: Node
        self.port = 0

    async def start(self) -> None:
        names = [listener.name for listener in self._options.listeners]
        sockets = {name: socket.create_server(("127.0.0.1", 0)) for name in names}
        self.port = sockets[names[0]].getsockname()[1]
        try:
            self.node = await Node.open(self._settings, self._options, self._environment, sockets)
        except BaseException:
            for listening_socket in sockets.values():
                listening_socket.close()
            raise

    async def restart(self) -> None:
        await self.node.stop()
        await self.start()

    async def connect(self, tls: SSLContext | None = None) -> Client:
        """Connect to the first listener."""
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port, ssl=tls))
        self._clients.append(client)
        return client

    async def disconnect_all(self) -> None:
        for client in self._clients:
            await client.close()


@asynccontextmanager
async def running_node(
    folder: Path,
    options: Mapping[str, Any] | None = None,
    authorizer: Any = None,
    environment: Any = None,
    **settings: Any,
) -> AsyncIterator[NodeHarness]:
    """A node with the topics t (3 partitions) and u (1), stopped at the end."""
    harness = NodeHarness(folder, settings, options or {}, authorizer, environment)
    await harness.start()
    try:
        yield harness
    finally:
        await harness.disconnect_all()
        await harness.node.stop()


def topic_id(harness: NodeHarness, name: str) -> UUID:
    topic = harness.node.topics.get(name)
    assert topic is not None
    return topic.topic_id


# Requests ------------------------------------------------------------------------------------------------------------


def frame(name: str, version: int | None = None, correlation_id: int = 7, **values: Plain) -> bytes:
    """A complete request: size, header (client id "wire"), body."""
    return framed(encode(name, NEWEST[name] if version is None else version, values, correlation_id))


def versions(name: str, since: int = 0) -> range:
    return range(max(OLDEST[name], since), NEWEST[name] + 1)


def framed(payload: bytes) -> bytes:
    return FRAME_SIZE.pack(len(payload)) + payload


def correlation_id_of(response: bytes) -> int:
    return int.from_bytes(response[:4], "big", signed=True)


def join_values(group_id: str, member_id: str = "", **values: Plain) -> dict[str, Plain]:
    """The values of a JoinGroup of any version."""
    return {
        "group_id": group_id,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\x01\x02"}],
        "reason": None,
        **values,
    }


def commit_values(group_id: str, member: Member | None = None, offset: int = 42, **values: Plain) -> dict[str, Plain]:
    """The values of an OffsetCommit (before version 10) of one offset for t-0; without a member a simple commit."""
    return {
        "group_id": group_id,
        "generation_id_or_member_epoch": member.generation_id if member else -1,
        "member_id": member.member_id if member else "",
        "group_instance_id": None,
        "retention_time": -1,
        "topics": [{"name": "t", "partitions": [committed_partition(0, offset)]}],
        **values,
    }


def committed_partition(index: int, offset: int = 42, metadata: str | None = "x") -> dict[str, Plain]:
    return {
        "partition_index": index,
        "committed_offset": offset,
        "committed_leader_epoch": 3,
        "committed_metadata": metadata,
    }


def heartbeat_values(group_id: str, member: Member) -> dict[str, Plain]:
    return {
        "group_id": group_id,
        "generation_id": member.generation_id,
        "member_id": member.member_id,
        "group_instance_id": None,
    }


def fetch_values(group_id: str, *partitions: int, topic: str = "t") -> dict[str, Plain]:
    """The values of an OffsetFetch of version 8 or 9; without partitions for all offsets."""
    topics = [{"name": topic, "partition_indexes": list(partitions)}] if partitions else None
    group = {"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": topics}
    return {"groups": [group], "require_stable": False}


class Member(NamedTuple):
    member_id: str
    generation_id: int


async def join_and_sync(client: Client, group_id: str, **values: Plain) -> Member:
    """Join a group as its only member and sync, so that it is stable."""
    id_response = await client.ask("join_group", **join_values(group_id, **values))
    joined = await client.ask("join_group", **join_values(group_id, id_response["member_id"], **values))
    assert joined["error_code"] == "NONE", joined
    member = Member(joined["member_id"], joined["generation_id"])
    assignments = [{"member_id": member.member_id, "assignment": b"\x09"}]
    synced = await client.ask("sync_group", **sync_values(group_id, member, assignments))
    assert synced["error_code"] == "NONE", synced
    return member


def sync_values(group_id: str, member: Member, assignments: Iterable[Plain] = ()) -> dict[str, Plain]:
    return {
        **heartbeat_values(group_id, member),
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": list(assignments),
    }


async def offsets(client: Client, group_id: str) -> dict[tuple[str, int], int]:
    """All committed offsets of a group."""
    [group] = (await client.ask("offset_fetch", 9, **fetch_values(group_id)))["groups"]
    assert (group["group_id"], group["error_code"]) == (group_id, "NONE")
    return {
        (topic["name"], partition["partition_index"]): partition["committed_offset"]
        for topic in group["topics"]
        for partition in topic["partitions"]
    }


# Without sockets -----------------------------------------------------------------------------------------------------


class MemoryTransport(asyncio.Transport):
    """A transport that collects the bytes that a connection writes."""

    def __init__(self, peername: tuple[Any, ...] | None = ("127.0.0.1", 50_000)) -> None:
        super().__init__({"peername": peername})
        self.written = bytearray()
        self.is_paused = False
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


class MemoryClient:
    """A connection without a socket. ``feed`` passes bytes to it in the current turn of the loop."""

    def __init__(self, node: Node) -> None:
        self.transport = MemoryTransport()
        self.connection = node.connections.new_connection()
        self.connection.connection_made(self.transport)

    def feed(self, data: bytes) -> None:
        self.connection.data_received(data)

    @property
    def is_closed(self) -> bool:
        return self.transport.is_closed

    @property
    def is_paused(self) -> bool:
        """Whether the connection has paused reading."""
        return self.transport.is_paused

    def answers(self) -> list[bytes]:
        """All responses so far, without sizes."""
        responses, data = [], bytes(self.transport.written)
        while data:
            (size,) = FRAME_SIZE.unpack_from(data)
            responses.append(data[FRAME_SIZE.size : FRAME_SIZE.size + size])
            data = data[FRAME_SIZE.size + size :]
        return responses

    async def answered(self, count: int) -> list[bytes]:
        """Wait for at least ``count`` responses. Each check parses all of them again, so ``count`` must be small."""
        while len(responses := self.answers()) < count:
            await asyncio.sleep(0)
        return responses

    def close(self) -> None:
        self.connection.connection_lost(None)


# Random requests ------------------------------------------------------------------------------------------------------

WORDS = ("", "g", "t", "u", "m1", "consumer", "range", "stable", "Grüße", "x" * 200)
INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def random_entity(entity_type: Any, rng: Random) -> Any:
    """An entity of one of kio's classes with random values, which need not be valid."""
    return entity_type(**{field.name: random_value(field, rng) for field in fields(entity_type)})


def random_value(field: Any, rng: Random) -> Any:
    kind = introspect.classify_field(field)
    is_nullable = type(None) in getattr(field.type, "__args__", ())
    if is_nullable and rng.random() < 0.2:
        return None
    if kind.is_array:
        return tuple(random_item(field, kind.type_, rng) for _ in range(rng.choice((0, 1, 1, 2))))
    return random_item(field, kind.type_, rng)


def random_item(field: Any, item_type: Any, rng: Random) -> Any:
    if is_dataclass(item_type):
        return random_entity(item_type, rng)
    match field.metadata["kafka_type"]:
        case "bool":
            return rng.random() < 0.5
        case "string":
            return rng.choice(WORDS)
        case "bytes" | "records":
            return rng.randbytes(rng.choice((0, 2, 70)))
        case "uuid":
            return UUID(int=rng.getrandbits(128) | 1)
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=rng.choice((-1, 0, 30_000, 2**31 - 1)))
        case "float64":
            return rng.choice((-1.0, 0.0, 0.5, 1e300))
        case kafka_type:
            limit = 2 ** (INTEGERS[kafka_type] - 1)
            return rng.choice((0, 1, -1, limit - 1, -limit, rng.randrange(-limit, limit)))


class HandTimer:
    """Replaces ``Node.later``; the test advances the time."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.due: tuple[int, Callable[[], None]] | None = None

    def later(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        assert self.due is None, "two checks are scheduled"
        self.due = (self.now_ms + delay_ms, callback)
        return cast("asyncio.TimerHandle", self)

    def cancel(self) -> None:
        self.due = None

    def advance(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        while self.due is not None and self.due[0] <= until_ms:
            (self.now_ms, callback), self.due = self.due, None
            callback()
        self.now_ms = until_ms
