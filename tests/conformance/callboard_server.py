"""A Callboard node for scripts: in this process, with its connection code and a clock that only scripts advance.

So the results do not depend on the speed of the machine, and a wait of five minutes takes no time. The end of a step is
exact, too: a commit of another group is written to the log, and its response follows all earlier ones.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

from harness import MemoryTransport, commit_values, frame, framed
from peers.wire import FRAME_SIZE

from callboard.runtime.disk.file_work import InlineFileWork
from callboard.runtime.engine.alarm import Alarm
from callboard.runtime.engine.dispatcher import LoopDispatcher
from callboard.runtime.kafka.connections.connection import Connection
from callboard.runtime.node.environment import Environment
from callboard.runtime.node.node import Node
from callboard.runtime.settings.listeners import PLAINTEXT
from callboard.runtime.settings.table import Options, Settings

from .kafka_server import TOPICS
from .playing import Frames

STEP_MS = 40  # script time of one step, about as long as with a real Kafka
WALL_MS = 1_700_000_000_000
BARRIER = frame("offset_commit", 9, **commit_values("barrier"))
BARRIERS = 2  # a written record may cause another one
BARRIERS_MAX = 50  # before a missing response is an error


class ScriptTime(Alarm):
    """The clock of the node, and the alarm of its timer."""

    def __init__(self) -> None:
        super().__init__(self)
        self.now_ms = 0
        self.due_ms: int | None = None

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms

    def set(self, due_ms: int) -> None:
        self.due_ms = due_ms

    def clear(self) -> None:
        self.due_ms = None

    def advance(self, to_ms: int) -> bool:
        """Advance to the next deadline and fire; return False, at ``to_ms``, if there is none before."""
        if self.due_ms is None or self.due_ms > to_ms:
            self.now_ms = to_ms
            return False
        self.now_ms, self.due_ms = max(self.now_ms, self.due_ms), None
        self.fire()
        return True


class ScriptTransport(MemoryTransport):
    """A transport that collects responses."""

    def __init__(self) -> None:
        super().__init__()
        self.has_written = asyncio.Event()

    def write(self, data: Any) -> None:
        super().write(data)
        self.has_written.set()

    def take(self) -> list[bytes | None]:
        """Return the frames sent since the last call, without sizes."""
        frames: list[bytes | None] = []
        data = bytes(self.written)
        self.written.clear()
        self.has_written.clear()
        while data:
            (size,) = FRAME_SIZE.unpack_from(data)
            frames.append(data[FRAME_SIZE.size : FRAME_SIZE.size + size])
            data = data[FRAME_SIZE.size + size :]
        return frames


class CallboardServer:
    """Connections to one node."""

    def __init__(self, node: Node, time: ScriptTime) -> None:
        self.topics: dict[str, UUID] = {name: topic_id(node, name) for name in TOPICS}
        self._node = node
        self._time = time
        self._lines: dict[str, tuple[Connection, ScriptTransport]] = {}
        self._barrier = self._connect()

    async def open(self, line: str) -> None:
        self._lines[line] = self._connect()

    def send(self, line: str, *payloads: bytes) -> None:
        self._lines[line][0].data_received(b"".join(map(framed, payloads)))

    async def disconnect(self, line: str) -> None:
        self._lines.pop(line)[0].connection_lost(None)

    async def wait(self, ms: int) -> None:
        end_ms = self._time.now_ms + ms
        while self._time.advance(end_ms):
            while self._time.wakes_pending:
                await asyncio.sleep(0)
            await self._pass_barrier()

    async def settle(self, expected: int, outstanding: int) -> Frames:
        """Requests behind each other on one connection are handled one per turn: after each response comes a round."""
        frames: Frames = {}
        for round_number in range(1, BARRIERS_MAX + 1):
            await self._pass_barrier()
            await self.wait(STEP_MS if round_number == 1 else 0)  # the barrier may have set a timer that is due at once
            before = count_frames(frames)
            self._take_frames(frames)
            is_quiet = count_frames(frames) in (before, outstanding)
            if round_number >= BARRIERS and is_quiet and count_frames(frames) >= expected:
                break
        return frames

    def _take_frames(self, frames: Frames) -> None:
        for line, (_, transport) in list(self._lines.items()):
            received = transport.take()
            if transport.is_closed:
                received.append(None)
                del self._lines[line]
            if received:
                frames.setdefault(line, []).extend(received)

    async def leave(self) -> None:
        for connection, _ in self._lines.values():
            connection.connection_lost(None)
        self._lines.clear()

    def _connect(self) -> tuple[Connection, ScriptTransport]:
        connection, transport = self._node.connections.new_connection(), ScriptTransport()
        connection.connection_made(transport)
        return connection, transport

    async def _pass_barrier(self) -> None:
        connection, transport = self._barrier
        connection.data_received(BARRIER)
        await transport.has_written.wait()
        transport.take()


def count_frames(frames: Frames) -> int:
    return sum(map(len, frames.values()))


def topic_id(node: Node, name: str) -> UUID:
    topic = node.topics.get(name)
    assert topic is not None
    return topic.topic_id


@asynccontextmanager
async def open_server(folder: Path, settings: Mapping[str, Any]) -> AsyncIterator[CallboardServer]:
    """Start a node with the topics of scripts; stop it at the end."""
    time = ScriptTime()
    options = Options(data=folder, sync="none", topics=tuple(TOPICS.items()))
    environment = Environment(clock=time, allows_workers=False)  # regular expressions are resolved on the loop
    listening = socket.create_server(("127.0.0.1", 0))
    with patch.object(LoopDispatcher, "new_alarm", lambda _dispatcher, _clock: time):
        node = await Node.open(Settings(**settings), options, environment, {PLAINTEXT: listening})
        for files in (
            node.topics.files,
            node.configs,
            node.data.security,
        ):  # a response that waits for a thread would belong to a later step
            files.run_on(InlineFileWork())
    try:
        yield CallboardServer(node, time)
    finally:
        await node.stop()
