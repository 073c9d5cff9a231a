"""A node in this process that loads its partitions when the test says so."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from peers.wire import Wire

from callboard.runtime.cluster.connection import ClusterConnection
from callboard.runtime.cluster.keys import MANIFESTS
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.log.partition_counts import PartitionCounts
from callboard.runtime.node.environment import Environment
from callboard.runtime.node.node import Node
from callboard.runtime.settings.address import Address
from callboard.runtime.settings.listeners import PLAINTEXT
from callboard.runtime.settings.table import Options, Settings

from .memory_store import Memory, MemoryStore
from .probe import TOPIC

SETTINGS = Settings(offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1)
COUNTS = PartitionCounts(1, 1)
DEADLINE_S = 60.0
ANY_GROUP = "any"  # all are in the same partition


class SlowStore(MemoryStore):
    """Partitions cannot be loaded while the gate is closed: what is read of them does not arrive."""

    def __init__(self) -> None:
        super().__init__(Memory())
        self.gate = asyncio.Event()

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        if any(key.startswith(MANIFESTS) for key in keys):
            await self.gate.wait()
        return await super().get(keys)


@asynccontextmanager
async def loading_node(folder: Path) -> AsyncIterator[tuple[Address, asyncio.Event]]:
    """A node that has joined and loads its partitions when the event is set."""
    store, listener = SlowStore(), socket.create_server(("127.0.0.1", 0))
    address = Address(*listener.getsockname())
    cluster = ClusterConnection(
        store,
        "a",
        {PLAINTEXT: address},
        COUNTS,
        max_message_bytes=SETTINGS.message_max_bytes,
        on_failed=lambda reason: None,
        environment=SessionEnvironment(ttl_s=DEADLINE_S),
    )
    options = Options(data=folder, topics=((TOPIC, 1),))
    node = await Node.open(SETTINGS, options, Environment(cluster=cluster), {PLAINTEXT: listener})
    try:
        async with asyncio.timeout(DEADLINE_S):
            await until(lambda: asyncio.to_thread(knows_itself, address))
            while node.topics.get(TOPIC) is None:
                await asyncio.sleep(0.01)
            yield address, store.gate
    finally:
        store.gate.set()
        await node.stop()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():
        await asyncio.sleep(0.01)


def knows_itself(address: Address) -> bool:
    """It owns the partition of all groups, by its register."""
    with Wire(*address) as wire:
        found = wire.ask("find_coordinator", 2, key=ANY_GROUP, key_type=0)
    return (found["error_code"], found["port"]) == ("NONE", address.port)
