"""A history's table at a URL: a copy of it in an object store, for queries.

Spark reads such a table through pyarrow or fsspec in its Python workers, so the session needs no jars. Nothing writes
to it: the writer's lock and durable replacement need a local or shared folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ...runtime.common.errors import StartError
from ..columns import ALL_COLUMNS, arrow_schema, spark_schema
from ..files import RemoteDisk, filesystem_of, is_url
from ..tasks import freeze_gc_once
from .table import DAY, FROM_OFFSET, LOG_PARTITION, PLAIN_SCHEMA, HistoryTable, Snapshot, parse_day, read_info

FORMAT = "parquet"
FILES_PER_TASK = 16

_SNAPSHOT_SCHEMA = arrow_schema(list(ALL_COLUMNS)).append(pa.field(DAY, pa.date32()))
_FILE_SCHEMA = arrow_schema([name for name in ALL_COLUMNS if name != LOG_PARTITION])
"""The columns of a file with rows; the others are names of its folders."""


def open_table(table: HistoryTable | str | Path) -> HistoryTable:
    """The table in a folder or at a URL. Raises StartError if there is none, or one that cannot be read."""
    if isinstance(table, HistoryTable):
        return table
    return RemoteTable.at(str(table)) if is_url(str(table)) else HistoryTable.open(table)


class FileOfRows(NamedTuple):
    """A file with rows of one day and log partition; ``day`` is None for records without a valid time."""

    path: str
    day: date | None
    log_partition: int
    from_offset: int


class RemoteTable(HistoryTable):
    """A table that is only read."""

    def __init__(self, url: str) -> None:
        filesystem, inside = filesystem_of(url)
        self._remote_disk = RemoteDisk(filesystem)
        self._url = url
        path = Path(inside)
        super().__init__(path, read_info(path, self._remote_disk, url), self._remote_disk)

    @classmethod
    def at(cls, url: str) -> RemoteTable:
        """Raises StartError if there is no table at the URL, or one whose files are not Parquet."""
        try:
            table = cls(url)
        except ValueError as error:
            raise StartError(str(error)) from None
        if table.info.format != FORMAT:
            raise StartError(
                f"{url}: found a table in the format {table.info.format}, expected {FORMAT}; read others in a local or"
                " shared folder"
            )
        return table

    def days(self) -> list[str]:
        prefix = f"{DAY}="
        return [name.removeprefix(prefix) for name in self._remote_disk.names(self.path) if name.startswith(prefix)]

    def snapshot_rows(self, spark: SparkSession, snapshot: Snapshot) -> DataFrame:
        files = self._remote_disk.files(self.snapshot_path(snapshot))
        schema = f"{spark_schema(list(ALL_COLUMNS))}, {DAY} date"
        return read_files(spark, self._url, files, _SNAPSHOT_SCHEMA, schema, lambda path, rows: rows)

    def _read_all(self, spark: SparkSession) -> DataFrame:
        return self._read_days(spark, self.days())

    def _read_days_after(self, spark: SparkSession, day: str) -> DataFrame:
        return self._read_days(spark, [name for name in self.days() if name > day])

    def _read_days(self, spark: SparkSession, days: Sequence[str]) -> DataFrame:
        paths = (path for day in days for path in self._remote_disk.files(self.path / f"{DAY}={day}"))
        files = {file.path: file for file in map(file_of_rows, paths)}

        def with_folder_names(path: str, rows: pa.RecordBatch) -> pa.RecordBatch:
            return add_folder_names(files[path], rows)

        return read_files(spark, self._url, list(files), _FILE_SCHEMA, PLAIN_SCHEMA, with_folder_names)


def file_of_rows(path: str) -> FileOfRows:
    day, number, first = (name.partition("=")[2] for name in Path(path).parts[-4:-1])
    return FileOfRows(path, parse_day(day), int(number), int(first))


def add_folder_names(file: FileOfRows, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Add the columns that are names of folders, as Spark does."""
    values = {DAY: (file.day, pa.date32()), LOG_PARTITION: (file.log_partition, pa.int32())}
    values[FROM_OFFSET] = (file.from_offset, pa.int64())
    added = [pa.repeat(pa.scalar(value, kind), rows.num_rows) for value, kind in values.values()]
    return pa.RecordBatch.from_arrays([*rows.columns, *added], names=[*rows.schema.names, *values])


def read_files(
    spark: SparkSession,
    url: str,
    paths: Sequence[str],
    schema: pa.Schema,
    spark_schema: str,
    complete: Callable[[str, pa.RecordBatch], pa.RecordBatch],
) -> DataFrame:
    """The rows of Parquet files in the file system of a URL. ``schema``: that of the files."""
    if not paths:
        return spark.createDataFrame([], spark_schema)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc_once()
        filesystem, _ = filesystem_of(url)
        for batch in batches:
            for index in batch.column(0).to_pylist():
                for rows in read_file(filesystem, paths[index], schema):
                    yield complete(paths[index], rows)

    indexes = spark.range(0, len(paths), numPartitions=-(-len(paths) // FILES_PER_TASK))
    return indexes.mapInArrow(read, spark_schema)


def read_file(filesystem: Any, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    from pyarrow.parquet import ParquetFile

    with filesystem.open_input_file(path) as source:
        for rows in ParquetFile(source, coerce_int96_timestamp_unit="us").iter_batches():
            yield from _with_all_columns(pa.Table.from_batches([rows]), schema).cast(schema).to_batches()


def _with_all_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Columns that an older version did not write are null."""
    for name in schema.names:
        if name not in rows.schema.names:
            rows = rows.append_column(name, pa.nulls(rows.num_rows, schema.field(name).type))
    return rows.select(schema.names)
