"""The table of a history: a folder of rows written by Spark, and metadata that says which rows are committed.

::

    TABLE/day=2026-11-21/log_partition=7/from_offset=1200/part-....parquet
    TABLE/day=2026-11-21/log_partition=7/from_offset=1200/_files.json    see file_lists.py
    TABLE/_callboard/table.json                    the cluster's id, the format, the table's id
    TABLE/_callboard/commits/%020d.json            the end offset of each log partition; the newest file is valid
    TABLE/_callboard/snapshots/2026-11-21-12/      the records that matter after that day, see snapshot.py
    TABLE/_callboard/changes.jsonl                 restores from the table: what, by whom and why
    TABLE/_callboard/lock                          held by the writer

``from_offset`` is the end offset of the log partition before the run. So a run that follows a killed one writes to the
same folders and replaces its files. In folders that a merge has written it is negative: the number of the merge's
commit. The commit also names the folders that they replace. Spark and other readers of such tables ignore names that
begin with ``_``.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from ...runtime.common.errors import StartError
from ...runtime.disk.disk import Disk, replace_file
from ...runtime.disk.modes import disk_like
from ..columns import ALL_COLUMNS, spark_schema
from .file_lists import check_list, write_list
from .metadata import VERSION, parse_fields, read_metadata, to_json
from .progress import (
    DAY,
    FROM_OFFSET,
    LOG_PARTITION,
    NO_PROGRESS,
    PARTITION_COLUMNS,
    HistoryProgress,
    Snapshot,
    commit_fields,
    parse_progress,
)
from .row_folders import (
    ROW_FOLDERS_OF_DAY,
    check_count,
    committed_folders,
    is_covered,
    is_merged,
    is_row_folder,
    next_folders,
)

FOLDER = "_callboard"
INFO_NAME = "table.json"
LOCK_NAME = "lock"
FOLDERS, FILES = "folders", "files"
"""Layouts. FOLDERS: Spark writes the folders of rows. FILES: commits name the files of rows, see files_table.py."""

PLAIN_FORMATS = ("parquet", "orc", "json")
"""Formats without metadata of their own. Others (delta, iceberg) need jars in the session, and store their schema."""

DATED_SCHEMA = f"{spark_schema(list(ALL_COLUMNS))}, {DAY} date"
"""Of the records that a history gives."""

PLAIN_SCHEMA = (
    f"{spark_schema([name for name in ALL_COLUMNS if name != LOG_PARTITION])}, {DAY} date, {LOG_PARTITION} int,"
    f" {FROM_OFFSET} bigint"
)
VERIFY_PAGES = ("parquet.page.verify-checksum.enabled", "true")
"""An option of Spark's Parquet reader."""

_COMMIT = re.compile(r"([0-9]{20})\.json")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_PATTERN = re.compile(r"[\[\]{}*?\\]")
"""Spark takes a path with one of these for a pattern of paths."""
_STAGING = ".spark-staging-"


class TableInfo(NamedTuple):
    """The table's identity. ``cluster_id``: the cluster whose history it has. ``created_ms``: ms since 1970.

    ``layout``: FOLDERS or FILES.
    """

    table_id: str
    cluster_id: str
    format: str
    created_ms: int
    layout: str = FOLDERS


class HistoryTable:
    """An existing table. Reading needs no lock: rows are visible once a commit covers them."""

    def __init__(self, path: Path, info: TableInfo, disk: Disk) -> None:
        self.path = path
        self.info = info
        self._disk = disk

    @classmethod
    def open(cls, path: str | Path, disk: Disk | None = None) -> HistoryTable:
        """Raises StartError if there is no table, one of a newer version, or for a URL."""
        refuse_url(path)
        path = Path(path).absolute()
        disk = disk or disk_like(path)
        info = read_info(path, disk, str(path))
        if info.layout != FOLDERS:
            raise StartError(f"{path}: found a table that was made at a URL; give its URL, here {path.as_uri()}")
        return cls(path, info, disk)

    @property
    def name(self) -> str:
        """As messages show it: the folder, or the URL without a password."""
        return str(self.path)

    @classmethod
    def create(cls, path: Path, info: TableInfo, disk: Disk) -> HistoryTable:
        """Create a table in a folder that is empty or does not exist.

        Raises StartError otherwise, or if another process creates one: the table must keep the id in the data folder.
        """
        refuse_url(path)
        path = path.absolute()
        if found := _PATTERN.search(str(path)):
            raise StartError(
                f"{path}: found '{found[0]}' in the path, expected none of []{{}}*?\\, which Spark takes for a pattern;"
                " choose another"
            )
        if path.exists() and not path.is_dir():
            raise StartError(f"{path}: found a file, expected the folder of a table, or a new one; choose another")
        other_names = [name for name in disk.names(path) if name != FOLDER]
        if other_names:
            raise StartError(
                f"{path}: found {other_names[0]} and no {FOLDER}/{INFO_NAME}, expected a history or an empty folder;"
                " choose another"
            )
        table = cls(path, info, disk)
        disk.make_folder(path / FOLDER / "commits")
        with table.exclusive_writer():
            if INFO_NAME in disk.names(path / FOLDER):
                raise StartError(f"{path}: another process has just created a table there; run it again")
            replace_file(disk, path / FOLDER / INFO_NAME, to_json(VERSION, info._asdict()))
            for folder in (path, path.parent):
                disk.sync_folder(folder)
        return table

    @contextmanager
    def exclusive_writer(self) -> Iterator[None]:
        """Hold the writer's lock. Raises StartError if another process holds it."""
        fd = self._disk.open(self.path / FOLDER / LOCK_NAME, os.O_RDWR | os.O_CREAT)
        try:
            try:
                self._disk.lock(fd)
            except BlockingIOError:
                raise StartError(
                    f"{self.path}: another callboard history process is writing to it; wait until it has ended"
                ) from None
            yield
        finally:
            self._disk.close(fd)

    def progress(self) -> HistoryProgress:
        """The newest commit. Raises StartError if it cannot be read."""
        names = sorted(name for name in self._disk.names(self._commits) if _COMMIT.fullmatch(name))
        if not names:
            return NO_PROGRESS
        file = self._commits / names[-1]
        return parse_progress(file, read_metadata(self._disk, file))

    def commit(self, progress: HistoryProgress, added: list[dict[str, int]]) -> None:
        """Make the rows before these offsets visible, durably. The caller holds ``exclusive_writer``.

        ``added``: what this run added; stored for information only.
        """
        self._disk.make_folder(self._commits)
        if self.info.format in PLAIN_FORMATS:
            folders = next_folders(self.row_paths(), self.progress(), progress)
            progress = progress._replace(folders=folders)
        replace_file(self._disk, self.commit_file(progress), to_json(VERSION, commit_fields(progress, added)))

    def rows(
        self, spark: SparkSession, after: Snapshot | None = None, progress: HistoryProgress | None = None
    ) -> DataFrame:
        """The committed records, with the data source's columns and ``day``. ``after``: only those of later days.
        ``progress``: those of this commit; None is the newest one.

        Raises StartError for a file that is missing, or is not as it was written; Spark would read on without it.
        """
        progress = progress or self.progress()
        self._check_files(progress, after)
        taken_to = progress.taken_to
        frame = _with_all_columns(self._read_all(spark) if after is None else self._read_days_after(spark, after.day))
        if not taken_to:
            return frame.select(*ALL_COLUMNS, DAY).where(F.lit(False))
        pairs: list[Column] = [F.lit(number).cast("long") for pair in sorted(taken_to.items()) for number in pair]
        limit = F.create_map(*pairs)[F.col(LOG_PARTITION).cast("long")]
        frame = frame.where((F.col("log_offset") < limit) & (-F.col(FROM_OFFSET) <= progress.number))
        if progress.replaced:
            texts = (F.col(name).cast("string") for name in PARTITION_COLUMNS)
            replaced = [f"{folder.day}/{folder.log_partition}/{folder.from_offset}" for folder in progress.replaced]
            frame = frame.where(~F.coalesce(F.concat_ws("/", *texts).isin(replaced), F.lit(False)))
        return frame.select(*ALL_COLUMNS, DAY)

    def snapshot_rows(self, spark: SparkSession, snapshot: Snapshot) -> DataFrame:
        """The records of a snapshot; columns and errors as of ``rows``."""
        check_list(self._disk, self.path, self.snapshot_path(snapshot))
        reader = spark.read.schema(DATED_SCHEMA).option(*VERIFY_PAGES)
        return reader.parquet(str(self.snapshot_path(snapshot)))

    def snapshot_path(self, snapshot: Snapshot) -> Path:
        return self._snapshots / f"{snapshot.day}-{snapshot.number}"

    def _check_files(self, progress: HistoryProgress, after: Snapshot | None) -> None:
        if self.info.format not in PLAIN_FORMATS:
            return
        paths = committed_folders(self.row_paths(after.day if after else ""), progress)
        for path in paths:
            check_list(self._disk, self.path, path)
        if after is None:
            check_count(paths, progress, self.name)

    def _read_all(self, spark: SparkSession) -> DataFrame:
        return self._reader(spark).load(str(self.path))

    def _read_days_after(self, spark: SparkSession, day: str) -> DataFrame:
        """Of formats without metadata of their own, the folders of earlier days are not even listed."""
        if self.info.format not in PLAIN_FORMATS:
            return self._read_all(spark).where(F.col(DAY) > F.lit(day).cast("date"))
        paths = [str(self.path / f"{DAY}={name}") for name in self.days() if name > day]
        if not paths:
            return spark.createDataFrame([], PLAIN_SCHEMA)
        return self._reader(spark).option("basePath", str(self.path)).load(paths)

    def _reader(self, spark: SparkSession) -> DataFrameReader:
        reader = spark.read.format(self.info.format).option(*VERIFY_PAGES)
        return reader.schema(PLAIN_SCHEMA) if self.info.format in PLAIN_FORMATS else reader

    def days(self) -> list[str]:
        """The days with rows, also with uncommitted ones, as they are in the names of folders."""
        return sorted(path.name.partition("=")[2] for path in self.path.glob(f"{DAY}=*"))

    def count_rows(self, spark: SparkSession, firsts: dict[int, int]) -> dict[int, tuple[int, int]]:
        """The rows that were written from an offset of each log partition on: (records, distinct offsets)."""
        frame = self._read_all(spark)
        pairs: list[Column] = [F.lit(number).cast("long") for pair in sorted(firsts.items()) for number in pair]
        is_of_run = F.col(FROM_OFFSET) == F.create_map(*pairs)[F.col(LOG_PARTITION).cast("long")]
        by_partition = frame.where(is_of_run).groupBy(LOG_PARTITION)
        counts = by_partition.agg(F.count("log_offset"), F.count_distinct("log_offset")).collect()
        return {number: (records, distinct) for number, records, distinct in counts}

    def row_paths(self, after_day: str = "") -> Iterator[Path]:
        """The folders with rows of all days, or of later ones, also those with uncommitted rows."""
        for day in self.days():
            if day > after_day:
                yield from sorted((self.path / f"{DAY}={day}").glob(ROW_FOLDERS_OF_DAY))

    def files(self) -> set[Path]:
        """All files of the table."""
        return {Path(folder, name) for folder, _, names in os.walk(self.path) for name in names}

    def make_durable(self, files_before: set[Path]) -> None:
        """Sync the files that are not in ``files_before``, and their folders; Spark does not. Raises OSError.

        The folders with rows among them get their lists of files.
        """
        for folder in sorted({path.parent for path in self.files() - files_before}):
            is_of_rows = self.info.format in PLAIN_FORMATS and is_row_folder(str(folder.relative_to(self.path)))
            if is_of_rows or folder.parent == self._snapshots:
                write_list(self._disk, self.path, folder)
        new = self.files() - files_before
        for path in sorted(new):
            fd = self._disk.open(path, os.O_RDONLY)
            try:
                self._disk.sync(fd)
            finally:
                self._disk.close(fd)
        for folder in sorted(
            {folder_path for path in new for folder_path in path.parents if folder_path.is_relative_to(self.path)}
        ):
            self._disk.sync_folder(folder)

    def remove_leftovers(self, progress: HistoryProgress, *, of_merges: bool = False) -> None:
        """Remove folders that no commit covers, left by a killed run. The caller holds ``exclusive_writer``.

        ``of_merges``: only those of merges. Only ``keep`` knows whether the newest commit was lost: then the others
        have rows that are nowhere else.
        The next run would overwrite most of them, but not all if it finds fewer records: after damage, or if history
        was off and compaction continued. The files of transactional table formats are not touched.
        """
        leftovers = list(self.path.glob(f"{_STAGING}*"))
        if self.info.format in PLAIN_FORMATS:
            leftovers += (
                path
                for path in self.row_paths()
                if not (is_covered(path, progress) or (of_merges and not is_merged(path)))
            )
        leftovers += (path for path in self._snapshots.glob("*-*") if _snapshot_number(path) > progress.number)
        for path in leftovers:
            with suppress(FileNotFoundError):
                shutil.rmtree(path)

    def commit_file(self, progress: HistoryProgress) -> Path:
        """The file of a commit."""
        return self._commits / f"{progress.number:020d}.json"

    @property
    def _commits(self) -> Path:
        return self.path / FOLDER / "commits"

    @property
    def _snapshots(self) -> Path:
        return self.path / FOLDER / "snapshots"


def refuse_url(path: str | Path) -> None:
    """Raise StartError for a URL, also one that was made a Path."""
    if _URL.match(str(path)):
        raise StartError(
            f"{path}: found a URL, expected a folder, or a URL with two slashes, as in s3://bucket/table; in Python,"
            " give it as a string to open_table or the functions of callboard.spark.history: a Path removes a slash"
        )


def read_info(path: Path, disk: Disk, name: str) -> TableInfo:
    """The identity of the table in a folder, which errors call ``name``. Raises StartError if there is no table."""
    file = path / FOLDER / INFO_NAME
    try:
        fields = read_metadata(disk, file)
    except FileNotFoundError:
        raise StartError(
            f"{name}: found no history ({FOLDER}/{INFO_NAME} is missing), expected a table made by callboard history"
            " keep; check the path"
        ) from None
    info: TableInfo = parse_fields(file, TableInfo, {"layout": FOLDERS, **fields})
    return info


def _snapshot_number(path: Path) -> int:
    return int(path.name.rpartition("-")[2])


def _with_all_columns(frame: DataFrame) -> DataFrame:
    """Columns that an older version did not write are null. Formats with a schema of their own do not have them."""
    missing = [name for name in ALL_COLUMNS if name not in frame.columns]
    return frame.select("*", *(F.lit(None).cast(ALL_COLUMNS[name]).alias(name) for name in missing))
