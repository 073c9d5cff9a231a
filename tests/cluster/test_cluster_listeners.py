"""Nodes with several listeners: clients get the addresses of all nodes for the listener that they came by."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from harness import Client
from program_helpers import PROGRAM, serving
from tls_helpers import TlsFolder

from .cluster_server_helpers import LISTENER, ClusterServer, cluster_of, wait_until_balanced
from .probe import TOPIC

TIMEOUT_S = 60.0
GROUPS = tuple(f"group-{number}" for number in range(8))
EXTERNAL = (
    *("--listen", "EXTERNAL://127.0.0.1:0", "--listener-security-protocol-map", "EXTERNAL:PLAINTEXT"),
    *("--inter-broker-listener-name", "EXTERNAL"),
)


def store(folder: Path) -> str:
    (folder / "shared").mkdir()
    return (folder / "shared").as_uri()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Client]:
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    try:
        yield client
    finally:
        await client.close()


async def metadata(client: Client, *topics: str) -> Any:
    flags = ("allow_auto_topic_creation", "include_cluster_authorized_operations")
    requested = [{"name": topic} for topic in topics]
    values = dict.fromkeys((*flags, "include_topic_authorized_operations"), False)
    return await client.ask("metadata", 9, topics=requested, **values)


async def coordinators(client: Client) -> list[Any]:
    """Those of the groups, or of their errors."""
    response: Any = await client.ask("find_coordinator", 4, key_type=0, coordinator_keys=list(GROUPS))
    return [each["port"] if each["error_code"] == "NONE" else each["error_code"] for each in response["coordinators"]]


async def check_listener(ports: set[int]) -> None:
    """Each node answers with the ports of all nodes for one listener."""
    for port in ports:
        async with connected(port) as client:
            assert {broker["port"] for broker in (await metadata(client))["brokers"]} == ports
            assert set(await coordinators(client)) == ports
            cluster: Any = await client.ask("describe_cluster", 1, include_cluster_authorized_operations=False)
            assert {broker["port"] for broker in cluster["brokers"]} == ports


async def commit_in_transactions(server: ClusterServer, listener: str) -> None:
    """Commit offsets of all groups. Their coordinators are not all on the nodes of those of the transactions."""
    for transactional_id in ("id-0", "id-1", "id-2"):
        producer = AIOKafkaProducer(
            bootstrap_servers=f"127.0.0.1:{server.ports[listener]}",
            transactional_id=transactional_id,
            retry_backoff_ms=20,
        )
        await producer.start()
        try:
            for group in GROUPS:
                async with producer.transaction():
                    await producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): 1}, group)
        finally:
            await producer.stop()


def test_clients_of_each_listener_get_the_addresses_of_all_nodes_for_it(tmp_path: Path) -> None:
    async def run(servers: list[ClusterServer]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            for listener in ("PLAINTEXT", "EXTERNAL"):
                await check_listener({server.ports[listener] for server in servers})
                await commit_in_transactions(servers[0], listener)

    with cluster_of(2, tmp_path, store(tmp_path), *EXTERNAL) as servers:
        asyncio.run(run(servers))


def test_node_without_a_listener_is_left_out_for_its_clients_and_for_nodes(tmp_path: Path) -> None:
    """As in Kafka: its partitions have LISTENER_NOT_FOUND, and its groups no coordinator."""
    problem = "node n2 advertises no listener EXTERNAL, by which nodes connect to each other"

    async def run(server: ClusterServer) -> None:
        port = server.ports["EXTERNAL"]
        async with asyncio.timeout(TIMEOUT_S), connected(port) as client:
            answer = await metadata(client, "__consumer_offsets")
            assert [broker["port"] for broker in answer["brokers"]] == [port]
            partitions = answer["topics"][0]["partitions"]
            assert {(each["leader_id"], each["error_code"]) for each in partitions} == {
                (1, "NONE"),
                (-1, "LISTENER_NOT_FOUND"),
            }
            assert set(await coordinators(client)) == {port, "COORDINATOR_NOT_AVAILABLE"}
            committing = asyncio.create_task(commit_in_transactions(server, "PLAINTEXT"))
            await asyncio.to_thread(server.wait_for_log, problem)
            while not committing.done():  # first the transaction waits to be aborted, then the producer to be closed
                committing.cancel()
                await asyncio.sleep(0.1)

    url = store(tmp_path)
    with cluster_of(1, tmp_path, url, *EXTERNAL) as [server]:
        other = ClusterServer(tmp_path, url, "n2")
        try:
            other.start()
            wait_until_balanced([server, other])
            asyncio.run(run(server))
        finally:
            other.end()


def test_each_worker_has_a_port_for_each_listener(tmp_path: Path) -> None:
    async def run(ports: dict[str, int]) -> dict[str, set[int]]:
        shown: dict[str, set[int]] = {}
        async with asyncio.timeout(TIMEOUT_S):
            for listener, port in ports.items():
                async with connected(port) as client:
                    while len(shown.get(listener, ())) < 2:
                        shown[listener] = {broker["port"] for broker in (await metadata(client))["brokers"]}
                        await asyncio.sleep(0.02)
        return shown

    with serving(tmp_path, *EXTERNAL, "--workers", "2", program=PROGRAM) as server:
        ports = {name: int(port) for name, port in LISTENER.findall(server.ready)}
        assert list(ports) == ["PLAINTEXT", "EXTERNAL"]
        shown = asyncio.run(run(ports))
        assert len({*ports.values(), *shown["PLAINTEXT"], *shown["EXTERNAL"]}) == 6
        for ports_of_listener in shown.values():
            asyncio.run(wait_for_brokers(ports_of_listener))
        assert server.end(signal.SIGTERM) == 0


async def wait_for_brokers(ports: set[int]) -> None:
    """Until each worker knows all workers."""
    async with asyncio.timeout(TIMEOUT_S):
        for port in ports:
            async with connected(port) as client:
                while {broker["port"] for broker in (await metadata(client))["brokers"]} != ports:
                    await asyncio.sleep(0.02)


def test_nodes_connect_to_each_other_by_mutual_tls(tmp_path: Path) -> None:
    """Each shows its own certificate, and markers of transactions reach partitions of the other one.

    One node is killed and starts again meanwhile.
    """
    files = TlsFolder(tmp_path)
    nodes = ("--listener-security-protocol-map", "NODES:SSL", "--inter-broker-listener-name", "NODES")
    settings = files.settings(ssl_client_auth="required").items()
    tls = (part for name, value in settings for part in ("--set", f"listener_name_nodes_{name}={value}"))
    options = ("--listen", "NODES://127.0.0.1:0", *nodes, *tls)
    with cluster_of(2, tmp_path, store(tmp_path), *options) as servers:
        asyncio.run(commit_in_transactions(servers[0], "PLAINTEXT"))
        servers[1].send(signal.SIGKILL)
        servers[1].start(*options)
        wait_until_balanced(servers)
        asyncio.run(commit_in_transactions(servers[1], "PLAINTEXT"))
