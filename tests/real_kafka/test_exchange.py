"""Logs of Callboard and of a real Kafka: each server starts on the other's log and serves the same offsets."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
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

from .kafka import RealKafka
from .new_kafka import (
    DEADLINE_S,
    PARTITIONS,
    RECORDS,
    SETTINGS,
    TRANSACTION_PARTITIONS,
    NewKafka,
    make_topic,
)
from .tools import GROUP_COMMAND, KafkaTools, ToolResult

confluent: Any = import_module("confluent_kafka.admin")  # its stubs export nothing

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
EXPECTED_LINES = re.compile(
    r"Non-consecutive offsets in .*\.log|  -?\d+ is followed by \d+|Consumer group 'shop' has no active members\."
)
"""Harmless lines on standard error: compacted files, files without offset 0, a group without members."""

pytestmark = pytest.mark.usefixtures("kafka_jars")


def commit(bootstrap: str, group: str, *offsets: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    for offset in offsets:
        consumer.commit(offsets=[TopicPartition("orders", 0, offset, metadata="note " * 30)], asynchronous=False)
    consumer.close()


def add_static_member(bootstrap: str, group: str) -> None:
    """Add a static member, which stays in the group after its consumer is closed."""
    member = {"group.instance.id": "seat", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **member})
    consumer.subscribe(["orders"])
    wait_until(lambda: consumer.poll(0.1), bool, "a record of orders", DEADLINE_S)
    consumer.commit(asynchronous=False)
    consumer.close()


def transaction(bootstrap: str, name: str, offset: int, end: str) -> Producer:
    """Commit offsets in a transaction; ``end``: commit, abort or "". Keep the returned producer of an open one."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"of {name}"})
    position = TopicPartition("orders", 0, offset)
    producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), DEADLINE_S)
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
    """Return the rows without the commit time, which no response contains."""
    with path.open(newline="") as file:
        return [row[:6] for row in csv.reader(file)]


def main(module: Any, *arguments: object) -> int:
    try:
        code: int = module.main([str(argument) for argument in arguments])
    except SystemExit as end:
        return int(end.code or 0)
    return code


# Kafka's log ---------------------------------------------------------------------------------------------------------


def filled_kafka(folder: Path, new_kafka: NewKafka) -> tuple[Path, list[list[str]]]:
    """Return the log of a Kafka that has used each codec, and its last offsets."""
    producers = []
    kafka = new_kafka(folder, {**SETTINGS, "offsets.topic.compression.codec": CODECS["gzip"]})
    kafka.start()
    try:
        for codec, number in CODECS.items():
            if codec != "gzip":
                wait_until(lambda: use_codec(kafka, codec), lambda used: number in used, codec)  # noqa: B023
            for partition in range(PARTITIONS):
                commit(kafka.bootstrap, f"{codec}-{partition}", 1, 2, 3 + partition)
            commit(kafka.bootstrap, f"of aborted {codec}", 5)
            for name, end in (("committed", "commit"), ("aborted", "abort"), ("open", "")):
                producers.append(transaction(kafka.bootstrap, f"{name} {codec}", 7, end))
            add_static_member(kafka.bootstrap, f"members {codec}")
        offset_rows = table(kafka.bootstrap, folder / "told.csv")
    finally:
        kafka.stop()
    return kafka.data, offset_rows


def use_codec(kafka: RealKafka, codec: str) -> set[int]:
    """Let Kafka compress the records of groups with a codec from now on; return the codecs that it has used."""
    admin = confluent.AdminClient({"bootstrap.servers": kafka.bootstrap})
    change = confluent.ConfigEntry("compression.type", codec, incremental_operation=confluent.AlterConfigOpType.SET)
    topic = confluent.ConfigResource(confluent.ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[change])
    admin.incremental_alter_configs([topic])[topic].result(DEADLINE_S)
    commit(kafka.bootstrap, f"{codec}-0", 1)
    return codecs_in(kafka.data)


@pytest.fixture(scope="module")
def from_kafka(tmp_path_factory: pytest.TempPathFactory, new_kafka: NewKafka) -> tuple[Path, list[list[str]]]:
    return filled_kafka(tmp_path_factory.mktemp("from-kafka"), new_kafka)


def codecs_in(data: Path) -> set[int]:
    disk = Disk()
    files = [file.path for folder in data.glob(f"{TOPIC}-*") for file in log_files(disk, folder).files]
    return {batch.attributes & CODEC_BITS for path in files for batch in scan(disk, path)}


def test_import_of_kafka_log(
    from_kafka: tuple[Path, list[list[str]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All codecs, members, and committed, aborted and open transactions."""
    kafka, offset_rows = from_kafka
    server = ServerProcess(tmp_path, settings=OUR_SETTINGS)
    assert main(imports, "--kafka-dir", kafka, "--data", server.data) == 0
    output = capsys.readouterr().out
    assert f"in {PARTITIONS} partitions" in output
    assert f"{len(CODECS)} of open transactions" in output
    assert f"transactional ids {3 * len(CODECS)} in {TRANSACTION_PARTITIONS} partitions" in output
    assert codecs_in(server.data) >= set(CODECS.values())
    assert main(export, "--data", server.data, "-o", tmp_path / "ours.csv") == 0
    assert rows(tmp_path / "ours.csv") == offset_rows
    assert_committed(offset_rows)
    with server:
        assert table(server.bootstrap, tmp_path / "served.csv") == offset_rows
        assert states(server.host, server.port)["members zstd"] == "Stable"


def assert_committed(offset_rows: list[list[str]]) -> None:
    offsets = {row[0]: row[3] for row in offset_rows[1:]}
    for codec in CODECS:
        assert (offsets[f"of committed {codec}"], offsets[f"of aborted {codec}"]) == ("7", "5")
        assert f"of open {codec}" not in offsets
        assert offsets[f"{codec}-4"] == "7"


def states(host: str, port: int) -> Mapping[str, str]:
    with Wire(host, port) as wire:
        listed = wire.ask("list_groups", 4, states_filter=[])["groups"]
    return {group["group_id"]: group["group_state"] for group in listed}


def test_copied_kafka_folders_are_served(from_kafka: tuple[Path, list[list[str]]], tmp_path: Path) -> None:
    """Without options: the number of partitions is that of the folders."""
    kafka, offset_rows = from_kafka
    server = ServerProcess(tmp_path, settings=OUR_SETTINGS, options=["--topic", "orders:1"])
    for folder in [*kafka.glob(f"{TOPIC}-*"), *kafka.glob(f"{TRANSACTIONS_TOPIC}-*")]:
        shutil.copytree(folder, server.data / folder.name)
    with server:
        assert table(server.bootstrap, tmp_path / "served.csv") == offset_rows
        commit(server.bootstrap, "zstd-0", 9)
        server.restart()
        changed = {row[0]: row[3] for row in table(server.bootstrap, tmp_path / "again.csv")}
        assert changed == {**{row[0]: row[3] for row in offset_rows}, "zstd-0": "9"}


# Our log -------------------------------------------------------------------------------------------------------------


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
        for partition in range(PARTITIONS):
            commit(server.bootstrap, f"simple-{partition}", *range(40))
        committed = transaction(server.bootstrap, "committed", 7, "commit")
        transaction(server.bootstrap, "aborted", 8, "abort")
        commit(server.bootstrap, "shop", 2, 3, 4)
        wait_until(lambda: closed_segments(server.data), bool, "segments to compact", DEADLINE_S)
        assert main(compact, "--data", server.data, "--force", *options) == 0
        open_transaction = transaction(server.bootstrap, "open", 9, "")
        add_static_member(server.bootstrap, "members")
        offset_rows = table(server.bootstrap, folder / "told.csv")
        assert server.stop() == 0
        del committed, open_transaction
    return server.data, offset_rows


def closed_segments(data: Path) -> list[Path]:
    """Return all segments except the last ones. The server writes them some time after the commits."""
    return [path for folder in data.glob(f"{TOPIC}-*") for path in sorted(folder.glob("*.log"))[:-1]]


def test_kafka_starts_on_exported_log(
    kafka_tools: KafkaTools, new_kafka: NewKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka = new_kafka(tmp_path, SETTINGS)
    data, offset_rows = filled_data(tmp_path)
    assert any(log_files(Disk(), folder).manifest.generation for folder in data.glob(f"{TOPIC}-*"))
    assert main(export, "--data", data, "--kafka-dir", kafka.data) == 0
    for folder in sorted(kafka.data.glob("__*_*-*")):
        if not folder.name.startswith("__cluster"):
            assert_kafka_reads(kafka_tools, folder)
    kafka.start()
    try:
        assert table(kafka.bootstrap, tmp_path / "theirs.csv") == offset_rows
        command = (GROUP_COMMAND, "--bootstrap-server", kafka.bootstrap)
        listed = checked(kafka_tools.run(*command, "--list", "--state"))
        assert [line.split() for line in listed.splitlines() if line.startswith("members")] == [["members", "Stable"]]
        described = checked(kafka_tools.run(*command, "--describe", "--group", "shop"))
        assert ["shop", "orders", "0", "4", str(RECORDS), str(RECORDS - 4)] in [
            line.split()[:6] for line in described.splitlines()
        ]
        assert first_offset(kafka.bootstrap, "shop") == 4
        assert reset_export(kafka_tools, kafka.bootstrap, tmp_path) == {"shop": 4, "simple-0": 39}
        capsys.readouterr()
        commit(kafka.bootstrap, "shop", 6)
    finally:
        kafka.stop()
    assert list(kafka.data.glob(f"{TOPIC}-*/*.txnindex"))  # Kafka has indexed the aborted transaction
    assert "stray" not in " ".join(path.name for path in kafka.data.iterdir())
    with pytest.raises(StartError, match="found Kafka's records in it"):
        main(export, "--data", data, "--kafka-dir", kafka.data)
    assert main(export, "--data", data, "--kafka-dir", kafka.data, "--replace") == 0
    kafka.start()
    try:
        with pytest.raises(StartError, match="Kafka is running on it"):
            main(export, "--data", data, "--kafka-dir", kafka.data, "--replace")
        assert table(kafka.bootstrap, tmp_path / "again.csv") == offset_rows
    finally:
        kafka.stop()


def first_offset(bootstrap: str, group: str) -> int | None:
    """Return the offset of the first record that a consumer of the group receives."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.subscribe(["orders"])
    record = wait_until(lambda: consumer.poll(0.1), bool, "a record of orders", DEADLINE_S)
    assert record is not None and record.error() is None
    consumer.close()
    return record.offset()


def reset_export(tools: KafkaTools, bootstrap: str, folder: Path) -> Mapping[str, int]:
    """Export the offsets of two groups with Kafka's tool; return them as read by our parser."""
    options = ["--reset-offsets", "--all-topics", "--to-current", "--dry-run", "--export"]
    groups = ["--group", "shop", "--group", "simple-0"]
    exported = tools.run(GROUP_COMMAND, "--bootstrap-server", bootstrap, *options, *groups)
    (folder / "reset.csv").write_text(checked(exported))
    offsets_by_group = read_table(folder / "reset.csv", pytest.fail)
    return {group: offset.offset for group, offsets in offsets_by_group.items() for offset in offsets.values()}


def checked(result: ToolResult) -> str:
    """Return what a tool has printed. Assert that it has found no error."""
    unexpected_lines = [line for line in result.err.splitlines() if line and not EXPECTED_LINES.fullmatch(line)]
    assert (result.code, unexpected_lines) == (0, []), result.out
    return result.out


def assert_kafka_reads(tools: KafkaTools, folder: Path) -> None:
    """Assert that Kafka's DumpLogSegments reads all files of a partition without errors."""
    decoder = "--offsets-decoder" if folder.name.startswith(TOPIC) else "--transaction-log-decoder"
    paths = sorted(folder.glob("*.log"))
    if paths:
        printed = checked(tools.dump(decoder, *paths))
        assert printed.count("Dumping ") == len(paths)
        assert "isvalid: false" not in printed and "invalid" not in printed, printed
