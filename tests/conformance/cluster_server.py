"""Three Callboard nodes for scripts: one cluster in this process, on a store in memory, with one clock.

Each request goes to the node that a client would ask: the coordinator of its group or transactional id, the node of
the script's groups for ListGroups, and the first node for topics. A connection of a script is a connection to each
node; its responses have the order of its requests.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

from cluster.memory_store import Memory, MemoryStore
from harness import commit_values, frame, framed
from kio.serial import entity_reader
from peers.wire import message_type

from callboard.actors.ports import InlineWork
from callboard.runtime.cluster.connection import ClusterConnection
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.disk.file_work import InlineFileWork
from callboard.runtime.engine.dispatcher import LoopDispatcher
from callboard.runtime.kafka.api import APIS
from callboard.runtime.kafka.connections.connection import Connection
from callboard.runtime.log.partition import TOPIC as OFFSETS_TOPIC
from callboard.runtime.log.partition_counts import PartitionCounts
from callboard.runtime.node.environment import Environment
from callboard.runtime.node.node import Node
from callboard.runtime.settings.address import Address
from callboard.runtime.settings.listeners import PLAINTEXT
from callboard.runtime.settings.table import Options, Settings

from .callboard_server import BARRIERS, STEP_MS, ScriptTime, ScriptTransport, count_frames, topic_id
from .kafka_server import TOPICS
from .playing import Frames
from .script import DISCONNECT, WAIT, Names, Script

NODES = 3
COUNTS = PartitionCounts(12, 6)
PARTS = [count // NODES for count in COUNTS]
PARTITION_SETTINGS = dict(
    zip(("offsets_topic_num_partitions", "transaction_state_log_num_partitions"), COUNTS, strict=True)
)
TTL_S = 60.0  # no session ends because the machine is busy
CALM_TTLS = 0.002
LOOKS_PER_TTL = 300
"""A node that has all partitions gives them away after 0.1 s. With so long a TTL it would wait half a minute."""

WAIT_S = 60.0
PAUSE_S = 0.001
ROUNDS_MAX = 5000  # before a missing response is an error: nodes ask each other over TCP

GROUP_FIELDS = ("groups_names", "groups", "group_ids", "group_id")  # the first one that a request has
API_NAMES = {api.key: api.name for api in APIS}


class Line:
    """One connection of a script. ``targets``: the nodes of unanswered requests, in their order."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.connections = [connect(node) for node in nodes]
        self._received: list[deque[bytes | None]] = [deque() for _ in nodes]
        self._targets: deque[int] = deque()

    def send(self, target: int, payload: bytes) -> None:
        self._targets.append(target)
        self.connections[target][0].data_received(framed(payload))

    def take(self) -> list[bytes | None]:
        """The next responses in the order of their requests; None, the last one, if a node has disconnected."""
        for received, (_, transport) in zip(self._received, self.connections, strict=True):
            received.extend(transport.take())
        frames: list[bytes | None] = []
        while self._targets and self._received[self._targets[0]]:
            frames.append(self._received[self._targets.popleft()].popleft())
        if any(transport.is_closed for _, transport in self.connections):
            frames.append(None)
        return frames

    def close(self) -> None:
        for connection, _ in self.connections:
            connection.connection_lost(None)


def connect(node: Node) -> tuple[Connection, ScriptTransport]:
    connection, transport = node.connections.new_connection(), ScriptTransport()
    connection.connection_made(transport)
    return connection, transport


class ClusterServer:
    """``ConformanceServer``. Connections to the nodes of one cluster. ``times``: the clock of each node."""

    def __init__(self, nodes: Sequence[Node], times: Sequence[ScriptTime]) -> None:
        self.topics: dict[str, UUID] = {name: topic_id(nodes[0], name) for name in TOPICS}
        self._nodes = nodes
        self._times = times
        self._home = 0  # the node of the script's groups
        self._lines: dict[str, Line] = {}
        self._barriers = [(connect(node), self._barrier(index)) for index, node in enumerate(nodes)]

    # ConformanceServer -----------------------------------------------------------------------------------------------

    async def open(self, line: str) -> None:
        self._lines[line] = Line(self._nodes)

    def send(self, line: str, *payloads: bytes) -> None:
        for payload in payloads:
            self._lines[line].send(self._target(payload), payload)

    async def disconnect(self, line: str) -> None:
        self._lines.pop(line).close()

    async def wait(self, ms: int) -> None:
        end_ms = self._times[0].now_ms + ms
        while self._advance(end_ms):
            while any(time.wakes_pending for time in self._times):
                await asyncio.sleep(0)
            await self._pass_barriers()

    async def settle(self, expected: int, outstanding: int) -> Frames:
        frames: Frames = {}
        for round_number in range(1, ROUNDS_MAX + 1):
            await self._pass_barriers()
            await self.wait(STEP_MS if round_number == 1 else 0)
            before = count_frames(frames)
            self._take_frames(frames)
            count = count_frames(frames)
            if round_number >= BARRIERS and count in (before, outstanding) and count >= expected:
                break
            if round_number >= BARRIERS:
                await asyncio.sleep(PAUSE_S)  # another node may be asked
        await self._follow_topics()
        return frames

    async def leave(self) -> None:
        for line in self._lines.values():
            line.close()
        self._lines.clear()

    # Nodes -----------------------------------------------------------------------------------------------------------

    def _advance(self, end_ms: int) -> bool:
        """Advance all clocks to the next deadline of a node and fire; return False, at the end, if there is none."""
        due = [time for time in self._times if time.due_ms is not None and time.due_ms <= end_ms]
        first = min(due, key=lambda time: time.due_ms or 0, default=None)
        now_ms = end_ms if first is None else max(first.now_ms, first.due_ms or 0)
        for time in self._times:
            time.now_ms = now_ms
        return first is not None and first.advance(now_ms)

    async def _pass_barriers(self) -> None:
        for (connection, transport), request in self._barriers:
            connection.data_received(request)
            await transport.has_written.wait()
            transport.take()

    def _barrier(self, index: int) -> bytes:
        """A commit of a group of this node. Its response follows those to all earlier commits of the node."""
        name = next(name for name in numbered("barrier") if self.node_of(name) == index)
        return frame("offset_commit", 9, **commit_values(name))

    async def _follow_topics(self) -> None:
        """Until all nodes have the topics that the first one has."""
        async with asyncio.timeout(WAIT_S):
            while len({topics_of(node) for node in self._nodes}) > 1:
                await asyncio.sleep(PAUSE_S)

    def _take_frames(self, frames: Frames) -> None:
        for name, line in list(self._lines.items()):
            received = line.take()
            if received:
                frames.setdefault(name, []).extend(received)
                if received[-1] is None:
                    self._lines.pop(name).close()

    def node_of(self, key: str, *, is_transactional_id: bool = False) -> int:
        """The number of the node that coordinates this group or transactional id."""
        broker = self._nodes[0].services.cluster.find_coordinator(
            key, PLAINTEXT, is_transactional_id=is_transactional_id
        )
        assert broker is not None
        ids = [node.services.cluster.node_id for node in self._nodes]
        return ids.index(broker.node_id)

    def _target(self, payload: bytes) -> int:
        api = API_NAMES[int.from_bytes(payload[:2], "big")]
        request = decode_request(api, payload)
        if api in ("init_producer_id", "add_offsets_to_txn", "end_txn"):
            return self.node_of(str(request.transactional_id), is_transactional_id=True)
        if api == "list_groups":
            return self._home
        targets = {self.node_of(group) for group in groups_of(request)}
        assert len(targets) <= 1, "the groups of a request are on several nodes"
        return targets.pop() if targets else 0

    def choose_group(self, script: Script) -> str:
        """A name for ``$group``, with which the script's groups are on one node and a transactional id on another."""
        texts = sorted(set(group_texts(script)))
        for _ in itertools.count():
            name = f"g-{uuid4().hex}"
            names = Names(name, {})
            nodes = {self.node_of(names.to_request(text)) for text in texts}
            if len(nodes) == 1 and self.node_of(f"{name}-tx", is_transactional_id=True) not in nodes:
                self._home = nodes.pop()
                return name
        raise AssertionError


def numbered(name: str) -> Iterator[str]:
    return (f"{name}-{number}" for number in itertools.count())


@cache
def _reader(entity_type: Any) -> Any:
    return entity_reader(entity_type)


def decode_request(api: str, payload: bytes) -> Any:
    request_type = message_type(api, int.from_bytes(payload[2:4], "big"), "request")
    _header, start = _reader(request_type.__header_schema__)(payload, 0)
    return _reader(request_type)(payload, start)[0]


def groups_of(request: Any) -> list[str]:
    """The names of a request's groups."""
    for field in GROUP_FIELDS:
        value = getattr(request, field, None)
        if isinstance(value, str):
            return [value]
        if value is not None:
            return [group if isinstance(group, str) else group.group_id for group in value]
    return []


def group_texts(script: Script) -> Iterator[str]:
    """The groups of a script that must be on one node: its own, and others that a request has beside them."""
    yield "$group"
    for step in script:
        if step[0] in (WAIT, DISCONNECT):
            continue
        for field in GROUP_FIELDS:
            value = step[3].get(field) or []
            groups = [value] if isinstance(value, str) else value
            texts = [group if isinstance(group, str) else group["group_id"] for group in groups]
            yield from (text for text in texts if text.startswith("$group") or len(texts) > 1)


def topics_of(node: Node) -> frozenset[tuple[str, UUID]]:
    return frozenset((name, topic_id(node, name)) for name in node.topics.names())


@asynccontextmanager
async def open_cluster(folder: Path, settings: Mapping[str, Any]) -> AsyncIterator[ClusterServer]:
    """Start three nodes that share the partitions; stop them at the end."""
    memory = Memory()
    times = [ScriptTime() for _ in range(NODES)]
    async with AsyncExitStack() as nodes_stack:
        nodes = []
        with (
            patch("callboard.runtime.cluster.session_environment.CALM_TTLS", CALM_TTLS),
            patch("callboard.runtime.cluster.session.LOOKS_PER_TTL", LOOKS_PER_TTL),
        ):
            for number, time in enumerate(times, 1):
                node = await _open_node(
                    folder / f"n{number}", f"n{number}", Settings(**{**settings, **PARTITION_SETTINGS}), memory, time
                )
                nodes_stack.push_async_callback(node.stop)
                nodes.append(node)
            async with asyncio.timeout(WAIT_S):
                while not _is_balanced(nodes) or any(TOPICS.keys() - set(node.topics.names()) for node in nodes):
                    await asyncio.sleep(PAUSE_S)
        for node in nodes:
            for files in (node.topics.files, node.configs):
                files.run_on(InlineFileWork())
        yield ClusterServer(nodes, times)


async def _open_node(folder: Path, name: str, settings: Settings, memory: Memory, time: ScriptTime) -> Node:
    listening = socket.create_server(("127.0.0.1", 0))
    cluster = ClusterConnection(
        MemoryStore(memory),
        name,
        {PLAINTEXT: Address(*listening.getsockname()[:2])},
        COUNTS,
        max_message_bytes=settings.message_max_bytes,
        on_failed=_fail,
        environment=SessionEnvironment(ttl_s=TTL_S),
    )
    options = Options(data=folder, sync="none", topics=tuple(TOPICS.items()))
    environment = Environment(clock=time, cluster=cluster, store=lambda _folder: (cluster.log, cluster.ownership))
    with (
        patch.object(LoopDispatcher, "new_alarm", lambda _dispatcher, _clock: time),
        patch("callboard.runtime.node.actors.BackgroundThread", InlineWork),  # so results belong to their step
    ):
        return await Node.open(settings, options, environment, {PLAINTEXT: listening})


def _fail(error: Exception) -> None:
    raise AssertionError(error)


def _is_balanced(nodes: Sequence[Node]) -> bool:
    """Each partition is loaded by one node, all nodes know which, and each has its part of each topic: none moves."""
    loaded = [_loaded_partitions(node) for node in nodes]
    known = [_known_owners(node) for node in nodes]
    is_known = known.count(known[0]) == len(nodes)
    return (
        is_known
        and all(list(map(sum, topics)) == PARTS for topics in loaded)
        and all(sum(column) == 1 for topic in zip(*loaded, strict=True) for column in zip(*topic, strict=True))
    )


def _loaded_partitions(node: Node) -> list[list[bool]]:
    """By topic."""
    topics = (node.groups.partitions, node.actors.transaction_table.partitions)
    return [[partition.is_active for partition in partitions] for partitions in topics]


def _known_owners(node: Node) -> list[int]:
    return [node.services.cluster.leader(OFFSETS_TOPIC, number).node_id for number in range(COUNTS.offsets)]
