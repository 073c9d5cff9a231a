"""Whole logs between Callboard and a real Kafka: each starts on what the other has written, and says the same of it."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from peers.server import TEST_SETTINGS as OUR_SETTINGS
from peers.server import ServerProcess
from peers.waiting import wait_until
from peers.wire import Wire

from callboard.runtime.cli import compact
from callboard.runtime.cli.exchange import export, imports
from callboard.runtime.cli.exchange.parse import read_table
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.format.batch import CODEC_BITS
from callboard.runtime.log.manifest import log_files
from callboard.runtime.log.partition import TOPIC, TRANSACTIONS_TOPIC
from callboard.runtime.log.reading.segment import scan

from .kafka import TEST_SETTINGS, RealKafka

DEADLINE_S = 300.0
PARTITIONS, TRANSACTION_PARTITIONS = 5, 3
SETTINGS = {
    **TEST_SETTINGS,
    "offsets.topic.num.partitions": PARTITIONS,
    "transaction.state.log.num.partitions": TRANSACTION_PARTITIONS,
}
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
RECORDS = 10
GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
EXPECTED = re.compile(
    r"Non-consecutive offsets in .*\.log|  -?\d+ is followed by \d+|Consumer group 'shop' has no active members\."
)
"""What a tool says of any file that does not begin with offset 0, or was compacted, Kafka's own too; and of a group."""

pytestmark = pytest.mark.usefixtures("kafka_jars")


def make_topic(bootstrap: str) -> None:
    """One partition of orders with some records."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(RECORDS):
        producer.produce("orders", b"x", partition=0)
    assert producer.flush(DEADLINE_S) == 0


def commit(bootstrap: str, group: str, *offsets: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    for offset in offsets:
        consumer.commit(offsets=[TopicPartition("orders", 0, offset, metadata="note " * 30)], asynchronous=False)
    consumer.close()


def enrol(bootstrap: str, group: str) -> None:
    """A static member, which stays in its group when its program ends."""
    member = {"group.instance.id": "seat", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **member})
    consumer.subscribe(["orders"])
    wait_until(lambda: consumer.poll(0.1), bool, "a record of orders", DEADLINE_S)
    consumer.commit(asynchronous=False)
    consumer.close()


def transaction(bootstrap: str, name: str, offset: int, end: str) -> Producer:
    """Commits for a group in a transaction that ends in one way or another; the producer of an open one must live."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"of {name}"})
    place = TopicPartition("orders", 0, offset)
    producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), DEADLINE_S)
    consumer.close()
    if end == "commit":
        producer.commit_transaction(DEADLINE_S)
    elif end == "abort":
        producer.abort_transaction(DEADLINE_S)
    return producer


def table(bootstrap: str, path: Path) -> list[list[str]]:
    assert main(export, "-b", bootstrap, "-o", path) == 0
    return rows(path)


def rows(path: Path) -> list[list[str]]:
    """All but when it was committed, which servers do not tell."""
    with path.open(newline="") as file:
        return [row[:6] for row in csv.reader(file)]


def main(module: Any, *arguments: object) -> int:
    try:
        code: int = module.main([str(one) for one in arguments])
    except SystemExit as end:
        return int(end.code or 0)
    return code


# Out of Kafka --------------------------------------------------------------------------------------------------------


def filled_kafka(folder: Path) -> tuple[Path, list[list[str]]]:
    """The log of a Kafka that had each codec in turn, stopped, and what it had to say last."""
    told: list[list[str]] = []
    producers = []
    for codec, number in CODECS.items():
        kafka = RealKafka(folder, {**SETTINGS, "offsets.topic.compression.codec": number})
        kafka.start()
        try:
            if not told:
                make_topic(kafka.bootstrap)
            for one in range(PARTITIONS):
                commit(kafka.bootstrap, f"{codec}-{one}", 1, 2, 3 + one)
            commit(kafka.bootstrap, f"of aborted {codec}", 5)
            for name, end in (("committed", "commit"), ("aborted", "abort"), ("open", "")):
                producers.append(transaction(kafka.bootstrap, f"{name} {codec}", 7, end))
            enrol(kafka.bootstrap, f"members {codec}")
            told = table(kafka.bootstrap, folder / "told.csv")
        finally:
            kafka.stop()
    return kafka.data, told


@pytest.fixture(scope="module")
def from_kafka(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> tuple[Path, list[list[str]]]:
    assert kafka_jars
    return filled_kafka(tmp_path_factory.mktemp("from-kafka"))


def codecs_in(data: Path) -> set[int]:
    disk = Disk()
    files = [file.path for folder in data.glob(f"{TOPIC}-*") for file in log_files(disk, folder).files]
    return {batch.attributes & CODEC_BITS for path in files for batch in scan(disk, path)}


def test_import_of_kafka_log(
    from_kafka: tuple[Path, list[list[str]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All codecs, members, and transactions that were committed, aborted and left open."""
    kafka, told = from_kafka
    server = ServerProcess(tmp_path, settings=OUR_SETTINGS)
    assert main(imports, "--from-kafka-logs", kafka, "--data", server.data) == 0
    said = capsys.readouterr().out
    assert f"in {PARTITIONS} partitions" in said
    assert f"{len(CODECS)} of open transactions" in said
    assert f"transactional ids {3 * len(CODECS)} in {TRANSACTION_PARTITIONS} partitions" in said
    assert codecs_in(server.data) >= set(CODECS.values())
    assert main(export, "--data", server.data, "-o", tmp_path / "ours.csv") == 0
    assert rows(tmp_path / "ours.csv") == told
    assert_committed(told)
    with server:
        assert table(server.bootstrap, tmp_path / "served.csv") == told
        assert states(server.host, server.port)["members zstd"] == "Stable"


def assert_committed(told: list[list[str]]) -> None:
    found = {row[0]: row[3] for row in told[1:]}
    for codec in CODECS:
        assert (found[f"of committed {codec}"], found[f"of aborted {codec}"]) == ("7", "5")
        assert f"of open {codec}" not in found
        assert found[f"{codec}-4"] == "7"


def states(host: str, port: int) -> Mapping[str, str]:
    with Wire(host, port) as wire:
        listed = wire.ask("list_groups", 4, states_filter=[])["groups"]
    return {group["group_id"]: group["group_state"] for group in listed}


def test_copied_kafka_folders_are_served(from_kafka: tuple[Path, list[list[str]]], tmp_path: Path) -> None:
    """Without another word: the number of partitions is that of the folders."""
    kafka, told = from_kafka
    server = ServerProcess(tmp_path, settings=OUR_SETTINGS, options=["--topic", "orders:1"])
    for folder in [*kafka.glob(f"{TOPIC}-*"), *kafka.glob(f"{TRANSACTIONS_TOPIC}-*")]:
        shutil.copytree(folder, server.data / folder.name)
    with server:
        assert table(server.bootstrap, tmp_path / "served.csv") == told
        commit(server.bootstrap, "zstd-0", 9)
        server.restart()
        changed = {row[0]: row[3] for row in table(server.bootstrap, tmp_path / "again.csv")}
        assert changed == {**{row[0]: row[3] for row in told}, "zstd-0": "9"}


# Into Kafka ----------------------------------------------------------------------------------------------------------


def stopped_kafka(folder: Path) -> RealKafka:
    """One that has made its topics, and has records in a topic of its own."""
    kafka = RealKafka(folder, SETTINGS)
    kafka.start()
    try:
        make_topic(kafka.bootstrap)
        with Wire(kafka.host, kafka.port) as wire:
            wire.ask("find_coordinator", 3, key="any", key_type=1)
        last = kafka.data / f"{TRANSACTIONS_TOPIC}-{TRANSACTION_PARTITIONS - 1}" / "partition.metadata"
        wait_until(last.exists, bool, "Kafka's topic for transactions", DEADLINE_S)
    finally:
        kafka.stop()
    return kafka


def filled_data(folder: Path, *options: str) -> tuple[Path, list[list[str]]]:
    """Make a log of many segments, most of them compacted (with options); return it and the server's last offsets."""
    settings = {
        **OUR_SETTINGS,
        "offsets_topic_num_partitions": PARTITIONS,
        "transaction_state_log_num_partitions": TRANSACTION_PARTITIONS,
        "offsets_topic_segment_bytes": 1024,
        "log_cleaner_enable": "false",  # the server's own cleaner must not compact before the command does
    }
    with ServerProcess(folder, settings=settings) as server:
        make_topic(server.bootstrap)
        for one in range(PARTITIONS):
            commit(server.bootstrap, f"simple-{one}", *range(40))
        kept = transaction(server.bootstrap, "committed", 7, "commit")
        transaction(server.bootstrap, "aborted", 8, "abort")
        commit(server.bootstrap, "shop", 2, 3, 4)
        wait_until(lambda: closed_segments(server.data), bool, "segments to compact", DEADLINE_S)
        assert main(compact, "--data", server.data, "--force", *options) == 0
        open_one = transaction(server.bootstrap, "open", 9, "")
        enrol(server.bootstrap, "members")
        told = table(server.bootstrap, folder / "told.csv")
        assert server.stop() == 0
        del kept, open_one
    return server.data, told


def closed_segments(data: Path) -> list[Path]:
    """A fast machine is done with all commits before the first of them is laid in."""
    return [path for folder in data.glob(f"{TOPIC}-*") for path in sorted(folder.glob("*.log"))[:-1]]


def test_kafka_starts_on_exported_log(kafka_jars: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kafka = stopped_kafka(tmp_path)
    data, told = filled_data(tmp_path)
    assert any(log_files(Disk(), folder).manifest.generation for folder in data.glob(f"{TOPIC}-*"))
    assert main(export, "--data", data, "--kafka-dir", kafka.data) == 0
    for folder in sorted(kafka.data.glob("__*_*-*")):
        if not folder.name.startswith("__cluster"):
            assert_kafka_reads(kafka_jars, folder)
    kafka.start()
    try:
        assert table(kafka.bootstrap, tmp_path / "theirs.csv") == told
        listed = java(kafka_jars, GROUP_COMMAND, "--bootstrap-server", kafka.bootstrap, "--list", "--state")
        assert [line.split() for line in listed.splitlines() if line.startswith("members")] == [["members", "Stable"]]
        shown = java(kafka_jars, GROUP_COMMAND, "--bootstrap-server", kafka.bootstrap, "--describe", "--group", "shop")
        assert ["shop", "orders", "0", "4", str(RECORDS), str(RECORDS - 4)] in [
            line.split()[:6] for line in shown.splitlines()
        ]
        assert first_offset(kafka.bootstrap, "shop") == 4
        assert reset_export(kafka_jars, kafka.bootstrap, tmp_path) == {"shop": 4, "simple-0": 39}
        capsys.readouterr()
        commit(kafka.bootstrap, "shop", 6)
    finally:
        kafka.stop()
    assert list(kafka.data.glob(f"{TOPIC}-*/*.txnindex"))  # Kafka knows of the aborted transaction
    assert "stray" not in " ".join(path.name for path in kafka.data.iterdir())
    with pytest.raises(StartError, match="found Kafka's records in it"):
        main(export, "--data", data, "--kafka-dir", kafka.data)
    assert main(export, "--data", data, "--kafka-dir", kafka.data, "--replace") == 0
    kafka.start()
    try:
        with pytest.raises(StartError, match="Kafka is running on it"):
            main(export, "--data", data, "--kafka-dir", kafka.data, "--replace")
        assert table(kafka.bootstrap, tmp_path / "again.csv") == told
    finally:
        kafka.stop()


def first_offset(bootstrap: str, group: str) -> int | None:
    """Where a consumer of the group goes on."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.subscribe(["orders"])
    record = wait_until(lambda: consumer.poll(0.1), bool, "a record of orders", DEADLINE_S)
    assert record is not None and record.error() is None
    consumer.close()
    return record.offset()


def reset_export(jars: Path, bootstrap: str, folder: Path) -> Mapping[str, int]:
    """What Kafka's tool exports of two groups, as we read it."""
    asked = ["--reset-offsets", "--all-topics", "--to-current", "--dry-run", "--export"]
    groups = ["--group", "shop", "--group", "simple-0"]
    (folder / "reset.csv").write_text(java(jars, GROUP_COMMAND, "--bootstrap-server", bootstrap, *asked, *groups))
    wanted = read_table(folder / "reset.csv", pytest.fail)
    return {group: offset.offset for group, places in wanted.items() for offset in places.values()}


def java(jars: Path, *arguments: str) -> str:
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False)
    told = [line for line in done.stderr.splitlines() if line and not EXPECTED.fullmatch(line)]
    assert (done.returncode, told) == (0, []), done.stdout
    return done.stdout


def assert_kafka_reads(jars: Path, folder: Path) -> None:
    """Kafka's own tool prints a partition without a complaint."""
    decoder = "--offsets-decoder" if folder.name.startswith(TOPIC) else "--transaction-log-decoder"
    paths = sorted(folder.glob("*.log"))
    if paths:
        printed = java(jars, DUMP, decoder, "--print-data-log", "--files", ",".join(str(path) for path in paths))
        assert printed.count("Dumping ") == len(paths)
        assert "isvalid: false" not in printed and "invalid" not in printed, printed
