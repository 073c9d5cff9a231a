"""What Spark has compacted, in Kafka's hands; and Kafka's own cleaner beside ours, on the same log."""

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

from .kafka import RealKafka
from .test_exchange import (
    PARTITIONS,
    SETTINGS,
    TRANSACTION_PARTITIONS,
    assert_kafka_reads,
    filled_data,
    main,
    stopped_kafka,
    table,
)

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
    """A log of many segments with transactions, some of them aborted, and tombstones. Groups have no members in it."""
    root = folder / "generated"
    shape = LogShape(20_000, PARTITIONS, groups=80, segment_bytes=100_000, transaction_rate=0.05, death_rate=0.02)
    write_log(root, shape._replace(group_record_rate=0.0), seed=11)
    DataFolder(root, PARTITIONS, TRANSACTION_PARTITIONS).close()
    return root


def kafka_with_topics(folder: Path, settings: dict[str, object]) -> RealKafka:
    """One that has made its topics and is stopped."""
    stopped = stopped_kafka(folder)
    assert stopped.data.is_dir()
    return RealKafka(folder, settings)


def folders(data: Path) -> list[Path]:
    return [data / f"{TOPIC}-{number}" for number in range(PARTITIONS)]


def closed_ends(data: Path) -> dict[int, int]:
    """Where the open segment of each partition begins."""
    return {number: log_files(Disk(), folder).files[-1].base for number, folder in enumerate(folders(data))}


def live(folder: Path, end: int) -> Live:
    """The keys that live below an offset, by a replay: which record is theirs, and its value."""
    found: dict[bytes, tuple[int, bytes | None]] = {}
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
            found.update((name, (at, what)) for name, at, what in records if at > found.get(name, (-1, None))[0])
    return {key: (at, value) for key, (at, value) in found.items() if value is not None}


def batches(folder: Path) -> Iterator[Batch]:
    for file in log_files(Disk(), folder).files:
        yield from scan(Disk(), file.path)


def count(folder: Path, end: int) -> int:
    return sum(batch.record_count for batch in batches(folder) if batch.base_offset < end)


def cleaned_to(kafka: Path) -> dict[int, int]:
    """Kafka's note of how far its cleaner is."""
    path = kafka / "cleaner-offset-checkpoint"
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return {int(line[1]): int(line[2]) for line in lines if len(line) == 3 and line[0] == TOPIC}


def test_kafka_starts_on_log_compacted_by_spark(
    spark: SparkSession, kafka_jars: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside a running server. Kafka's tool prints every file without a complaint, Kafka tells what we told before."""
    data, told = filled_data(tmp_path, "--spark")
    # What is in the partitions' files at that moment depends on when the server has laid it in.
    assert re.match(r"[2-9] partitions compacted, ", capsys.readouterr().out)
    assert any(newest_manifest(Disk(), folder).generation for folder in folders(data))
    kafka = kafka_with_topics(tmp_path, KEEP_OFFSETS)
    assert main(export, "--data", data, "--kafka-dir", kafka.data) == 0
    for folder in folders(kafka.data):
        assert_kafka_reads(kafka_jars, folder)
    kafka.start()
    try:
        assert table(kafka.bootstrap, tmp_path / "theirs.csv") == told
    finally:
        kafka.stop()


def test_kafka_cleaner_and_spark_compaction_keep_same_records(spark: SparkSession, tmp_path: Path) -> None:
    """The same keys with the same values, from the same records; and both drop most of the log."""
    data = generated(tmp_path)
    ends = closed_ends(data)
    kafka = kafka_with_topics(tmp_path, EAGER_CLEANER)
    assert main(export, "--data", data, "--kafka-dir", kafka.data) == 0
    assert closed_ends(kafka.data) == ends, "the segments are ours"
    kafka.start()
    try:
        wait_until(lambda: cleaned_to(kafka.data), lambda found: found == ends, "Kafka's cleaner", DEADLINE_S)
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
        kept = count(folders(kafka.data)[number], end)
        assert len(theirs) <= kept < before / 2
        # A transaction whose end is in the open segment holds us back, and not Kafka, which has it in memory.
        if newest_manifest(Disk(), folders(data)[number]).clean_end == end:
            compared += 1
            assert count(folders(data)[number], end) <= kept + 2
    assert compared > PARTITIONS / 2
