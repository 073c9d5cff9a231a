"""Fixtures with Kafka's log folders and a data folder, for tests of the export and import of logs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from log_helpers import offset
from partition_helpers import TIME_MS, plain, transactional, write

from callboard.actors.javahash import offsets_partition
from callboard.actors.records import (
    MarkerRecord,
    PendingOffsetRecord,
    TransactionRecord,
    TransactionValue,
    UnknownRecord,
)
from callboard.runtime.cli.exchange.kafka_export import CHECKPOINTS, METADATA
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.format.batch import encode_batch, frame_record
from callboard.runtime.log.format.transaction_records import encode_transaction
from callboard.runtime.log.partition import TOPIC, TRANSACTIONS_TOPIC, folder_name
from callboard.runtime.log.reading.segment import segment_name

PARTITIONS, TRANSACTION_PARTITIONS = 4, 2
GROUPS = [
    next(f"g{n}" for n in range(99) if offsets_partition(f"g{n}", PARTITIONS) == partition)
    for partition in range(PARTITIONS)
]
"""One group id per partition."""

ID = next(f"t{n}" for n in range(99) if offsets_partition(f"t{n}", TRANSACTION_PARTITIONS) == 1)


@pytest.fixture
def kafka(tmp_path: Path) -> Path:
    """The log folder of a Kafka with its internal topics and the topic ``orders``."""
    folder = tmp_path / "kafka"
    for topic, count in ((TOPIC, PARTITIONS), (TRANSACTIONS_TOPIC, TRANSACTION_PARTITIONS), ("orders", 1)):
        for number in range(count):
            partition_folder = folder / folder_name(number, topic)
            partition_folder.mkdir(parents=True)
            (partition_folder / segment_name(0)).touch()
            (partition_folder / METADATA).write_text(f"version: 0\ntopic_id: {topic}\n")
            (partition_folder / "00000000000000000000.index").write_bytes(bytes(16))
            (partition_folder / "leader-epoch-checkpoint").write_text("0\n1\n5 0\n")
    (folder / "meta.properties").write_text("version=1\n")
    (folder / ".lock").touch()
    for name in CHECKPOINTS:
        (folder / name).write_text(f"0\n3\n{TOPIC} 0 7\norders 0 4\n{TRANSACTIONS_TOPIC} 1 2\n")
    (folder / CHECKPOINTS[-1]).write_text("")
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with records in two partitions, one aborted and one open transaction."""
    folder = tmp_path / "data"
    DataFolder(folder, PARTITIONS, TRANSACTION_PARTITIONS).close()
    write(
        folder,
        1,
        [plain(0, offset(GROUPS[1], 1)), plain(1, offset(GROUPS[1], 2))],
        [transactional(2, PendingOffsetRecord(GROUPS[1], "u", 0, offset("", 3).value, 9, 1))],
    )
    aborted = PendingOffsetRecord(GROUPS[3], "t", 0, offset("", 5).value, 8, 1)
    write(
        folder,
        3,
        [plain(0, offset(GROUPS[3], 4), UnknownRecord(30, b"\0\x1ekey", b"v")), transactional(2, aborted)],
        [transactional(3, MarkerRecord(8, 1, False))],
    )
    write_transaction(folder)
    return folder


def write_transaction(folder: Path) -> None:
    value = TransactionValue(9, 1, 60_000, 1, frozenset({(TOPIC, 1)}), TIME_MS, TIME_MS)
    record = frame_record(0, 0, *encode_transaction(TransactionRecord(ID, value)))
    shutil.rmtree(folder / folder_name(1, TRANSACTIONS_TOPIC), ignore_errors=True)
    write(folder, 1, [encode_batch(0, TIME_MS, TIME_MS, [record])], topic=TRANSACTIONS_TOPIC)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def full(data: Path, kafka: Path) -> Path:
    """Kafka's folders with the files of ``data``."""
    for folder in data.glob("__*"):
        for path in folder.iterdir():
            shutil.copy(path, kafka / folder.name / path.name)
    return kafka


@pytest.fixture
def copied(full: Path) -> Iterator[Path]:
    """Kafka's folders without ``meta.properties``, like a manual copy of partition folders."""
    (full / "meta.properties").unlink()
    yield full
