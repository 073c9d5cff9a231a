"""Nodes of a cluster on an event loop in a thread, so that a test can call commands which have a loop of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from callboard.runtime.cluster.engines import open_store
from callboard.runtime.cluster.register import Register, planned_owners
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.cluster.store import Store
from callboard.runtime.log.partition_counts import PartitionCounts

from .simulated_node import SimulatedNode

COUNTS = PartitionCounts(6, 2)
TTL_S = 1.5
WAIT_S = 60.0

T = TypeVar("T")


class NodeThread:
    """``nodes`` by name. They keep a number per partition and key."""

    def __init__(self, url: str) -> None:
        self.nodes: dict[str, SimulatedNode] = {}
        self._url = url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._stores: list[Store] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    def start(self, name: str, ttl_s: float = TTL_S) -> SimulatedNode:
        """A node that has joined."""
        return self.call(self._start(name, ttl_s))

    async def _start(self, name: str, ttl_s: float) -> SimulatedNode:
        store = open_store(self._url, name)
        environment = SessionEnvironment(
            ttl_s=ttl_s, checkpoint_interval_s=0.2, garbage_interval_s=0.5, continuity_interval_s=0.2
        )
        node = SimulatedNode(name, store, environment, COUNTS, lambda session, partition, epoch: None)
        self._stores.append(store)
        self._tasks[name] = asyncio.create_task(node.run())
        self.nodes[name] = node
        await self._until(lambda: self._register_of(node) is not None)
        return node

    def wait(self, condition: Callable[[], bool]) -> None:
        self.call(self._until(condition))

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                await asyncio.sleep(0.01)

    @staticmethod
    def _register_of(node: SimulatedNode) -> Register | None:
        """If the node has joined."""
        session = node.session
        register = None if session is None else session.register.current
        return register if register is not None and session is not None and session.name in register.nodes else None

    def wait_until_balanced(self) -> None:
        """All partitions are served, each node has its part, and all know it."""
        partitions = sum(COUNTS)

        def is_balanced() -> bool:
            served = [len(node.values) for node in self.nodes.values()]
            return sum(served) == partitions and min(served) > 0 and all(map(is_as_planned, self.nodes.values()))

        self.wait(is_balanced)

    def commit(self, partition: int, key: bytes, value: int) -> None:
        """Until the owner acknowledges it."""

        async def commit() -> None:
            async with asyncio.timeout(WAIT_S):
                while not any([await node.commit(partition, key, value) for node in self.nodes.values()]):
                    await asyncio.sleep(0.01)

        self.call(commit())

    def halt(self, name: str) -> None:
        """Stop a node like a process that was killed."""

        async def halt() -> None:
            session = self.nodes.pop(name).session
            assert session is not None
            self._tasks[name].cancel()
            session.halt()

        self.call(halt())

    def end(self) -> None:
        async def end() -> None:
            for node in self.nodes.values():
                if node.session is not None:
                    node.session.halt()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for store in self._stores:
                await store.close()

        self.call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def node_thread(url: str) -> Iterator[NodeThread]:
    thread = NodeThread(url)
    try:
        yield thread
    finally:
        thread.end()


def is_as_planned(node: SimulatedNode) -> bool:
    """By the newest register that the node has read, no more partitions move."""
    register = None if node.session is None else node.session.register.current
    return register is not None and planned_owners(register) == list(register.owners)
