"""Transactions whose coordinator and whose groups are on different nodes, with aiokafka."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from .cluster_server_helpers import ClusterServer, cluster_of
from .probe import TOPIC

GROUPS = tuple(f"group-{number}" for number in range(6))
IDS = tuple(f"id-{number}" for number in range(6))
TOPICS = tuple(f"topic-{number}" for number in range(6))
TIMEOUT_S = 60.0


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[ClusterServer]]:
    store = tmp_path / "shared"
    store.mkdir()
    with cluster_of(3, tmp_path, f"file://{store}") as servers:
        yield servers


def bootstrap(servers: Sequence[ClusterServer]) -> list[str]:
    return [f"{host}:{port}" for host, port in (server.address for server in servers)]


@asynccontextmanager
async def transactional_producer(
    servers: Sequence[ClusterServer], transactional_id: str
) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap(servers), transactional_id=transactional_id, retry_backoff_ms=20
    )
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def send_offset(producer: AIOKafkaProducer, group: str, offset: int) -> None:
    await producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): offset}, group)


async def run_transactions(producer: AIOKafkaProducer, offset: int) -> None:
    """One for each group: aiokafka adds only one group to a transaction."""
    for group in GROUPS:
        async with asyncio.timeout(TIMEOUT_S), producer.transaction():
            await send_offset(producer, group, offset)


def committed(servers: Sequence[ClusterServer], group: str) -> int:
    """The offset of a group, as soon as no transaction is open: the markers follow the decision."""
    admin = AdminClient({"bootstrap.servers": ",".join(bootstrap(servers))})
    request = ConsumerGroupTopicPartitions(group, [Position(TOPIC, 0)])
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        futures = admin.list_consumer_group_offsets([request], require_stable=True, request_timeout=TIMEOUT_S)
        [answer] = futures.values()
        [position] = answer.result(TIMEOUT_S).topic_partitions
        if position.error is None:
            return int(position.offset)
        assert position.error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT
        time.sleep(0.02)
    raise AssertionError(f"{group} has offsets of an open transaction for more than {TIMEOUT_S:g} s")


async def all_committed(servers: Sequence[ClusterServer]) -> list[int]:
    return [await asyncio.to_thread(committed, servers, group) for group in GROUPS]


def test_offsets_of_groups_on_all_nodes_are_committed_and_aborted(servers: list[ClusterServer]) -> None:
    async def run() -> None:
        for number, transactional_id in enumerate(IDS):
            async with transactional_producer(servers, transactional_id) as producer:
                await run_transactions(producer, 100 + number)
                assert await all_committed(servers) == [100 + number] * len(GROUPS)
                for group in GROUPS:
                    await producer.begin_transaction()
                    await send_offset(producer, group, 999)
                    await producer.abort_transaction()
                assert await all_committed(servers) == [100 + number] * len(GROUPS)

    asyncio.run(run())


async def run_after_death(servers: Sequence[ClusterServer], transactional_id: str, group: str) -> None:
    """An open transaction is aborted after the death of a node, and others are committed."""
    async with transactional_producer(servers, transactional_id) as producer:
        await producer.begin_transaction()
        await send_offset(producer, group, 999)
        servers[0].send(signal.SIGKILL)
        async with asyncio.timeout(TIMEOUT_S):
            await producer.abort_transaction()
        await run_transactions(producer, 1000)


@pytest.mark.parametrize(("transactional_id", "group"), [("id-0", "group-0"), ("id-2", "group-5")])
def test_transactions_go_on_after_the_death_of_a_node(
    servers: list[ClusterServer], transactional_id: str, group: str
) -> None:
    asyncio.run(run_after_death(servers, transactional_id, group))
    assert asyncio.run(all_committed(servers[1:])) == [1000] * len(GROUPS)


def create_topics(servers: Sequence[ClusterServer]) -> None:
    admin = AdminClient({"bootstrap.servers": ",".join(bootstrap(servers))})
    for future in admin.create_topics([NewTopic(topic, 1, 1) for topic in TOPICS]).values():
        future.result(TIMEOUT_S)
    deadline_s = time.monotonic() + TIMEOUT_S
    for server in servers:
        asked = AdminClient({"bootstrap.servers": ",".join(bootstrap([server]))})
        while not set(TOPICS) <= asked.list_topics(timeout=TIMEOUT_S).topics.keys():
            assert time.monotonic() < deadline_s


def read_committed(servers: Sequence[ClusterServer], last: bytes) -> dict[str, list[bytes]]:
    """The values of each topic up to ``last``, as a consumer that reads only committed records gets them."""
    consumer = Consumer(
        {"bootstrap.servers": ",".join(bootstrap(servers)), "group.id": "reader", "isolation.level": "read_committed"}
    )
    consumer.assign([Position(topic, 0, 0) for topic in TOPICS])
    values: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
    deadline_s = time.monotonic() + TIMEOUT_S
    while not all(last in topic_values for topic_values in values.values()):
        assert time.monotonic() < deadline_s, values
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            values[message.topic() or ""].append(message.value() or b"")
    consumer.close()
    return values


async def produce_transaction(producer: AIOKafkaProducer, value: bytes) -> None:
    """One batch to each topic."""
    await producer.begin_transaction()
    async with asyncio.timeout(TIMEOUT_S):
        for topic in TOPICS:
            await producer.send_and_wait(topic, value, partition=0)


def test_records_in_topics_of_all_nodes_are_committed_and_aborted(servers: list[ClusterServer]) -> None:
    """The coordinator of each transaction leads only some of the topics."""

    async def run() -> None:
        for number, transactional_id in enumerate(IDS[:3]):
            async with transactional_producer(servers, transactional_id) as producer:
                await produce_transaction(producer, b"committed %d" % number)
                await producer.commit_transaction()
                await produce_transaction(producer, b"aborted %d" % number)
                await producer.abort_transaction()
        async with transactional_producer(servers, IDS[0]) as producer:
            await produce_transaction(producer, b"last")
            await producer.commit_transaction()

    create_topics(servers)
    asyncio.run(run())
    expected = [b"committed 0", b"committed 1", b"committed 2", b"last"]
    assert read_committed(servers, b"last") == dict.fromkeys(TOPICS, expected)
