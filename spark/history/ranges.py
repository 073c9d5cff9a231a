"""Ranges of log offsets that are copied to a table, their rows, and the tasks that read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ...runtime.disk.disk import Disk
from ..columns import ALL_COLUMNS, spark_schema
from ..options import Options
from ..scan import PartitionScan
from ..tasks import TASK_BYTES, distribute, freeze_gc_once
from .table import DAY, FROM_OFFSET

HISTORY_KINDS = frozenset({"offset", "group", "consumer", "marker", "unknown", "damage"})
"""The kinds of rows in a table. ``damage`` is a record that cannot be decoded although its checksum is right."""

TABLE_SCHEMA = f"{spark_schema(list(ALL_COLUMNS))}, {DAY} date, {FROM_OFFSET} bigint"


class KeepRange(NamedTuple):
    """Offsets from ``first`` up to ``end`` of one log partition, in files of ``size`` bytes."""

    log_partition: int
    folder: Path
    first: int
    end: int
    size: int


class ValidRange(NamedTuple):
    """A range without damage, and its number of records."""

    range: KeepRange
    records: int


def rows_of(keep_range: KeepRange) -> Iterator[pa.RecordBatch]:
    """The rows of a range, with the day and the first offset of the range. Raises as the log's readers do."""
    options = Options("", kinds=HISTORY_KINDS, is_permissive=True)
    scan = PartitionScan(Disk(), keep_range.folder, keep_range.log_partition, options)
    for batch in scan.between(keep_range.first, keep_range.end, None, report_gap=False):
        yield _with_table_columns(batch, keep_range.first)


def _with_table_columns(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Add the day, in UTC, and the first offset of the range."""
    days = batch.column("timestamp").cast(pa.timestamp("us")).cast(pa.date32(), safe=False)
    firsts = pa.repeat(pa.scalar(first, pa.int64()), batch.num_rows)
    return pa.RecordBatch.from_arrays([*batch.columns, days, firsts], names=[*batch.schema.names, DAY, FROM_OFFSET])


def run_tasks(
    spark: SparkSession,
    ranges: Sequence[KeepRange],
    run_task: Callable[[list[list[KeepRange]], int], Iterator[pa.RecordBatch]],
    schema: str,
) -> DataFrame:
    """Distribute ranges over tasks of about the same size; ``run_task(tasks, index)`` gives the batches of one task."""
    sizes = {keep_range: keep_range.size for keep_range in ranges}
    tasks: list[list[KeepRange]] = distribute(sizes, -(-sum(sizes.values()) // TASK_BYTES))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc_once()
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from run_task(tasks, index)

    indexes: Any = spark.range(0, len(tasks), numPartitions=len(tasks))
    frame: DataFrame = indexes.mapInArrow(run, schema)
    return frame
