"""Reads a history's table at a URL: a copy of a folder, or one that was made there (files_table.py).

Spark reads such a table through pyarrow or fsspec in its Python workers, so the session needs no jars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ...runtime.cluster.engines import without_password
from ...runtime.common.errors import StartError
from ..columns import ALL_COLUMNS, arrow_schema
from ..files import RemoteDisk, filesystem_of
from ..tasks import run_for_each
from .creating import Create, creator_of
from .file_lists import LIST_NAME, check_content_of_list, check_size
from .progress import DAY, FROM_OFFSET, LOG_PARTITION, HistoryProgress, Snapshot
from .row_folders import check_count, committed_folders, parse_day
from .table import DATED_SCHEMA, PLAIN_SCHEMA, HistoryTable, TableInfo

FILES_PER_TASK = 16

SNAPSHOT_SCHEMA = arrow_schema(list(ALL_COLUMNS)).append(pa.field(DAY, pa.date32()))
FILE_SCHEMA = arrow_schema([name for name in ALL_COLUMNS if name != LOG_PARTITION])
"""The columns of a file with rows; the others are names of its folders."""


class FileOfRows(NamedTuple):
    """A file with rows of one day and log partition; ``day`` is None for records without a valid time."""

    path: str
    day: date | None
    log_partition: int
    from_offset: int


class TableUrl:
    """Where a table is. Raises StartError for a URL that neither pyarrow nor fsspec can open, or that names nothing.

    ``shown``: the URL without a password.
    """

    def __init__(self, url: str) -> None:
        try:
            self.filesystem, inside = filesystem_of(url)
        except ValueError as error:
            raise StartError(str(error)) from None
        self.url = url
        self.shown = without_password(url)
        if not inside.strip("/"):
            raise StartError(
                f"{self.shown}: found no name of a bucket or folder, expected one, as in s3://bucket/table"
            )
        self.path = Path(inside)
        self.disk = RemoteDisk(self.filesystem)
        self._creator: Create | None = None

    def absolute(self, paths: Iterable[str]) -> list[str]:
        """Paths in the table as paths in the file system."""
        return [f"{self.path}/{path}" for path in paths]

    def create(self, path: Path, data: bytes) -> bool:
        """Create a file, in one step. False if there is one. Raises StartError if the file system cannot do it."""
        self._creator = self._creator or creator_of(self.url, self.filesystem, self.path)
        return self._creator(str(path), data)

    def list_all(self) -> list[Any]:
        """pyarrow's FileInfo of all files."""
        from pyarrow.fs import FileSelector, FileType

        infos = self.filesystem.get_file_info(FileSelector(str(self.path), recursive=True, allow_not_found=True))
        return [info for info in infos if info.type == FileType.File]

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError):
            self.filesystem.delete_file(path)


class RemoteTable(HistoryTable):
    """A copy of a table that was made in a folder. It is only read."""

    def __init__(self, location: TableUrl, info: TableInfo) -> None:
        super().__init__(location.path, info, location.disk)
        self.location = location
        self._remote_disk = location.disk

    @property
    def name(self) -> str:
        return self.location.shown

    def days(self) -> list[str]:
        prefix = f"{DAY}="
        return [name.removeprefix(prefix) for name in self._remote_disk.names(self.path) if name.startswith(prefix)]

    def snapshot_rows(self, spark: SparkSession, snapshot: Snapshot) -> DataFrame:
        paths = self._remote_disk.files(self.snapshot_path(snapshot), LIST_NAME)
        return read_snapshot(spark, self.location.url, dict.fromkeys(paths))

    def _check_files(self, progress: HistoryProgress, after: Snapshot | None) -> None:
        """The tasks that read the files compare them with their lists."""

    def _read_all(self, spark: SparkSession) -> DataFrame:
        return self._read_days(spark, self.days(), is_all=True)

    def _read_days_after(self, spark: SparkSession, day: str) -> DataFrame:
        return self._read_days(spark, [name for name in self.days() if name > day])

    def _read_days(self, spark: SparkSession, days: Sequence[str], is_all: bool = False) -> DataFrame:
        """A copy may have been made while rows were written that no commit covers."""
        progress = self.progress()
        paths = [path for day in days for path in self._remote_disk.files(self.path / f"{DAY}={day}", LIST_NAME)]
        committed = set(committed_folders({Path(path).parent for path in paths}, progress))
        if is_all:
            check_count(committed, progress, self.name)
        of_history = dict.fromkeys(path for path in paths if Path(path).parent in committed)
        return read_rows(spark, self.location.url, of_history)


def read_rows(spark: SparkSession, url: str, paths: Mapping[str, int | None]) -> DataFrame:
    """The rows of files in the folders of a table, with the columns that are names of folders."""
    return read_files(spark, url, paths, FILE_SCHEMA, PLAIN_SCHEMA, add_folder_names)


def read_snapshot(spark: SparkSession, url: str, paths: Mapping[str, int | None]) -> DataFrame:
    """The rows of a snapshot's files."""
    return read_files(spark, url, paths, SNAPSHOT_SCHEMA, DATED_SCHEMA, lambda path, rows: rows)


def file_of_rows(path: str) -> FileOfRows:
    day, number, first = (name.partition("=")[2] for name in Path(path).parts[-4:-1])
    return FileOfRows(path, parse_day(day), int(number), int(first))


def add_folder_names(path: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Add the columns that are names of the file's folders, as Spark does."""
    file = file_of_rows(path)
    values = {DAY: (file.day, pa.date32()), LOG_PARTITION: (file.log_partition, pa.int32())}
    values[FROM_OFFSET] = (file.from_offset, pa.int64())
    added = [pa.repeat(pa.scalar(value, kind), rows.num_rows) for value, kind in values.values()]
    return pa.RecordBatch.from_arrays([*rows.columns, *added], names=[*rows.schema.names, *values])


def read_files(
    spark: SparkSession,
    url: str,
    files: Mapping[str, int | None],
    schema: pa.Schema,
    spark_schema: str,
    complete: Callable[[str, pa.RecordBatch], pa.RecordBatch],
) -> DataFrame:
    """The rows of Parquet files in the file system of a URL. ``files``: their sizes in bytes, or None, by their paths.

    The path may be that of a list of files, which is compared with the files. ``schema``: that of the files.
    """
    if not files:
        return spark.createDataFrame([], spark_schema)

    def read(some_files: Sequence[tuple[str, int | None]]) -> Iterator[pa.RecordBatch]:
        filesystem, root = filesystem_of(url)
        for path, size in some_files:
            if Path(path).name == LIST_NAME:
                _check_list(filesystem, Path(root), Path(path))
                continue
            for rows in read_file(filesystem, path, size, schema):
                yield complete(path, rows)

    items = list(files.items())
    tasks = [items[first : first + FILES_PER_TASK] for first in range(0, len(items), FILES_PER_TASK)]
    return run_for_each(spark, tasks, read, spark_schema, len(tasks))


def read_file(filesystem: Any, path: str, size: int | None, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file of ``size`` bytes, or None. Raises StartError for another size, OSError for a damaged file."""
    from pyarrow.parquet import ParquetFile

    try:
        with filesystem.open_input_file(path) as source:
            if size is not None:
                check_size(Path(path), source.size(), size)
            file = ParquetFile(source, coerce_int96_timestamp_unit="us", page_checksum_verification=True)
            for rows in file.iter_batches():
                yield from _with_all_columns(pa.Table.from_batches([rows]), schema).cast(schema).to_batches()
    except (OSError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise OSError(f"{path}: cannot be read ({reason}); if it is damaged, put a copy of it back") from None


def _check_list(filesystem: Any, table: Path, path: Path) -> None:
    from pyarrow.fs import FileSelector, FileType

    with filesystem.open_input_file(str(path)) as source:
        content = source.read()
    infos = filesystem.get_file_info(FileSelector(str(path.parent)))
    files = (info for info in infos if info.type == FileType.File and info.base_name[0] not in "._")
    check_content_of_list(table, path, content, {info.base_name: info.size for info in files})


def _with_all_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Columns that an older version did not write are null."""
    for name in schema.names:
        if name not in rows.schema.names:
            rows = rows.append_column(name, pa.nulls(rows.num_rows, schema.field(name).type))
    return rows.select(schema.names)
