"""Transactions beside a real Kafka: the same requests to both, and our log read by Kafka's own tool.

Answers that say CONCURRENT_TRANSACTIONS are asked for again at both: how long markers take is nobody's promise.
"""

from __future__ import annotations

import re
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from peers.server import ServerProcess
from peers.waiting import wait_until
from peers.wire import Wire

from .kafka import RealKafka
from .paired_requests import metadata_values
from .side_by_side import Answer, PairedConnection, PairedValue, SideBySide

BUSY = ("CONCURRENT_TRANSACTIONS", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")
NOBODY = {"producer_id": -1, "producer_epoch": -1}
FIRST, LAST = 0, 5


class Cast:
    """One transactional id on both sides, with a topic of two partitions and a group."""

    def __init__(self, connection: PairedConnection) -> None:
        name = uuid.uuid4().hex[:8]
        self.name, self.group, self.topic = f"tx-{name}", f"group-{name}", f"topic-{name}"
        self.connection = connection
        new = {"name": self.topic, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
        connection.ask("create_topics", 4, topics=[new], timeout=30_000, validate_only=False)
        connection.ask_until(_shows_topic, "metadata", 9, **metadata_values([{"name": self.topic}]))
        self.ask("find_coordinator", 3, key=self.name, key_type=1)  # Kafka makes its topic now
        self.init()

    def ask(self, name: str, version: int, **values: Any) -> PairedValue:
        """Both answers, of each side when it is not busy with the transaction before; they must be the same."""
        return self.connection.ask_until(_is_settled, name, version, **values)

    def init(self, version: int = 4, **values: Any) -> None:
        asked = {"transactional_id": self.name, "transaction_timeout": 60_000, **NOBODY, **values}
        answer = self.ask("init_producer_id", version, **asked)
        self.producer = {"producer_id": answer["producer_id"], "producer_epoch": answer["producer_epoch"]}

    def add_offsets(self, version: int = 3, **values: Any) -> PairedValue:
        asked = {"transactional_id": self.name, "group_id": self.group, **self.producer, **values}
        return self.ask("add_offsets_to_txn", version, **asked)

    def commit_offsets(self, version: int = 3, offset: int = 5, partition: int = 0, **values: Any) -> PairedValue:
        part = {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": -1}
        asked = {
            "transactional_id": self.name,
            "group_id": self.group,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": self.topic, "partitions": [{**part, "committed_metadata": "m"}]}],
            **self.producer,
        }
        return self.ask("txn_offset_commit", version, **{**asked, **values})

    def add_partitions(self, version: int = 3, *partitions: int, **values: Any) -> PairedValue:
        of = {"transactional_id": self.name, **self.producer, **values}
        topics = values.get("topics", [{"name": self.topic, "partitions": list(partitions)}])
        asked = {f"v3_and_below_{field}": value for field, value in of.items()}
        asked |= {"v3_and_below_topics": topics}
        asked |= {"transactions": [{"verify_only": False, **of, "topics": topics}]}
        return self.ask("add_partitions_to_txn", version, **asked)

    def end(self, version: int = 3, committed: bool = True, **values: Any) -> PairedValue:
        asked = {"transactional_id": self.name, "committed": committed, **self.producer, **values}
        return self.ask("end_txn", version, **asked)

    def fetch(self, stable: bool = True) -> PairedValue:
        topics = [{"name": self.topic, "partition_indexes": [0]}]
        return self.connection.ask("offset_fetch", 7, group_id=self.group, topics=topics, require_stable=stable)

    def fetch_when_stable(self) -> PairedValue:
        topics = [{"name": self.topic, "partition_indexes": [0]}]
        asked = {"group_id": self.group, "topics": topics, "require_stable": True}
        return self.connection.ask_until(lambda answer: "UNSTABLE" not in str(answer), "offset_fetch", 7, **asked)

    def bumped(self) -> dict[str, Any]:
        """The producer with the next epoch."""
        epoch = self.producer["producer_epoch"]
        return {**self.producer, "producer_epoch": PairedValue(epoch.ours + 1, epoch.theirs + 1)}


def _shows_topic(metadata: Answer) -> bool:
    """Kafka shows a new topic a moment later, one partition after the other."""
    codes = [part["error_code"] for topic in metadata["topics"] for part in (topic, *topic["partitions"])]
    return codes == ["NONE"] * 3


def _is_settled(answer: Answer) -> bool:
    return not any(word in str(answer) for word in BUSY)


@pytest.fixture
def cast(side_by_side: SideBySide) -> Cast:
    return Cast(side_by_side.connection())


each_version = pytest.mark.parametrize("version", range(FIRST, LAST + 1))


@each_version
def test_whole_transaction(cast: Cast, version: int) -> None:
    for committed in (True, False, True):
        if version < LAST:
            cast.add_offsets(min(version, 4))
        cast.commit_offsets(version)
        cast.fetch()
        cast.fetch(stable=False)
        cast.end(version, committed)
        cast.fetch_when_stable()
        if version >= LAST:
            cast.producer = cast.bumped()


@each_version
def test_txn_offset_commit_without_transaction(cast: Cast, version: int) -> None:
    cast.commit_offsets(version)
    cast.end(3, committed=False)


@each_version
@pytest.mark.parametrize("committed", [True, False])
def test_repeated_end_txn_and_end_txn_without_begin(cast: Cast, version: int, committed: bool) -> None:
    cast.end(version, committed)
    cast.init()
    cast.add_partitions(3, 0)
    first: dict[str, Any] = dict(cast.producer)
    cast.end(version, committed)
    cast.producer = first
    for again in (committed, not committed):
        cast.end(version, again)
    cast.init()
    cast.end(version, committed, **first)


@each_version
def test_fenced_and_unknown_producers(cast: Cast, version: int) -> None:
    """An old epoch, a later one, another producer's id, an id that nobody has, and none."""
    old: dict[str, Any] = dict(cast.producer)
    cast.init()
    later, stranger = cast.bumped(), {**cast.producer, "producer_id": 10**12}
    for values in (old, later, stranger, {"transactional_id": "nobody"}, {"transactional_id": ""}):
        cast.add_offsets(min(version, 4), **values)
        cast.commit_offsets(version, **values)
        cast.add_partitions(version, 0, **values)
        cast.end(version, **values)
    for known in (old, later, stranger):
        cast.init(version=max(version, 3), **known)


def test_invalid_init_producer_id(cast: Cast) -> None:
    for timeout in (0, -1, 900_001):
        cast.init(transaction_timeout=timeout)
    for values in ({"transactional_id": ""}, {"producer_id": 5}, {"producer_epoch": 5}):
        cast.init(**values)


def test_producer_after_error(cast: Cast) -> None:
    """KIP-360: the same request twice is answered alike, also after a transaction that was aborted for it."""
    first: dict[str, Any] = dict(cast.producer)
    for _ in range(2):
        cast.init(**first)
    second: dict[str, Any] = dict(cast.producer)
    cast.add_partitions(3, 0)
    for _ in range(2):
        cast.init(**second)
    cast.init(**first)


@each_version
def test_add_partitions_to_txn_with_invalid_partitions(cast: Cast, version: int) -> None:
    cast.add_partitions(version, 0, 1)
    cast.add_partitions(version, 0, 9)
    cast.add_partitions(version, 0, topics=[{"name": "nowhere", "partitions": [0]}])
    cast.add_partitions(version, topics=[{"name": cast.topic, "partitions": []}])
    if version < 4:
        cast.add_partitions(version, 0, topics=[{"name": "__consumer_offsets", "partitions": [0]}])


@each_version
def test_txn_offset_commit_refused_by_group(cast: Cast, version: int) -> None:
    cast.add_offsets()
    if version >= 3:
        cast.commit_offsets(version, generation_id=3, member_id="stranger")
    cast.commit_offsets(version, partition=9)
    cast.commit_offsets(version, group_id="")
    cast.commit_offsets(version)
    if version >= 3:
        cast.commit_offsets(version, generation_id=3, member_id="stranger")
        cast.commit_offsets(version, member_id="stranger")
        cast.commit_offsets(version, group_instance_id="seat")
    cast.end(3)
    cast.fetch_when_stable()


@pytest.mark.parametrize("committed", [True, False])
def test_offset_commit_during_transaction(cast: Cast, committed: bool) -> None:
    cast.add_offsets()
    cast.commit_offsets(offset=50)
    part = {"partition_index": 0, "committed_offset": 60, "committed_leader_epoch": -1, "committed_metadata": ""}
    cast.connection.ask(
        "offset_commit",
        8,
        group_id=cast.group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[{"name": cast.topic, "partitions": [part]}],
    )
    cast.fetch()
    cast.fetch(stable=False)
    cast.end(committed=committed)
    cast.fetch_when_stable()


def test_delete_groups_during_transaction(cast: Cast) -> None:
    cast.add_offsets()
    cast.commit_offsets()
    cast.connection.ask("delete_groups", 2, groups_names=[cast.group])
    cast.fetch()
    cast.end()
    cast.fetch_when_stable()


# Kafka's own tool reads our log --------------------------------------------------------------------------------------

DUMP = "org.apache.kafka.tools.DumpLogSegments"


@pytest.fixture
def our_data(tmp_path: Path) -> Iterator[Path]:
    """The data folder of a stopped server of ours that a transaction was committed and one aborted on."""
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

    given = ask("init_producer_id", 4, transaction_timeout=60_000, **NOBODY)
    producer = {name: given[name] for name in NOBODY}
    for committed in (True, False):
        ask("add_offsets_to_txn", 3, group_id="g", **producer)
        part = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
        topics = [{"name": "t", "partitions": [part]}]
        member = {"generation_id": -1, "member_id": "", "group_instance_id": None}
        ask("txn_offset_commit", 3, group_id="g", topics=topics, **member, **producer)
        assert ask("end_txn", 3, committed=committed, **producer)["error_code"] == "NONE"
    ask("init_producer_id", 4, transaction_timeout=60_000, **NOBODY)  # answered when all of the above is complete


def dumped(kafka: RealKafka, decoder: str, folders: list[Path]) -> str:
    """What Kafka's tool prints of the only partition that has something."""
    [path] = [path for folder in folders for path in folder.glob("*.log")]
    command = kafka._java(DUMP, decoder, "--print-data-log", "--files", str(path))
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert "isvalid: false" not in done.stdout and "isvalid: true" in done.stdout
    return done.stdout


def test_kafka_tools_read_our_transactions(real_kafka: RealKafka, our_data: Path) -> None:
    text = dumped(real_kafka, "--transaction-log-decoder", sorted(our_data.glob("__transaction_state-*")))
    assert set(re.findall(r'"transactionalId":"(\w+)"', text)) == {"tx"}
    states = re.findall(r'"transactionStatus":(\d)', text)
    assert states == ["0", "1", "2", "4", "1", "3", "5", "0"]
    assert re.findall(r'"version":"(\d)"', text) == ["1"] * len(states)


def test_kafka_tools_read_our_pending_offsets_and_markers(real_kafka: RealKafka, our_data: Path) -> None:
    text = dumped(real_kafka, "--offsets-decoder", sorted(our_data.glob("__consumer_offsets-*")))
    batches = re.findall(r"producerId: (\d+) producerEpoch: (\d+).*?isTransactional: (\w+) isControl: (\w+)", text)
    assert [batch[1:] for batch in batches] == [("0", "true", "false"), ("0", "true", "true")] * 2
    assert re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: (\d+)", text) == [("COMMIT", "0"), ("ABORT", "0")]
    assert re.findall(r'"group":"(\w+)","topic":"(\w+)","partition":(\d)', text) == [("g", "t", "0")] * 2


# Kafka's own exactly-once program runs on us --------------------------------------------------------------------------

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
RECORDS = 100


def test_java_copies_each_record_once_with_random_aborts(real_kafka: RealKafka, tmp_path: Path) -> None:
    """Read, write and send the offsets in a transaction of ten records; some are aborted and done again."""
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
        command = real_kafka._java(COPIER, *options, "--enable-random-aborts", "--use-group-metadata")
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        assert read_committed(server.bootstrap, "out", RECORDS) == values
        with Wire(server.host, server.port) as wire:
            topics = [{"name": "in", "partition_indexes": [0]}]
            answer = wire.ask("offset_fetch", 7, group_id="copier", topics=topics, require_stable=True)
        [[found]] = [topic["partitions"] for topic in answer["topics"]]
        assert (found["committed_offset"], found["error_code"]) == (RECORDS, "NONE")


def read_committed(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """What a reader of committed records finds in a topic of one partition, to its end."""
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
