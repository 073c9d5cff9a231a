"""Writes the files of a table at a URL, in Spark's Python workers. A task reports its files, and the commit names them.

Each attempt of a task writes files with new names, and Spark takes the report of one attempt. So a repeated or
speculative attempt leaves files that nothing names. A task reads each file again after writing it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from ..files import filesystem_of
from ..tasks import freeze_gc_once, run_for_each
from .creating import make_durable
from .files_table import FilesTable
from .progress import DAY, FROM_OFFSET, LOG_PARTITION
from .ranges import KeepRange, rows_of, run_tasks
from .remote import FILE_SCHEMA, SNAPSHOT_SCHEMA, file_of_rows, read_file
from .row_folders import NO_DAY
from .table import FOLDER

ROW_GROUP = 100_000
Counts = dict[int, tuple[int, int]]
"""For each log partition the number of records, and of distinct offsets in each file."""

Sizes = dict[str, int | None]
"""The sizes in bytes of files, by their paths in the table."""

_WRITTEN_COLUMNS = {
    "path": ("string", pa.string()),
    "size": ("bigint", pa.int64()),
    "log_partition": ("int", pa.int32()),
    "records": ("bigint", pa.int64()),
    "distinct": ("bigint", pa.int64()),
}
_WRITTEN_DDL = ", ".join(f"{name} {kind}" for name, (kind, _) in _WRITTEN_COLUMNS.items())
_WRITTEN_SCHEMA = pa.schema([(name, kind) for name, (_, kind) in _WRITTEN_COLUMNS.items()])


class WrittenFile(NamedTuple):
    """A file, by its path in the table, its size in bytes, and what was found in it after it was written."""

    path: str
    size: int
    log_partition: int
    records: int
    distinct: int


class FileWriter:
    """Writes one file durably. Used as a context; an error leaves a file that nothing names."""

    def __init__(self, filesystem: Any, root: str, folder: str, schema: pa.Schema) -> None:
        from pyarrow.fs import LocalFileSystem, PyFileSystem
        from pyarrow.parquet import ParquetWriter

        self.path = f"{folder}/{uuid4().hex}.parquet"
        self._filesystem = filesystem
        self._root = root
        self._full_path = f"{root}/{self.path}"
        self._is_local = isinstance(filesystem, LocalFileSystem)
        self._schema = schema
        if self._is_local or isinstance(filesystem, PyFileSystem):  # stores of objects have no folders
            filesystem.create_dir(str(Path(self._full_path).parent), recursive=True)
        self._sink = filesystem.open_output_stream(self._full_path)
        self._parquet = ParquetWriter(self._sink, schema, compression="zstd", write_page_checksum=True)
        self._waiting: list[pa.RecordBatch] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
            self._parquet.close()
            self._sink.close()
            if self._is_local:
                make_durable(Path(self._full_path), Path(self._root))

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows, which have the file's columns and may have others."""
        self._waiting.append(rows.select(self._schema.names))
        if sum(batch.num_rows for batch in self._waiting) >= ROW_GROUP:
            self._flush()

    def written(self, log_partition: int) -> WrittenFile:
        """Read the offsets in the closed file. Raises OSError."""
        from pyarrow.parquet import read_table

        with self._filesystem.open_input_file(self._full_path) as source:
            size, offsets = source.size(), read_table(source, columns=["log_offset"]).column(0)
        return WrittenFile(self.path, size, log_partition, len(offsets), len(offsets.unique()))

    def _flush(self) -> None:
        if self._waiting:
            self._parquet.write_table(pa.Table.from_batches(self._waiting).cast(self._schema))
            self._waiting = []


def write_ranges(spark: SparkSession, table: FilesTable, ranges: Sequence[KeepRange]) -> tuple[Sizes, Counts]:
    """Write a file for each range and day. Returns the files and what is in them."""
    url = table.location.url

    def write_task(some_ranges: list[KeepRange]) -> Iterator[pa.RecordBatch]:
        for keep_range in some_ranges:
            yield _reported(_write_range(url, keep_range))

    return _collected(run_tasks(spark, ranges, write_task, _WRITTEN_DDL))


def _write_range(url: str, keep_range: KeepRange) -> list[WrittenFile]:
    filesystem, root = filesystem_of(url)
    writers: dict[Any, FileWriter] = {}
    for batch in rows_of(keep_range):
        days = batch.column(batch.schema.get_field_index(DAY))
        for day in days.unique():
            if day.as_py() not in writers:
                folder = _folder(day.as_py(), keep_range.log_partition, keep_range.first)
                writers[day.as_py()] = FileWriter(filesystem, root, folder, FILE_SCHEMA)
            is_of_day = pc.equal(days, day) if day.is_valid else pc.is_null(days)
            writers[day.as_py()].add(batch.filter(is_of_day))
    return [_closed(writer, keep_range.log_partition) for writer in writers.values()]


def merge_files(
    spark: SparkSession, table: FilesTable, slices: Mapping[tuple[str, int], Mapping[str, int | None]]
) -> tuple[Sizes, Counts]:
    """Write one file with the rows of each slice's files. A slice has the files of one day and log partition."""
    url = table.location.url

    def merge(item: tuple[tuple[str, int], Mapping[str, int | None]]) -> Iterator[pa.RecordBatch]:
        (day, log_partition), files = item
        yield _reported([_merge_slice(url, day, log_partition, files)])

    task_count = min(len(slices), spark.sparkContext.defaultParallelism)
    return _collected(run_for_each(spark, list(slices.items()), merge, _WRITTEN_DDL, task_count))


def _merge_slice(url: str, day: str, log_partition: int, files: Mapping[str, int | None]) -> WrittenFile:
    filesystem, root = filesystem_of(url)
    in_order = sorted(map(file_of_rows, files), key=lambda file: file.from_offset)
    with FileWriter(filesystem, root, _folder(day, log_partition, in_order[0].from_offset), FILE_SCHEMA) as writer:
        for file in in_order:
            for rows in read_file(filesystem, f"{root}/{file.path}", files[file.path], FILE_SCHEMA):
                writer.add(rows)
    return writer.written(log_partition)


def write_snapshot(table: FilesTable, rows: DataFrame) -> tuple[Sizes, int]:
    """Write the rows of a snapshot. Returns their file, and their number."""
    url = table.location.url

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc_once()
        filesystem, root = filesystem_of(url)
        with FileWriter(filesystem, root, f"{FOLDER}/snapshots", SNAPSHOT_SCHEMA) as writer:
            for batch in batches:
                writer.add(batch)
        yield _reported([writer.written(0)])

    files, counts = _collected(rows.repartition(1).mapInArrow(write, _WRITTEN_DDL))
    return files, sum(records for records, _ in counts.values())


def _closed(writer: FileWriter, log_partition: int) -> WrittenFile:
    with writer:
        pass
    return writer.written(log_partition)


def _folder(day: Any, log_partition: int, first: int) -> str:
    return f"{DAY}={day or NO_DAY}/{LOG_PARTITION}={log_partition}/{FROM_OFFSET}={first}"


def _reported(files: Sequence[WrittenFile]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([file._asdict() for file in files], schema=_WRITTEN_SCHEMA)


def _collected(frame: DataFrame) -> tuple[Sizes, Counts]:
    counts: Counts = {}
    files = [WrittenFile(*row) for row in frame.collect()]
    for file in files:
        records, distinct = counts.get(file.log_partition, (0, 0))
        counts[file.log_partition] = records + file.records, distinct + file.distinct
    return {file.path: file.size for file in files}, counts
