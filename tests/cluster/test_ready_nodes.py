"""A node of a cluster accepts clients when it can answer them, and when the other nodes tell clients of it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Mapping
from pathlib import Path

from real_kafka.kafka import free_ports

from callboard.runtime.client.cluster import Cluster
from callboard.runtime.cluster.cluster_node import ClusterNode
from callboard.runtime.cluster.register import Endpoint
from callboard.runtime.cluster.session import NodeIdentity
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.log.partition_counts import PartitionCounts
from callboard.runtime.settings.address import Address

from .cluster_server_helpers import ClusterServer
from .memory_store import Memory, MemoryStore
from .probe import TOPIC
from .shared_topics_helpers import TopicsNode

COUNTS = PartitionCounts(2, 1)
TTL_S = 100.0
DEADLINE_S = 60.0


class Owner:
    """``OwnershipListener`` that loads nothing."""

    def gained(self, epochs: Mapping[int, int]) -> None: ...

    def lost(self, partitions: Collection[int]) -> None: ...

    def fenced(self) -> None: ...


class Joined:
    """``Followed`` of a node. ``is_new``: what its first session was told."""

    def __init__(self) -> None:
        self.is_new: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def joined(self, _cluster_id: str, *, is_new: bool) -> None:
        if not self.is_new.done():
            self.is_new.set_result(is_new)

    def next_key(self) -> str | None:
        return None

    def notice(self) -> None: ...

    def note_unchanged(self, key: str, asked_s: float) -> None: ...


async def node_that_has_joined(memory: Memory, name: str) -> tuple[ClusterNode, bool]:
    """The node, and whether it is new to others."""
    identity = NodeIdentity(name, {"": Endpoint(name, 9092)})
    node = ClusterNode(MemoryStore(memory), SessionEnvironment(ttl_s=TTL_S), identity, COUNTS, lambda error: None)
    node.followed = followed = Joined()
    node.start(Owner())
    return node, await followed.is_new


def test_node_is_new_unless_it_is_the_first_or_was_there_before() -> None:
    async def run() -> list[bool]:
        memory = Memory()
        first, is_first_new = await node_that_has_joined(memory, "a")
        second, is_second_new = await node_that_has_joined(memory, "b")
        second.stop()
        restarted, is_restarted_new = await node_that_has_joined(memory, "b")
        first.stop()
        restarted.stop()
        return [is_first_new, is_second_new, is_restarted_new]

    assert asyncio.run(asyncio.wait_for(run(), DEADLINE_S)) == [False, True, False]


def test_new_node_is_ready_when_the_others_know_it() -> None:
    async def run() -> None:
        is_calm, sleeps = asyncio.Event(), []

        async def sleep(seconds: float) -> None:
            sleeps.append(seconds)
            await is_calm.wait()

        node = TopicsNode(Memory(), "b", has_joined=False, environment=SessionEnvironment(ttl_s=TTL_S, sleep=sleep))
        node.shared.joined("id", is_new=True)
        while not sleeps:
            await asyncio.sleep(0)
        assert sleeps == [TTL_S / 2] and not node.shared.ready.is_set()
        is_calm.set()
        await node.shared.ready.wait()
        node.shared.halt()

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))


def test_server_that_is_ready_knows_its_cluster_and_its_topics(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    server = ClusterServer(tmp_path, (tmp_path / "shared").as_uri(), "a")
    try:
        server.start()
        with Cluster(Address(*server.address), DEADLINE_S) as cluster:
            metadata = cluster.metadata([TOPIC])
        assert [(broker.node_id, broker.port) for broker in metadata.brokers] == [(1, server.address[1])]
        assert [topic.error_code for topic in metadata.topics] == [0]
    finally:
        server.end()


def test_server_whose_store_is_not_available_is_not_ready_and_can_be_stopped(tmp_path: Path) -> None:
    [port, http_port] = free_ports(2)
    command = [sys.executable, "-m", "callboard", "serve", "--listen", f"127.0.0.1:{port}"]
    command += ["--metrics", f"127.0.0.1:{http_port}", "--data", str(tmp_path / "data")]
    command += ["--cluster", "postgresql://postgres@127.0.0.1:1/none"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for_readiness(http_port, "503 the node has not joined its cluster yet")
            process.send_signal(signal.SIGTERM)
            printed, logged = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode == 0, logged
    assert "ready" not in printed


def wait_for_readiness(port: int, expected: str) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while (answer := readiness(port)) != expected:
        assert time.monotonic() < deadline_s, answer
        time.sleep(0.02)


def readiness(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=DEADLINE_S) as response:
            return f"{response.status} {response.read().decode().strip()}"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode().strip()}"
    except urllib.error.URLError as error:
        return str(error.reason)
