"""Ranges of log offsets that are copied to a table, their rows, and the tasks that read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ...runtime.disk.disk import Disk
from ..options import Options
from ..scan import PartitionScan
from ..tasks import TASK_BYTES, distribute, run_for_each
from .progress import DAY, FROM_OFFSET
from .table import DATED_SCHEMA

HISTORY_KINDS = frozenset({"offset", "group", "consumer", "marker", "unknown", "damage"})
"""The kinds of rows in a table. ``damage`` is a record that cannot be decoded although its checksum is right."""

TABLE_SCHEMA = f"{DATED_SCHEMA}, {FROM_OFFSET} bigint"


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
        firsts = pa.repeat(pa.scalar(keep_range.first, pa.int64()), batch.num_rows)
        yield with_day(batch).append_column(pa.field(FROM_OFFSET, pa.int64()), firsts)


def with_day(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Add the day, in UTC."""
    days = rows.column("timestamp").cast(pa.timestamp("us")).cast(pa.date32(), safe=False)
    return pa.RecordBatch.from_arrays([*rows.columns, days], names=[*rows.schema.names, DAY])


def run_tasks(
    spark: SparkSession,
    ranges: Sequence[KeepRange],
    run_task: Callable[[list[KeepRange]], Iterator[pa.RecordBatch]],
    schema: str,
) -> DataFrame:
    """Distribute ranges over tasks of about the same size; ``run_task`` gives the batches of one task."""
    sizes = {keep_range: keep_range.size for keep_range in ranges}
    tasks = distribute(sizes, -(-sum(sizes.values()) // TASK_BYTES))
    return run_for_each(spark, tasks, run_task, schema, len(tasks))
