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
from callboard.runtime.cluster.session import CALM_TTLS, NodeIdentity
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.log.partition_counts import PartitionCounts
from callboard.runtime.settings.address import Address

from .cluster_server_helpers import ClusterServer
from .memory_store import Memory, MemoryStore
from .probe import TOPIC

COUNTS = PartitionCounts(2, 1)
TTL_S = 100.0
DEADLINE_S = 60.0


class Owner:
    """``OwnershipListener`` that loads nothing."""

    def gained(self, epochs: Mapping[int, int]) -> None: ...

    def lost(self, partitions: Collection[int]) -> None: ...

    def fenced(self) -> None: ...


class CalmTime:
    """``is_over`` ends the time after which partitions move to a node that has joined."""

    def __init__(self) -> None:
        self.is_over = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        if seconds == TTL_S * CALM_TTLS:
            await self.is_over.wait()
        else:
            await asyncio.sleep(seconds)


def start_node(memory: Memory, name: str, calm: CalmTime) -> ClusterNode:
    environment = SessionEnvironment(ttl_s=TTL_S, sleep=calm.sleep)
    identity = NodeIdentity(name, {"": Endpoint(name, 9092)})
    node = ClusterNode(MemoryStore(memory), environment, identity, COUNTS, lambda error: None)
    node.start(Owner())
    return node


def test_node_that_joins_others_waits_until_they_know_it() -> None:
    async def run() -> None:
        memory, calm = Memory(), CalmTime()
        first = start_node(memory, "a", calm)
        await first.wait_until_listed()
        second = start_node(memory, "b", calm)
        waiting = asyncio.create_task(second.wait_until_listed())
        await second.joined.wait()
        for _ in range(100):
            await asyncio.sleep(0)
        assert not waiting.done()
        calm.is_over.set()
        await waiting
        first.stop()
        second.stop()

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))


def test_node_that_was_restarted_does_not_wait() -> None:
    """The others have told clients of it all the time."""

    async def run() -> None:
        memory, calm = Memory(), CalmTime()
        nodes = [start_node(memory, name, calm) for name in "ab"]
        for node in nodes:
            await node.joined.wait()
        nodes[1].stop()
        restarted = start_node(memory, "b", calm)
        await restarted.wait_until_listed()
        nodes[0].stop()
        restarted.stop()

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
