"""Members and Kafka clients in one group: three libraries, each common assignor, either side as the leader."""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import pytest
from kafka_python_marks import KAFKA_PYTHON

import callboard
from callboard.runtime.embed.thread import ThreadCoordinator
from callboard.runtime.member.blocking import BlockingMember

# kafka-python loads its own resources by a deprecated API.
pytestmark = KAFKA_PYTHON

TOPIC = "jobs"
PARTITIONS = 6
DEADLINE_S = 300.0
POLL_S = 0.05
HEARTBEAT_MS = 200
SESSION_MS = 20_000


class Client(ABC):
    """A consumer of one library, polled by its own thread."""

    def __init__(self, bootstrap: str, group: str, assignor: str) -> None:
        self.assignment: frozenset[int] = frozenset()
        self.error: BaseException | None = None
        self._orders: list[tuple[int, int]] = []
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(bootstrap, group, assignor), daemon=True)
        self._thread.start()

    def commit(self, partition: int, next_offset: int) -> None:
        self._orders.append((partition, next_offset))
        wait_until(lambda: not self._orders, self)

    def close(self) -> None:
        self._is_ending.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def _run(self, *arguments: str) -> None:
        try:
            asyncio.run(self._poll_until_closed(*arguments))
        except BaseException as error:
            self.error = error
            raise

    async def _poll_until_closed(self, bootstrap: str, group: str, assignor: str) -> None:
        await self.open(bootstrap, group, assignor)
        while not self._is_ending.is_set():
            self.assignment = await self.poll()
            if self._orders:
                await self.commit_offset(*self._orders[0])
                self._orders.pop(0)
        await self.end()

    @abstractmethod
    async def open(self, bootstrap: str, group: str, assignor: str) -> None: ...

    @abstractmethod
    async def poll(self) -> frozenset[int]: ...

    @abstractmethod
    async def commit_offset(self, partition: int, next_offset: int) -> None: ...

    @abstractmethod
    async def end(self) -> None: ...


class Confluent(Client):
    assignors = ("range", "roundrobin", "cooperative-sticky")

    async def open(self, bootstrap: str, group: str, assignor: str) -> None:
        from confluent_kafka import Consumer

        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
        settings |= {"partition.assignment.strategy": assignor, "heartbeat.interval.ms": HEARTBEAT_MS}
        settings |= {"session.timeout.ms": SESSION_MS, "auto.offset.reset": "earliest"}
        self._consumer = Consumer(settings)
        self._consumer.subscribe([TOPIC])

    async def poll(self) -> frozenset[int]:
        self._consumer.poll(POLL_S)
        return frozenset(part.partition for part in self._consumer.assignment())

    async def commit_offset(self, partition: int, next_offset: int) -> None:
        from confluent_kafka import TopicPartition

        self._consumer.commit(offsets=[TopicPartition(TOPIC, partition, next_offset)], asynchronous=False)

    async def end(self) -> None:
        self._consumer.close()


class AioKafka(Client):
    assignors = ("range", "roundrobin", "sticky")

    async def open(self, bootstrap: str, group: str, assignor: str) -> None:
        from aiokafka import AIOKafkaConsumer
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        known = (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor)
        self._consumer = AIOKafkaConsumer(
            TOPIC,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=[
                known_assignor for known_assignor in known if known_assignor.name == assignor
            ],
        )
        await self._consumer.start()

    async def poll(self) -> frozenset[int]:
        await self._consumer.getmany(timeout_ms=int(POLL_S * 1000))
        return frozenset(part.partition for part in self._consumer.assignment())

    async def commit_offset(self, partition: int, next_offset: int) -> None:
        from aiokafka import TopicPartition

        await self._consumer.commit({TopicPartition(TOPIC, partition): next_offset})

    async def end(self) -> None:
        await self._consumer.stop()


class KafkaPython(Client):
    assignors = ("range", "roundrobin", "sticky", "cooperative-sticky")

    async def open(self, bootstrap: str, group: str, assignor: str) -> None:
        assignors = "kafka.coordinator.assignors"
        names = {
            "range": (f"{assignors}.range", "RangePartitionAssignor"),
            "roundrobin": (f"{assignors}.roundrobin", "RoundRobinPartitionAssignor"),
            "sticky": (f"{assignors}.sticky.sticky_assignor", "StickyPartitionAssignor"),
            "cooperative-sticky": (f"{assignors}.cooperative_sticky", "CooperativeStickyAssignor"),
        }
        module, name = names[assignor]
        self._consumer = import_module("kafka").KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=[getattr(import_module(module), name)],
        )
        self._consumer.subscribe([TOPIC])
        self._consumer.topics()  # fetch metadata: a leader that assigns without them never completes its next join

    async def poll(self) -> frozenset[int]:
        self._consumer.poll(timeout_ms=int(POLL_S * 1000))
        return frozenset(part.partition for part in self._consumer.assignment())

    async def commit_offset(self, partition: int, next_offset: int) -> None:
        structs = import_module("kafka.structs")
        part, offset = structs.TopicPartition(TOPIC, partition), structs.OffsetAndMetadata(next_offset, "", -1)
        self._consumer.commit({part: offset})

    async def end(self) -> None:
        self._consumer.close()


LIBRARIES: tuple[Any, ...] = (Confluent, AioKafka, KafkaPython)
PAIRS = [
    pytest.param(library, assignor, id=f"{library.__name__}-{assignor}")
    for library in LIBRARIES
    for assignor in library.assignors
]


def wait_until(condition: Callable[[], bool], *clients: Client) -> None:
    until_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < until_s, f"not in time; clients have {[client.assignment for client in clients]}"
        assert [client.error for client in clients if client.error is not None] == []
        time.sleep(0.01)


@pytest.fixture(scope="module")
def coordinator() -> Iterator[ThreadCoordinator]:
    settings: Any = {"group_initial_rebalance_delay_ms": 0, "group_min_session_timeout_ms": 500}
    with callboard.Coordinator.in_thread(listen="127.0.0.1:0", topics={TOPIC: PARTITIONS}, **settings) as coordinator:
        yield coordinator


def make_member(coordinator: ThreadCoordinator, group: str, assignor: str) -> BlockingMember:
    options: dict[str, Any] = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": HEARTBEAT_MS}
    return coordinator.member(group, resources={TOPIC: PARTITIONS}, assignor=assignor, **options)


@contextmanager
def running_client(
    library: type[Client], coordinator: ThreadCoordinator, group: str, assignor: str
) -> Iterator[Client]:
    client = library(coordinator.bootstrap, group, assignor)
    try:
        yield client
    finally:
        client.close()


@pytest.mark.parametrize(("library", "assignor"), PAIRS)
def test_group_led_by_a_member_shares_with_a_kafka_client(
    coordinator: ThreadCoordinator, library: type[Client], assignor: str
) -> None:
    group = f"led-by-us-{library.__name__}-{assignor}"
    with make_member(coordinator, group, assignor) as member:
        first = member.next_assignment(DEADLINE_S)
        assert len(first.shards) == PARTITIONS and member.is_leader
        with running_client(library, coordinator, group, assignor) as client:
            assert_partitions_are_shared(member, client)
            partition = min(client.assignment)
            client.commit(partition, 42)
        wait_until(lambda: len(owned_numbers(member)) == PARTITIONS)
        assignment = latest(member)
        assert assignment.shard(TOPIC, partition).next_offset == 42
        assert member.is_leader


@pytest.mark.parametrize(("library", "assignor"), PAIRS)
def test_group_led_by_a_kafka_client_shares_with_a_member(
    coordinator: ThreadCoordinator, library: type[Client], assignor: str
) -> None:
    group = f"led-by-them-{library.__name__}-{assignor}"
    with running_client(library, coordinator, group, assignor) as client:
        wait_until(lambda: len(client.assignment) == PARTITIONS, client)
        with make_member(coordinator, group, assignor) as member:
            assert_partitions_are_shared(member, client)
            assert not member.is_leader
            shard = latest(member).shards[0]
            shard.commit(7, "seven")
            partition = shard.name
        wait_until(lambda: len(client.assignment) == PARTITIONS, client)
    found = coordinator.offsets(group)[TOPIC, int(partition)]
    assert (found.offset, found.metadata) == (7, "seven")


def owned_numbers(member: BlockingMember) -> frozenset[int]:
    return frozenset(int(shard.name) for shard in member.shards if not shard.is_revoked)


def latest(member: BlockingMember) -> Any:
    """The member's current assignment."""
    while True:
        assignment = member.next_assignment(DEADLINE_S)
        if not assignment.is_over and len(assignment.shards) == len(owned_numbers(member)):
            return assignment


def assert_partitions_are_shared(member: BlockingMember, client: Client) -> None:
    half = PARTITIONS // 2
    wait_until(lambda: len(owned_numbers(member)) == len(client.assignment) == half, client)
    assert owned_numbers(member) | client.assignment == set(range(PARTITIONS))
