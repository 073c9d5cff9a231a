"""Transactions compared with a real Kafka: the same requests to both, and our log read by Kafka's tools.

Requests are repeated while the error is CONCURRENT_TRANSACTIONS, because the time to write markers is unspecified.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from peers.server import ServerProcess
from peers.waiting import wait_until
from peers.wire import Wire

from .paired_requests import create_topic
from .side_by_side import Answer, PairedConnection, PairedValue, SideBySide
from .tools import KafkaTools

BUSY = ("CONCURRENT_TRANSACTIONS", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")
NOBODY = {"producer_id": -1, "producer_epoch": -1}
FIRST, LAST = 0, 5


class PairedTransaction:
    """One transactional id on both sides, with a topic of two partitions and a group."""

    def __init__(self, connection: PairedConnection) -> None:
        name = uuid.uuid4().hex[:8]
        self.name, self.group, self.topic = f"tx-{name}", f"group-{name}", f"topic-{name}"
        self.connection = connection
        create_topic(connection, self.topic, partitions=2)
        self.ask("find_coordinator", 3, key=self.name, key_type=1)  # Kafka creates __transaction_state now
        self.init()

    def ask(self, name: str, version: int, **values: Any) -> PairedValue:
        """Return both responses after the previous transaction is complete; they must be equal."""
        return self.connection.ask_until(_is_settled, name, version, **values)

    def init(self, version: int = 4, **values: Any) -> None:
        request = {"transactional_id": self.name, "transaction_timeout": 60_000, **NOBODY, **values}
        answer = self.ask("init_producer_id", version, **request)
        self.producer = {"producer_id": answer["producer_id"], "producer_epoch": answer["producer_epoch"]}

    def add_offsets(self, version: int = 3, **values: Any) -> PairedValue:
        request = {"transactional_id": self.name, "group_id": self.group, **self.producer, **values}
        return self.ask("add_offsets_to_txn", version, **request)

    def commit_offsets(self, version: int = 3, offset: int = 5, partition: int = 0, **values: Any) -> PairedValue:
        partition_fields = {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": -1}
        request = {
            "transactional_id": self.name,
            "group_id": self.group,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": self.topic, "partitions": [{**partition_fields, "committed_metadata": "m"}]}],
            **self.producer,
        }
        return self.ask("txn_offset_commit", version, **{**request, **values})

    def add_partitions(self, version: int = 3, *partitions: int, **values: Any) -> PairedValue:
        fields = {"transactional_id": self.name, **self.producer, **values}
        topics = values.get("topics", [{"name": self.topic, "partitions": list(partitions)}])
        request = {f"v3_and_below_{field}": value for field, value in fields.items()}
        request |= {"v3_and_below_topics": topics}
        request |= {"transactions": [{"verify_only": False, **fields, "topics": topics}]}
        return self.ask("add_partitions_to_txn", version, **request)

    def end(self, version: int = 3, committed: bool = True, **values: Any) -> PairedValue:
        request = {"transactional_id": self.name, "committed": committed, **self.producer, **values}
        return self.ask("end_txn", version, **request)

    def fetch(self, stable: bool = True) -> PairedValue:
        topics = [{"name": self.topic, "partition_indexes": [0]}]
        return self.connection.ask("offset_fetch", 7, group_id=self.group, topics=topics, require_stable=stable)

    def fetch_when_stable(self) -> PairedValue:
        topics = [{"name": self.topic, "partition_indexes": [0]}]
        request = {"group_id": self.group, "topics": topics, "require_stable": True}
        return self.connection.ask_until(lambda answer: "UNSTABLE" not in str(answer), "offset_fetch", 7, **request)

    def bumped(self) -> dict[str, Any]:
        """The producer with the next epoch."""
        epoch = self.producer["producer_epoch"]
        return {**self.producer, "producer_epoch": PairedValue(epoch.ours + 1, epoch.theirs + 1)}


def _is_settled(answer: Answer) -> bool:
    return not any(word in str(answer) for word in BUSY)


@pytest.fixture
def transaction(side_by_side: SideBySide) -> PairedTransaction:
    return PairedTransaction(side_by_side.connection())


each_version = pytest.mark.parametrize("version", range(FIRST, LAST + 1))


@each_version
def test_whole_transaction(transaction: PairedTransaction, version: int) -> None:
    for committed in (True, False, True):
        if version < LAST:
            transaction.add_offsets(min(version, 4))
        transaction.commit_offsets(version)
        transaction.fetch()
        transaction.fetch(stable=False)
        transaction.end(version, committed)
        transaction.fetch_when_stable()
        if version >= LAST:
            transaction.producer = transaction.bumped()


@each_version
def test_txn_offset_commit_without_transaction(transaction: PairedTransaction, version: int) -> None:
    transaction.commit_offsets(version)
    transaction.end(3, committed=False)


@each_version
@pytest.mark.parametrize("committed", [True, False])
def test_repeated_end_txn_and_end_txn_without_begin(
    transaction: PairedTransaction, version: int, committed: bool
) -> None:
    transaction.end(version, committed)
    transaction.init()
    transaction.add_partitions(3, 0)
    first: dict[str, Any] = dict(transaction.producer)
    transaction.end(version, committed)
    transaction.producer = first
    for again in (committed, not committed):
        transaction.end(version, again)
    transaction.init()
    transaction.end(version, committed, **first)


@each_version
def test_fenced_and_unknown_producers(transaction: PairedTransaction, version: int) -> None:
    """An old and a later epoch, an unknown producer id, an unknown and an empty transactional id."""
    old: dict[str, Any] = dict(transaction.producer)
    transaction.init()
    later, unknown = transaction.bumped(), {**transaction.producer, "producer_id": 10**12}
    for values in (old, later, unknown, {"transactional_id": "nobody"}, {"transactional_id": ""}):
        transaction.add_offsets(min(version, 4), **values)
        transaction.commit_offsets(version, **values)
        transaction.add_partitions(version, 0, **values)
        transaction.end(version, **values)
    for producer in (old, later, unknown):
        transaction.init(version=max(version, 3), **producer)


def test_invalid_init_producer_id(transaction: PairedTransaction) -> None:
    for timeout in (0, -1, 900_001):
        transaction.init(transaction_timeout=timeout)
    for values in ({"transactional_id": ""}, {"producer_id": 5}, {"producer_epoch": 5}):
        transaction.init(**values)


def test_producer_after_error(transaction: PairedTransaction) -> None:
    """KIP-360: a repeated request has the same response, also if the first one has aborted a transaction."""
    first: dict[str, Any] = dict(transaction.producer)
    for _ in range(2):
        transaction.init(**first)
    second: dict[str, Any] = dict(transaction.producer)
    transaction.add_partitions(3, 0)
    for _ in range(2):
        transaction.init(**second)
    transaction.init(**first)


@each_version
def test_add_partitions_to_txn_with_invalid_partitions(transaction: PairedTransaction, version: int) -> None:
    transaction.add_partitions(version, 0, 1)
    transaction.add_partitions(version, 0, 9)
    transaction.add_partitions(version, 0, topics=[{"name": "nowhere", "partitions": [0]}])
    transaction.add_partitions(version, topics=[{"name": transaction.topic, "partitions": []}])
    if version < 4:
        transaction.add_partitions(version, 0, topics=[{"name": "__consumer_offsets", "partitions": [0]}])


@each_version
def test_txn_offset_commit_refused_by_group(transaction: PairedTransaction, version: int) -> None:
    transaction.add_offsets()
    if version >= 3:
        transaction.commit_offsets(version, generation_id=3, member_id="stranger")
    transaction.commit_offsets(version, partition=9)
    transaction.commit_offsets(version, group_id="")
    transaction.commit_offsets(version)
    if version >= 3:
        transaction.commit_offsets(version, generation_id=3, member_id="stranger")
        transaction.commit_offsets(version, member_id="stranger")
        transaction.commit_offsets(version, group_instance_id="seat")
    transaction.end(3)
    transaction.fetch_when_stable()


@pytest.mark.parametrize("committed", [True, False])
def test_offset_commit_during_transaction(transaction: PairedTransaction, committed: bool) -> None:
    transaction.add_offsets()
    transaction.commit_offsets(offset=50)
    partition = {"partition_index": 0, "committed_offset": 60, "committed_leader_epoch": -1, "committed_metadata": ""}
    transaction.connection.ask(
        "offset_commit",
        8,
        group_id=transaction.group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[{"name": transaction.topic, "partitions": [partition]}],
    )
    transaction.fetch()
    transaction.fetch(stable=False)
    transaction.end(committed=committed)
    transaction.fetch_when_stable()


def test_delete_groups_during_transaction(transaction: PairedTransaction) -> None:
    transaction.add_offsets()
    transaction.commit_offsets()
    transaction.connection.ask("delete_groups", 2, groups_names=[transaction.group])
    transaction.fetch()
    transaction.end()
    transaction.fetch_when_stable()


# Kafka's tools read our log ------------------------------------------------------------------------------------------


@pytest.fixture
def our_data(tmp_path: Path) -> Iterator[Path]:
    """The data folder of our stopped server, after one committed and one aborted transaction."""
    with ServerProcess(tmp_path, options=("--topic", "t:1")) as server:
        with Wire(server.host, server.port) as wire:
            run_transactions(wire)
        server.stop()
    yield server.data


def run_transactions(wire: Wire) -> None:
    def ask(name: str, version: int, **values: Any) -> dict[str, Any]:
        return wait_until(
            lambda: wire.ask(name, version, transactional_id="tx", **values),
            lambda seen: BUSY[0] not in str(seen),
            name,
        )

    response = ask("init_producer_id", 4, transaction_timeout=60_000, **NOBODY)
    producer = {name: response[name] for name in NOBODY}
    for committed in (True, False):
        ask("add_offsets_to_txn", 3, group_id="g", **producer)
        partition = {
            "partition_index": 0,
            "committed_offset": 5,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        topics = [{"name": "t", "partitions": [partition]}]
        member = {"generation_id": -1, "member_id": "", "group_instance_id": None}
        ask("txn_offset_commit", 3, group_id="g", topics=topics, **member, **producer)
        assert ask("end_txn", 3, committed=committed, **producer)["error_code"] == "NONE"
    ask(
        "init_producer_id", 4, transaction_timeout=60_000, **NOBODY
    )  # its response follows the end of the transactions above


def dumped(tools: KafkaTools, decoder: str, folders: list[Path]) -> str:
    """Return the output of Kafka's DumpLogSegments for the only partition with records."""
    [path] = [path for folder in folders for path in folder.glob("*.log")]
    result = tools.dump(decoder, path)
    assert result.code == 0, result.err
    assert "isvalid: false" not in result.out and "isvalid: true" in result.out
    return result.out


def test_kafka_tools_read_our_transactions(kafka_tools: KafkaTools, our_data: Path) -> None:
    text = dumped(kafka_tools, "--transaction-log-decoder", sorted(our_data.glob("__transaction_state-*")))
    assert set(re.findall(r'"transactionalId":"(\w+)"', text)) == {"tx"}
    states = re.findall(r'"transactionStatus":(\d)', text)
    assert states == ["0", "1", "2", "4", "1", "3", "5", "0"]
    assert re.findall(r'"version":"(\d)"', text) == ["1"] * len(states)


def test_kafka_tools_read_our_pending_offsets_and_markers(kafka_tools: KafkaTools, our_data: Path) -> None:
    text = dumped(kafka_tools, "--offsets-decoder", sorted(our_data.glob("__consumer_offsets-*")))
    batches = re.findall(r"producerId: (\d+) producerEpoch: (\d+).*?isTransactional: (\w+) isControl: (\w+)", text)
    assert [batch[1:] for batch in batches] == [("0", "true", "false"), ("0", "true", "true")] * 2
    assert re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: (\d+)", text) == [("COMMIT", "0"), ("ABORT", "0")]
    assert re.findall(r'"group":"(\w+)","topic":"(\w+)","partition":(\d)', text) == [("g", "t", "0")] * 2


# Kafka's exactly-once program with our server ------------------------------------------------------------------------

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
RECORDS = 100


def test_java_copies_each_record_once_with_random_aborts(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    """Copy records and send offsets in transactions of ten records; some are aborted and repeated."""
    with ServerProcess(tmp_path, options=("--topic", "in:1", "--topic", "out:1")) as server:
        values = [str(number).encode() for number in range(RECORDS)]
        producer = Producer({"bootstrap.servers": server.bootstrap})
        for value in values:
            producer.produce("in", value, partition=0)
        assert producer.flush(30) == 0
        arguments = {
            "broker-list": server.bootstrap,
            "input-topic": "in",
            "input-partition": "0",
            "output-topic": "out",
            "max-messages": str(RECORDS),
            "consumer-group": "copier",
            "transactional-id": "copier",
            "transaction-size": "10",
        }
        options = [word for name, value in arguments.items() for word in (f"--{name}", value)]
        result = kafka_tools.run(COPIER, *options, "--enable-random-aborts", "--use-group-metadata")
        assert result.code == 0, result.out[-3000:] + result.err[-3000:]
        assert read_committed(server.bootstrap, "out", RECORDS) == values
        with Wire(server.host, server.port) as wire:
            topics = [{"name": "in", "partition_indexes": [0]}]
            answer = wire.ask("offset_fetch", 7, group_id="copier", topics=topics, require_stable=True)
        [[partition]] = [topic["partitions"] for topic in answer["topics"]]
        assert (partition["committed_offset"], partition["error_code"]) == (RECORDS, "NONE")


def read_committed(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """Read a topic of one partition to its end with read_committed; return the values."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes | None] = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        values.append(message.value())
    consumer.close()
    assert len(values) == count
    return values
