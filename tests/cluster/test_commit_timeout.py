"""A node whose store does not answer: waiting commits are answered after ``offsets_commit_timeout_ms``."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

from callboard.runtime.cluster.connection import ClusterConnection
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.log.partition_counts import PartitionCounts
from callboard.runtime.node.environment import Environment
from callboard.runtime.node.node import Node
from callboard.runtime.settings.address import Address
from callboard.runtime.settings.listeners import PLAINTEXT
from callboard.runtime.settings.table import Options, Settings

from .memory_store import Memory, MemoryStore
from .probe import OFFSET_COMMIT, OFFSET_FETCH, Channel, connect, text

COUNTS = PartitionCounts(1, 1)
SETTINGS = Settings(offsets_commit_timeout_ms=300, offsets_topic_num_partitions=1)
TOPIC, GROUP = "t", "g"
COORDINATOR_NOT_AVAILABLE = 15
DEADLINE_S = 60.0


class GatedStore(MemoryStore):
    """Its creates wait while the gate is closed."""

    def __init__(self) -> None:
        super().__init__(Memory())
        self.gate = asyncio.Event()
        self.gate.set()

    async def create(self, key: str, value: bytes) -> bool:
        await self.gate.wait()
        return await super().create(key, value)


async def commit(channel: Channel, offset: int) -> int:
    """The error code."""
    body = text(GROUP) + struct.pack(">i", -1) + text("") + struct.pack(">hi", -1, 1) + text(TOPIC)
    body += struct.pack(">iiqi", 1, 0, offset, -1) + text("")
    (error,) = struct.unpack(">h", (await channel.ask(OFFSET_COMMIT, 7, body))[-2:])
    return int(error)


async def fetch(channel: Channel) -> int:
    body = text(GROUP) + struct.pack(">i", 1) + text(TOPIC) + struct.pack(">ii", 1, 0)
    answer = await channel.ask(OFFSET_FETCH, 5, body)
    return int(struct.unpack_from(">q", answer, 4 + 4 + 2 + len(TOPIC) + 4 + 4)[0])


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await condition():
            await asyncio.sleep(0.01)


def test_commit_that_waits_too_long_for_the_store_is_refused_and_may_take_effect_later(tmp_path: Path) -> None:
    async def run() -> None:
        store = GatedStore()
        listener = socket.create_server(("127.0.0.1", 0))
        address = Address(*listener.getsockname())
        cluster = ClusterConnection(
            store,
            "a",
            {PLAINTEXT: address},
            PartitionCounts(1, SETTINGS.transaction_state_log_num_partitions),
            max_message_bytes=SETTINGS.message_max_bytes,
            on_failed=lambda reason: None,
            environment=SessionEnvironment(ttl_s=DEADLINE_S),
        )
        options = Options(data=tmp_path, topics=((TOPIC, 1),))
        node = await Node.open(SETTINGS, options, Environment(cluster=cluster), {PLAINTEXT: listener})
        channel = await connect((address.host, address.port))
        try:
            async with asyncio.timeout(DEADLINE_S):

                async def is_served() -> bool:
                    return await commit(channel, 1) == 0

                await until(is_served)
                store.gate.clear()
                assert await commit(channel, 2) == COORDINATOR_NOT_AVAILABLE
                assert await commit(channel, 3) == COORDINATOR_NOT_AVAILABLE, "the round before is still in flight"
                assert await fetch(channel) == 1, "what is not durable is not read"
                store.gate.set()

                async def is_written() -> bool:
                    return await fetch(channel) == 3

                await until(is_written)
                assert await commit(channel, 4) == 0
        finally:
            channel.close()
            store.gate.set()
            await node.stop()

    asyncio.run(run())
