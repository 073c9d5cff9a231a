"""A server with several listeners: clients get the addresses of the one that they came by, as from Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position
from harness import Client, async_test
from program_helpers import DEADLINE_S, PROGRAM, Server, serving

MAP = ("--listener-security-protocol-map", "EXTERNAL:PLAINTEXT,HIDDEN:PLAINTEXT")
TWO = ("--listen", "EXTERNAL://127.0.0.1:0", *MAP)
TOPIC = ("--topic", "t:2")
METADATA_FLAGS = {
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


def ports(server: Server) -> dict[str, int]:
    """The ports by listener, from "PLAINTEXT://127.0.0.1:9092,EXTERNAL://127.0.0.1:9094"."""
    addresses = (text.split("://127.0.0.1:") for text in server.ready.split(","))
    return {name: int(port) for name, port in addresses}


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Client]:
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    try:
        yield client
    finally:
        await client.close()


async def shown_addresses(port: int) -> set[tuple[Any, Any]]:
    """The addresses in all responses that have some."""
    async with connected(port) as client:
        metadata: Any = await client.ask("metadata", 9, topics=[], **METADATA_FLAGS)
        cluster: Any = await client.ask("describe_cluster", 1, include_cluster_authorized_operations=False)
        found: Any = [
            coordinator
            for key_type in (0, 1)
            for coordinator in (await client.ask("find_coordinator", 4, key_type=key_type, coordinator_keys=["g"]))[
                "coordinators"
            ]
        ]
    assert metadata["controller_id"] == cluster["controller_id"] == 1
    brokers = [*metadata["brokers"], *cluster["brokers"], *found]
    assert len(brokers) == 4
    return {(broker["host"], broker["port"]) for broker in brokers}


def test_clients_of_each_listener_get_its_own_port(tmp_path: Path) -> None:
    with serving(tmp_path, *TWO, *TOPIC, program=PROGRAM) as server:
        by_name = ports(server)
        assert list(by_name) == ["PLAINTEXT", "EXTERNAL"]
        assert len(set(by_name.values())) == 2
        for port in by_name.values():
            assert asyncio.run(shown_addresses(port)) == {("127.0.0.1", port)}


def test_clients_of_each_listener_get_its_advertised_address(tmp_path: Path) -> None:
    advertised = ("--advertised", "PLAINTEXT://inside.example:9092,EXTERNAL://outside.example:19092")
    with serving(tmp_path, *TWO, *TOPIC, *advertised, program=PROGRAM) as server:
        by_name = ports(server)
        assert asyncio.run(shown_addresses(by_name["PLAINTEXT"])) == {("inside.example", 9092)}
        assert asyncio.run(shown_addresses(by_name["EXTERNAL"])) == {("outside.example", 19092)}


def test_groups_are_the_same_behind_all_listeners(tmp_path: Path) -> None:
    with serving(tmp_path, *TWO, *TOPIC, program=PROGRAM) as server:
        by_name = ports(server)
        for offset, (port, other_port) in enumerate([tuple(by_name.values()), tuple(reversed(by_name.values()))]):
            consumers = [
                Consumer({"bootstrap.servers": f"127.0.0.1:{each}", "group.id": "g", "enable.auto.commit": False})
                for each in (port, other_port)
            ]
            consumers[0].commit(offsets=[Position("t", 0, offset)], asynchronous=False)
            [committed] = consumers[1].committed([Position("t", 0)], DEADLINE_S)
            assert committed.offset == offset
            for consumer in consumers:
                consumer.close()


@pytest.mark.parametrize(("version", "error"), [(5, "LEADER_NOT_AVAILABLE"), (6, "LISTENER_NOT_FOUND")])
def test_clients_of_a_listener_that_is_not_advertised_get_no_address(tmp_path: Path, version: int, error: str) -> None:
    """Compared with Kafka 4.3.1."""

    @async_test
    async def check(port: int) -> None:
        async with connected(port) as client:
            metadata: Any = await client.ask("metadata", version, topics=[{"name": "t"}], **METADATA_FLAGS)
            assert (metadata["brokers"], [topic["error_code"] for topic in metadata["topics"]]) == ([], ["NONE"])
            for partition in metadata["topics"][0]["partitions"]:
                assert (partition["error_code"], partition["leader_id"]) == (error, -1)
                nodes = partition["replica_nodes"], partition["isr_nodes"], partition["offline_replicas"]
                assert nodes == ([1], [1], [1])
            cluster: Any = await client.ask("describe_cluster", 1, include_cluster_authorized_operations=False)
            assert (metadata["controller_id"], cluster["controller_id"], cluster["brokers"]) == (1, -1, [])
            found: Any = await client.ask("find_coordinator", 4, key_type=0, coordinator_keys=["g"])
            assert [each["error_code"] for each in found["coordinators"]] == ["COORDINATOR_NOT_AVAILABLE"]

    hidden = ("--listen", "HIDDEN://127.0.0.1:0", "--advertised", "inside.example:9092", *MAP)
    with serving(tmp_path, *hidden, *TOPIC, program=PROGRAM) as server:
        check(ports(server)["HIDDEN"])
