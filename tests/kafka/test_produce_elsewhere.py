"""Produce requests of transactions that another node of the cluster coordinates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import Client, async_test, running_node
from transaction_api_helpers import TX, batch, produce

from callboard.actors.coordinator.partition_states import PartitionEvent
from callboard.actors.errors import ErrorCode
from callboard.actors.records import MarkerRecord
from callboard.actors.transactions.messages import AddPartitions, VerifyPartitions
from callboard.runtime.node.node import Node
from callboard.runtime.topics.topic import Topic

OLD, NEW = 9, 12
PRODUCER = {"producer_id": 77, "producer_epoch": 3}
Question = AddPartitions | VerifyPartitions


class FakePeers:
    """``Peers`` whose answers the test gives."""

    def __init__(self) -> None:
        self.questions: asyncio.Queue[tuple[Question, Callable[[ErrorCode], None]]] = asyncio.Queue()

    def check(self, request: Question, done: Callable[[ErrorCode], None]) -> None:
        self.questions.put_nowait((request, done))

    def write_marker(
        self, marker: MarkerRecord, partitions: Collection[Any], done: Callable[[Mapping[Any, ErrorCode]], None]
    ) -> None:
        raise AssertionError("no transaction is coordinated here")

    def leads(self, topic: str) -> bool:
        return True


class Leader:
    """A node that leads topic t, and coordinates no transaction."""

    def __init__(self, node: Node, client: Client) -> None:
        self.client = client
        self.peers = FakePeers()
        node.services.actors = node.services.actors._replace(peers=self.peers)
        table = node.actors.transaction_table
        number = table.number_of(TX)
        assert table.apply(number, PartitionEvent.UNLOAD, table.partitions[number].epoch)
        topic = node.topics.get("t")
        assert topic is not None
        self.topic: Topic = topic

    def send(self, sequence: int = 0, version: int = OLD) -> asyncio.Task[str]:
        return asyncio.create_task(produce(self.client, batch(b"x", PRODUCER, sequence), version=version))

    async def question(self) -> tuple[Question, Callable[[ErrorCode], None]]:
        return await self.peers.questions.get()

    def end_transaction(self) -> None:
        marker = MarkerRecord(PRODUCER["producer_id"], PRODUCER["producer_epoch"], True, 0)
        self.topic.end_transaction(0, marker, 1)

    @property
    def end_offset(self) -> int:
        return self.topic.partitions[0].end_offset


@asynccontextmanager
async def leader_in(folder: Path) -> AsyncIterator[Leader]:
    async with running_node(folder) as harness:
        yield Leader(harness.node, await harness.connect())


@pytest.mark.parametrize(("version", "asks_to_add"), [(OLD, False), (NEW, True)])
@async_test
async def test_coordinator_is_asked_once_in_a_transaction(tmp_path: Path, version: int, asks_to_add: bool) -> None:
    async with leader_in(tmp_path) as leader:
        sent = leader.send(0, version)
        request, done = await leader.question()
        assert isinstance(request, AddPartitions) == asks_to_add
        assert (request.transactional_id, request.producer_id, request.producer_epoch) == (TX, 77, 3)
        assert list(request.partitions) == [("t", 0)]
        assert leader.end_offset == 0
        done(ErrorCode.NONE)
        assert await sent == "NONE"
        assert await leader.send(1, version) == "NONE"
        assert leader.end_offset == 2
        leader.end_transaction()
        sent = leader.send(2, version)
        _, done = await leader.question()
        done(ErrorCode.NONE)
        assert await sent == "NONE"
        assert leader.topic.partitions[0].last_stable_offset == 3


@pytest.mark.parametrize("change", ["marker", "leader"])
@async_test
async def test_answer_from_before_the_end_of_the_transaction_is_not_used(tmp_path: Path, change: str) -> None:
    """The batch would be part of no transaction, and would stay open for ever."""
    async with leader_in(tmp_path) as leader:
        sent = leader.send()
        _, done = await leader.question()
        if change == "marker":
            leader.end_transaction()
        else:
            leader.topic.give_up()  # another node may get the marker
            leader.topic.lead(0, 0)
        done(ErrorCode.NONE)
        assert await sent == "NOT_ENOUGH_REPLICAS"
        assert leader.topic.partitions[0].last_stable_offset == leader.end_offset


@async_test
async def test_batch_of_a_newer_epoch_is_not_part_of_the_open_transaction(tmp_path: Path) -> None:
    async with leader_in(tmp_path) as leader:
        sent = leader.send()
        (_, done) = await leader.question()
        done(ErrorCode.NONE)
        assert await sent == "NONE"
        newer = {"producer_id": 77, "producer_epoch": 4}
        sent = asyncio.create_task(produce(leader.client, batch(b"x", newer), version=OLD))
        request, done = await leader.question()
        assert request.producer_epoch == 4
        done(ErrorCode.PRODUCER_FENCED)
        assert await sent == "INVALID_PRODUCER_EPOCH"
        assert leader.end_offset == 1


@pytest.mark.parametrize(
    ("error", "version", "expected"),
    [
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, OLD, "NOT_ENOUGH_REPLICAS"),
        (ErrorCode.NOT_COORDINATOR, NEW, "NOT_ENOUGH_REPLICAS"),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NEW, "NOT_ENOUGH_REPLICAS"),
        (ErrorCode.CONCURRENT_TRANSACTIONS, OLD, "NOT_ENOUGH_REPLICAS"),
        (ErrorCode.CONCURRENT_TRANSACTIONS, NEW, "CONCURRENT_TRANSACTIONS"),
        (ErrorCode.TRANSACTION_ABORTABLE, OLD, "INVALID_TXN_STATE"),
        (ErrorCode.TRANSACTION_ABORTABLE, NEW, "TRANSACTION_ABORTABLE"),
        (ErrorCode.PRODUCER_FENCED, NEW, "INVALID_PRODUCER_EPOCH"),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, NEW, "INVALID_PRODUCER_ID_MAPPING"),
    ],
)
@async_test
async def test_refusal_of_the_coordinator(tmp_path: Path, error: ErrorCode, version: int, expected: str) -> None:
    async with leader_in(tmp_path) as leader:
        sent = leader.send(version=version)
        _, done = await leader.question()
        done(error)
        assert await sent == expected
        assert leader.end_offset == 0


@async_test
async def test_batch_is_retried_while_its_transactions_are_loaded(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        table = harness.node.actors.transaction_table
        number = table.number_of(TX)
        epoch = table.partitions[number].epoch
        assert table.apply(number, PartitionEvent.UNLOAD, epoch)
        assert table.apply(number, PartitionEvent.LOAD, epoch + 1)
        client = await harness.connect()
        assert await produce(client, batch(b"x", PRODUCER), version=OLD) == "NOT_ENOUGH_REPLICAS"
