"""The live state of a data folder as DataFrames: what every group has committed, and what every group is.

A key never leaves its log partition, so a task reads whole partitions, keeps the newest record of each key, and nothing
is shuffled. Tasks hand over Arrow batches, which Spark takes as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ..runtime.log.reading import live_groups, live_offsets, partition_folders

Row = tuple[Any, ...]

# A task costs some 0.05 s before it reads a byte; four partitions in each still spread the usual 50 over 13 cores.
PARTITIONS_PER_TASK = 4
ROWS_PER_BATCH = 10_000  # Spark's own default for Arrow batches
MAX_TIME_MS = 253402300799999  # the last of the year 9999: Python and SQL have no later time

# Spark's names of types; Arrow's stand below, under the same names.
OFFSETS = {
    "group": "string",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "leader_epoch": "int",
    "metadata": "string",
    "commit_timestamp": "timestamp",
    "expire_timestamp": "timestamp",
    "log_partition": "int",
    "log_offset": "bigint",
}
MEMBER = {
    "member_id": "string",
    "group_instance_id": "string",
    "client_id": "string",
    "client_host": "string",
    "rebalance_timeout_ms": "int",
    "session_timeout_ms": "int",
    "subscription": "binary",
    "assignment": "binary",
}
MEMBERS = f"array<struct<{', '.join(f'{name}: {kind}' for name, kind in MEMBER.items())}>>"
GROUPS = {
    "group": "string",
    "generation": "int",
    "protocol_type": "string",
    "protocol": "string",
    "leader": "string",
    "current_state_timestamp": "timestamp",
    "members": MEMBERS,
    "log_partition": "int",
    "log_offset": "bigint",
}
_ARROW = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "binary": pa.binary(),
}
_ARROW[MEMBERS] = pa.list_(pa.struct([(name, _ARROW[kind]) for name, kind in MEMBER.items()]))


def read_offsets(spark: SparkSession, data: str | Path) -> DataFrame:
    """The committed offsets that are live in the data folder ``data``: the newest of each key, without deleted ones.

    The columns are those of ``OFFSETS``; -1 in the log, which means that there is none, is null here. ``log_partition``
    and ``log_offset`` say which record a row comes from. Every action reads the files anew, and every worker must see
    them under the same path. While a server runs they may be a quarter of a second behind what it has acknowledged,
    which its journal holds; after a clean stop they are exact.

    FileNotFoundError when ``data`` is no data folder; damage in a file fails the action, with the file and the byte.
    """
    return _read(spark, data, OFFSETS, _offset_rows)


def read_groups(spark: SparkSession, data: str | Path) -> DataFrame:
    """The groups that are live in the data folder ``data``, with their members; columns as in ``GROUPS``.

    A group that only commits offsets and has no members never had such a record. All else as for ``read_offsets``.
    """
    return _read(spark, data, GROUPS, _group_rows)


def _read(
    spark: SparkSession, data: str | Path, columns: dict[str, str], rows: Callable[[int, Path], Iterator[Row]]
) -> DataFrame:
    folders = list(partition_folders(Path(data).absolute()).items())
    names, types = list(columns), [_ARROW[kind] for kind in columns.values()]

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                for chunk in _chunks(rows(*folders[index])):
                    yield pa.record_batch(list(map(pa.array, zip(*chunk, strict=True), types)), names)

    tasks = -(-len(folders) // PARTITIONS_PER_TASK)
    schema = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
    return spark.range(0, len(folders), numPartitions=max(1, tasks)).mapInArrow(read, schema)


def _chunks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while chunk := list(islice(rows, ROWS_PER_BATCH)):
        yield chunk


def _offset_rows(log_partition: int, folder: Path) -> Iterator[Row]:
    for (group, topic, partition), (log_offset, value) in live_offsets(folder).items():
        leader_epoch = None if value.leader_epoch == -1 else value.leader_epoch
        times = _time(value.commit_timestamp_ms), _time(value.expire_timestamp_ms)
        yield (group, topic, partition, value.offset, leader_epoch, value.metadata, *times, log_partition, log_offset)


def _group_rows(log_partition: int, folder: Path) -> Iterator[Row]:
    for group, (log_offset, value) in live_groups(folder).items():
        time = _time(value.current_state_timestamp_ms)
        head = value.generation, value.protocol_type, value.protocol, value.leader, time
        yield (group, *head, value.members, log_partition, log_offset)


def _time(time_ms: int) -> int | None:
    """Microseconds since the epoch; None for -1, and for what no calendar holds: one such row would fail a query."""
    return time_ms * 1000 if 0 <= time_ms <= MAX_TIME_MS else None
