"""Kafka starts on a log that Spark has compacted; Kafka's cleaner and ours keep the same records of one log."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from peers.waiting import wait_until
from pyspark.sql import SparkSession

from callboard.bench.loggen import LogShape, write_log
from callboard.runtime.cli import compact
from callboard.runtime.cli.exchange import export
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.format.batch import Batch
from callboard.runtime.log.manifest import log_files, newest_manifest
from callboard.runtime.log.partition import TOPIC
from callboard.runtime.log.reading.segment import scan

from .new_kafka import PARTITIONS, SETTINGS, TRANSACTION_PARTITIONS, NewKafka
from .test_exchange import assert_kafka_reads, filled_data, main, table
from .tools import KafkaTools

DEADLINE_S = 600.0
KEEP_OFFSETS = {**SETTINGS, "offsets.retention.minutes": 2**31 - 1}  # the log's commits are years old
EAGER_CLEANER = {
    **KEEP_OFFSETS,
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.min.cleanable.ratio": 0.001,
    "log.cleaner.dedupe.buffer.size": 4_000_000,
    "log.initial.task.delay.ms": 1000,
}

Live = dict[bytes, tuple[int, bytes]]

pytestmark = pytest.mark.usefixtures("kafka_jars")


def generated(folder: Path) -> Path:
    """Generate a log of many segments with transactions (some aborted) and tombstones, without group members."""
    root = folder / "generated"
    shape = LogShape(20_000, PARTITIONS, groups=80, segment_bytes=100_000, transaction_rate=0.05, death_rate=0.02)
    write_log(root, shape._replace(group_record_rate=0.0), seed=11)
    DataFolder(root, PARTITIONS, TRANSACTION_PARTITIONS).close()
    return root


def folders(data: Path) -> list[Path]:
    return [data / f"{TOPIC}-{number}" for number in range(PARTITIONS)]


def closed_ends(data: Path) -> dict[int, int]:
    """Return the first offset of the active segment, by partition."""
    return {number: log_files(Disk(), folder).files[-1].base for number, folder in enumerate(folders(data))}


def live(folder: Path, end: int) -> Live:
    """Replay the records below an offset; return the offset and value of the newest record of each live key."""
    newest: dict[bytes, tuple[int, bytes | None]] = {}
    pending: dict[int, list[tuple[bytes, int, bytes | None]]] = {}
    for batch in batches(folder):
        for offset, _, key, value in batch.records():
            if offset >= end:
                break
            assert key is not None
            if batch.is_control:
                ended = pending.pop(batch.producer_id, [])
                records = ended if key[3] == 1 else []
            elif batch.is_transactional:
                pending.setdefault(batch.producer_id, []).append((key, offset, value))
                continue
            else:
                records = [(key, offset, value)]
            newest.update(
                (name, (record_offset, value))
                for name, record_offset, value in records
                if record_offset > newest.get(name, (-1, None))[0]
            )
    return {key: (record_offset, value) for key, (record_offset, value) in newest.items() if value is not None}


def batches(folder: Path) -> Iterator[Batch]:
    for file in log_files(Disk(), folder).files:
        yield from scan(Disk(), file.path)


def count(folder: Path, end: int) -> int:
    return sum(batch.record_count for batch in batches(folder) if batch.base_offset < end)


def cleaned_to(kafka: Path) -> dict[int, int]:
    """Return the cleaner's progress from Kafka's checkpoint file."""
    path = kafka / "cleaner-offset-checkpoint"
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return {int(line[1]): int(line[2]) for line in lines if len(line) == 3 and line[0] == TOPIC}


def test_kafka_starts_on_log_compacted_by_spark(
    spark: SparkSession,
    kafka_tools: KafkaTools,
    new_kafka: NewKafka,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Kafka's tool reads every file without errors, and Kafka serves the offsets that our server had served."""
    data, offset_rows = filled_data(tmp_path, "--spark")
    # The number of partitions depends on the time when the server writes their files.
    assert re.match(r"[2-9] partitions compacted, ", capsys.readouterr().out)
    assert any(newest_manifest(Disk(), folder).generation for folder in folders(data))
    kafka = new_kafka(tmp_path, KEEP_OFFSETS)
    assert main(export, "--data", data, "--kafka-dir", kafka.data) == 0
    for folder in folders(kafka.data):
        assert_kafka_reads(kafka_tools, folder)
    kafka.start()
    try:
        assert table(kafka.bootstrap, tmp_path / "theirs.csv") == offset_rows
    finally:
        kafka.stop()


def test_kafka_cleaner_and_spark_compaction_keep_same_records(
    spark: SparkSession, new_kafka: NewKafka, tmp_path: Path
) -> None:
    """The same keys have the same records, and both compactions remove most of the log."""
    data = generated(tmp_path)
    ends = closed_ends(data)
    kafka = new_kafka(tmp_path, EAGER_CLEANER)
    assert main(export, "--data", data, "--kafka-dir", kafka.data) == 0
    assert closed_ends(kafka.data) == ends, "exported segments must begin at the same offsets"
    kafka.start()
    try:
        wait_until(lambda: cleaned_to(kafka.data), lambda offsets: offsets == ends, "Kafka's cleaner", DEADLINE_S)
    finally:
        kafka.stop()
    original = tmp_path / "original"
    shutil.copytree(data, original)
    assert main(compact, "--data", data, "--spark", "--force") == 0
    compared = 0
    for number in range(PARTITIONS):
        end = ends[number]
        theirs, ours = live(folders(kafka.data)[number], end), live(folders(data)[number], end)
        assert ours == theirs == live(folders(original)[number], end)
        before = count(folders(original)[number], end)
        kafka_count = count(folders(kafka.data)[number], end)
        assert len(theirs) <= kafka_count < before / 2
        # We stop before a transaction whose end is in the active segment; Kafka does not, as it has the end in memory.
        if newest_manifest(Disk(), folders(data)[number]).clean_end == end:
            compared += 1
            assert count(folders(data)[number], end) <= kafka_count + 2
    assert compared > PARTITIONS / 2
