"""The table that a history is kept in: a folder that Spark writes, and beside the rows what says which of them count.

::

    TABLE/day=2026-11-21/log_partition=7/from_offset=1200/part-....parquet
    TABLE/_callboard/table.json                    whose it is: the cluster's id, the format, an id of its own
    TABLE/_callboard/commits/%020d.json            how far each log partition was taken; the newest counts
    TABLE/_callboard/changes.jsonl                 what was restored from it, by whom and why
    TABLE/_callboard/lock                          held by who writes

``from_offset`` is where the log partition had been taken to before. So a run that was killed and the next one write to
the same folders, the later over the earlier. Spark, and others who read such tables, pass over names with ``_`` first.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ...runtime.common.errors import StartError
from ...runtime.disk.disk import Disk, read_file, replace_file
from ...runtime.disk.modes import disk_like
from ..columns import ALL, ddl

FOLDER = "_callboard"
INFO_NAME = "table.json"
LOCK_NAME = "lock"
VERSION = 1
DAY, FROM_OFFSET, LOG_PARTITION = "day", "from_offset", "log_partition"
LAYOUT = (DAY, LOG_PARTITION, FROM_OFFSET)
"""The columns that are folders."""

PLAIN_FORMATS = ("parquet", "orc", "json")
"""Formats of files alone. Others (delta, iceberg) need their jars in the session, and know their schema themselves."""

_COMMIT = re.compile(r"(\d{20})\.json")
_STAGING = ".spark-staging-"
_PLACES = "/".join(f"{name}=*" for name in LAYOUT)


class TableInfo(NamedTuple):
    """Whose history it is. ``created_ms``: ms since 1970."""

    table_id: str
    cluster_id: str
    format: str
    created_ms: int


class Progress(NamedTuple):
    """How far the log was taken: for each log partition the first offset that is not in the table.

    ``number`` counts the commits. ``complete_since_ms``: of what was superseded before that time, in ms since 1970,
    something may be missing, because compaction had been there; 0 when nothing is.
    """

    number: int
    taken_to: dict[int, int]
    complete_since_ms: int
    at_ms: int


NOTHING = Progress(0, {}, 0, 0)


class HistoryTable:
    """A table that exists. Reading needs no lock: rows count once a commit covers them."""

    def __init__(self, path: Path, info: TableInfo, disk: Disk) -> None:
        self.path = path
        self.info = info
        self._disk = disk

    @classmethod
    def open(cls, path: str | Path, disk: Disk | None = None) -> HistoryTable:
        """StartError when there is none, or when it is of a newer version."""
        path = Path(path).absolute()
        disk = disk or disk_like(path)
        file = path / FOLDER / INFO_NAME
        try:
            fields = _read(disk, file)
        except FileNotFoundError:
            raise StartError(
                f"{path}: found no history ({FOLDER}/{INFO_NAME} is missing), expected a table that callboard history"
                " keep has made; check the path"
            ) from None
        return cls(path, _parsed(file, TableInfo, fields), disk)

    @classmethod
    def create(cls, path: Path, info: TableInfo, disk: Disk) -> HistoryTable:
        """A new table in a folder that is empty or not there. StartError otherwise."""
        path = path.absolute()
        if path.exists() and not path.is_dir():
            raise StartError(f"{path}: found a file, expected the folder of a table, or a new one; choose another")
        others = [name for name in disk.names(path) if name != FOLDER]
        if others:
            raise StartError(
                f"{path}: found {others[0]} and no {FOLDER}/{INFO_NAME}, expected a history or an empty folder; choose"
                " another"
            )
        disk.make_folder(path / FOLDER / "commits")
        _write(disk, path / FOLDER / INFO_NAME, info._asdict())
        for folder in (path, path.parent):
            disk.sync_folder(folder)
        return cls(path, info, disk)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else writes as long as the block lasts. StartError when somebody does."""
        fd = self._disk.open(self.path / FOLDER / LOCK_NAME, os.O_RDWR | os.O_CREAT)
        try:
            try:
                self._disk.lock(fd)
            except BlockingIOError:
                raise StartError(
                    f"{self.path}: another callboard history writes to it; wait until it has ended"
                ) from None
            yield
        finally:
            self._disk.close(fd)

    def progress(self) -> Progress:
        """What the newest commit says. StartError when it cannot be read."""
        names = sorted(name for name in self._disk.names(self._commits) if _COMMIT.fullmatch(name))
        if not names:
            return NOTHING
        file = self._commits / names[-1]
        fields = _read(self._disk, file)
        try:
            fields["taken_to"] = {int(number): int(offset) for number, offset in fields["taken_to"].items()}
        except (KeyError, ValueError, AttributeError, TypeError) as error:
            raise StartError(
                f"{file}: found no commit of a history ({error!r}); put back a copy of this file"
            ) from None
        progress: Progress = _parsed(file, Progress, fields)
        return progress

    def commit(self, progress: Progress, took: list[dict[str, int]]) -> None:
        """From now on the rows below these offsets count, durably. ``took`` is for people. The caller is ``alone``."""
        self._disk.make_folder(self._commits)
        taken_to = {str(number): offset for number, offset in sorted(progress.taken_to.items())}
        fields = {**progress._asdict(), "taken_to": taken_to, "took": took}
        _write(self._disk, self._commits / f"{progress.number:020d}.json", fields)

    def rows(self, spark: SparkSession) -> DataFrame:
        """The records that count, with the data source's columns and ``day``; empty while nothing was taken."""
        taken_to = self.progress().taken_to
        frame = self._raw(spark).select(*ALL, DAY)
        if not taken_to:
            return frame.where(F.lit(False))
        pairs: list[Column] = [F.lit(each).cast("long") for pair in sorted(taken_to.items()) for each in pair]
        limit = F.create_map(*pairs)[F.col(LOG_PARTITION).cast("long")]
        return frame.where(F.col("log_offset") < limit)

    def _raw(self, spark: SparkSession) -> DataFrame:
        reader = spark.read.format(self.info.format)
        if self.info.format in PLAIN_FORMATS:
            names = [name for name in ALL if name != LOG_PARTITION]
            reader = reader.schema(f"{ddl(names)}, {DAY} date, {LOG_PARTITION} int, {FROM_OFFSET} bigint")
        return reader.load(str(self.path))

    def written(self, spark: SparkSession, firsts: dict[int, int]) -> dict[int, tuple[int, int]]:
        """What lies there of some log partitions from an offset on: how many records and how many different offsets."""
        frame = self._raw(spark)
        pairs: list[Column] = [F.lit(each).cast("long") for pair in sorted(firsts.items()) for each in pair]
        mine = F.col(FROM_OFFSET) == F.create_map(*pairs)[F.col(LOG_PARTITION).cast("long")]
        counted = frame.where(mine).groupBy(LOG_PARTITION)
        found = counted.agg(F.count("log_offset"), F.count_distinct("log_offset")).collect()
        return {number: (records, different) for number, records, different in found}

    def files(self) -> set[Path]:
        """Every file of the table."""
        return {Path(folder, name) for folder, _, names in os.walk(self.path) for name in names}

    def make_durable(self, before: set[Path]) -> None:
        """Sync the files that came since, and the folders that they lie in: Spark does not. OSError."""
        new = self.files() - before
        for path in sorted(new):
            fd = self._disk.open(path, os.O_RDONLY)
            try:
                self._disk.sync(fd)
            finally:
                self._disk.close(fd)
        for folder in sorted({each for path in new for each in path.parents if each.is_relative_to(self.path)}):
            self._disk.sync_folder(folder)

    def remove_leftovers(self, progress: Progress) -> None:
        """What a run that was killed has left: what no commit covers. The caller is ``alone``.

        The next run would write over most of it, but not over all if it finds less: after damage, or when history was
        off and compaction went on. Table formats that know transactions have files of their own, which are let be.
        """
        found = list(self.path.glob(f"{_STAGING}*"))
        if self.info.format in PLAIN_FORMATS:
            found += (path for path in self.path.glob(_PLACES) if not _is_covered(path, progress))
        for path in found:
            with suppress(FileNotFoundError):
                shutil.rmtree(path)

    @property
    def _commits(self) -> Path:
        return self.path / FOLDER / "commits"


def _is_covered(path: Path, progress: Progress) -> bool:
    """Whether some commit has gone on from the offset that a folder of rows begins at."""
    number, first = (int(one.name.partition("=")[2]) for one in (path.parent, path))
    return first < progress.taken_to.get(number, 0)


def _read(disk: Disk, path: Path) -> dict[str, Any]:
    try:
        fields = json.loads(read_file(disk, path))
        version = fields["version"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise StartError(f"{path}: found no JSON of a history ({error!r}); put back a copy of this file") from None
    if version != VERSION:
        raise StartError(f"{path}: found version {version}, expected {VERSION}; use the newer version of Callboard")
    return dict(fields)


def _write(disk: Disk, path: Path, fields: dict[str, Any]) -> None:
    replace_file(disk, path, json.dumps({"version": VERSION, **fields}, indent=1).encode() + b"\n")


def _parsed(path: Path, kind: Any, fields: dict[str, Any]) -> Any:
    try:
        return kind(**{name: fields[name] for name in kind._fields})
    except KeyError as missing:
        raise StartError(f"{path}: found no {missing}, expected it there; put back a copy of this file") from None
