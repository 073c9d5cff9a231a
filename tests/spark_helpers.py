"""Reads a log as a task of the data source does, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any

import pyarrow as pa

from callboard.spark.columns import arrow_schema
from callboard.spark.files import find_log
from callboard.spark.options import parse_options
from callboard.spark.scan import PartitionScan

START_MS = 1_700_000_000_000
DAY_MS = 86_400_000
Row = dict[str, Any]

I16, I64 = Struct(">h"), Struct(">q")


def read_rows(root: Path, number: int = 0, chunk_bytes: int = 8 << 20, **options: str) -> list[Row]:
    """The rows of one log partition."""
    return list(iter_rows(root, number, chunk_bytes, **options))


def iter_rows(root: Path, number: int = 0, chunk_bytes: int = 8 << 20, **options: str) -> Iterator[Row]:
    parsed_options = parse_options({"path": str(root), **options})
    location = find_log(str(root))
    for batch in PartitionScan(location.disk, location.folders[number], number, parsed_options, chunk_bytes).batches():
        assert batch.schema.equals(arrow_schema(parsed_options.columns))
        yield from rows_of(batch)


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """Rows with times as microseconds; Python's datetime has a smaller range than Arrow's."""
    names = [field.name for field in batch.schema if pa.types.is_timestamp(field.type)]
    for name in names:
        at = batch.schema.get_field_index(name)
        batch = batch.set_column(at, name, batch.column(at).cast(pa.int64()))
    return list(batch.to_pylist())


def text(value: str | bytes) -> bytes:
    data = value if isinstance(value, bytes) else value.encode()
    return I16.pack(len(data)) + data
