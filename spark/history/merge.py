"""Merges the files of a history. Each run of ``keep`` adds a file for each day and log partition, and few are large.

A merge writes the rows of a day and log partition to one new folder, and then commits: from that moment
``HistoryTable.rows`` reads the new folder and not the old ones. The old ones stay for ``GRACE_MS``, for queries that
have begun, and are removed by a later merge. A merge that is killed before its commit leaves only a folder that nobody
reads, and that the next writer removes. At a URL the same is done with the files that commits name.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ...runtime.common.errors import StartError
from ...runtime.disk.disk import Disk
from ...runtime.engine.clock import wall_clock_ms
from .files_table import FilesTable, rows_of_files
from .opening import open_to_write
from .progress import DAY, FROM_OFFSET, LOG_PARTITION, PARTITION_COLUMNS, HistoryProgress, ReplacedFile, ReplacedFolder
from .remote import file_of_rows
from .row_folders import parse_day, parse_row_folder
from .table import PLAIN_FORMATS, HistoryTable
from .unnamed import GRACE, remove_unnamed
from .write_files import Counts, Sizes, merge_files

GRACE_MS = int(GRACE.total_seconds() * 1000)
"""How long replaced folders stay for queries that have begun."""

FOLDERS_MIN = 2
"""A day of a log partition with fewer folders, or files at a URL, is left as it is."""


class MergeResult(NamedTuple):
    """``replaced``: folders whose rows are in ``merged`` new ones now. ``removed``: folders of earlier merges.

    At a URL they are files.
    """

    replaced: int
    merged: int
    records: int
    removed: int


class _Slice(NamedTuple):
    """The rows of one day and log partition."""

    day: str
    log_partition: int


def merge(
    spark: SparkSession, table: str | Path, *, disk: Disk | None = None, clock_ms: Callable[[], int] = wall_clock_ms
) -> MergeResult:
    """Merge the folders of all days (UTC) before today.

    Raises StartError for a table that is not there, is being written to, or has a format that Spark must merge with its
    own commands, and OSError if the rows that were written are not those that were read.
    """
    history_table = open_to_write(table, disk)
    if isinstance(history_table, FilesTable):
        return _merge_files(spark, history_table, clock_ms())
    if history_table.info.format not in PLAIN_FORMATS:
        raise StartError(
            f"{history_table.path}: its format is {history_table.info.format}, expected one of"
            f" {', '.join(PLAIN_FORMATS)}; merge its files with the commands of that format"
        )
    with history_table.exclusive_writer():
        progress, now_ms = history_table.progress(), clock_ms()
        history_table.remove_leftovers(progress, of_merges=True)
        kept, removed = _remove_replaced(history_table, progress, now_ms)
        due = _due_slices(history_table, progress, datetime.fromtimestamp(now_ms / 1000, UTC).date())
        if not due and not removed:
            return MergeResult(0, 0, 0, 0)
        number = progress.number + 1
        records = _write(spark, history_table, due, number) if due else 0
        replaced = [ReplacedFolder(*part, first, now_ms) for part, firsts in due.items() for first in firsts]
        history_table.commit(progress._replace(number=number, at_ms=now_ms, replaced=(*kept, *replaced)), [])
    return MergeResult(len(replaced), len(due), records, removed)


def _merge_files(spark: SparkSession, table: FilesTable, now_ms: int) -> MergeResult:
    with table.exclusive_writer():
        progress, today = table.progress(), datetime.fromtimestamp(now_ms / 1000, UTC).date()
        slices: dict[tuple[str, int], dict[str, int | None]] = {}
        for path, size in progress.files.items():
            file = file_of_rows(path)
            if (file.day or today) < today:
                slices.setdefault((str(file.day), file.log_partition), {})[path] = size
        due = {part: paths for part, paths in slices.items() if len(paths) >= FOLDERS_MIN}
        kept = [replaced for replaced in progress.replaced_files if now_ms - replaced.at_ms < GRACE_MS]
        removed = [replaced.path for replaced in progress.replaced_files if replaced not in kept]
        merged, records = _write_files(spark, table, due) if due else ({}, 0)
        replaced = [path for paths in due.values() for path in paths]
        if due or removed:
            files = {path: size for path, size in progress.files.items() if path not in set(replaced)} | merged
            waiting = (*kept, *(ReplacedFile(path, now_ms) for path in replaced))
            number = progress.number + 1
            table.commit(progress._replace(number=number, at_ms=now_ms, files=files, replaced_files=waiting), [])
        for path in table.location.absolute(removed):
            table.location.remove(path)
        remove_unnamed(table)
    return MergeResult(len(replaced), len(due), records, len(removed))


def _write_files(
    spark: SparkSession, table: FilesTable, due: Mapping[tuple[str, int], Mapping[str, int | None]]
) -> tuple[Sizes, int]:
    """The merged files and their number of records. Raises OSError if the rows are not those of the old files."""
    replaced = {path: size for sizes in due.values() for path, size in sizes.items()}
    expected = _counts(rows_of_files(spark, table, replaced))
    files, written = merge_files(spark, table, due)
    _check_written(table, written, expected)
    return files, sum(records for records, _ in written.values())


def _remove_replaced(table: HistoryTable, progress: HistoryProgress, now_ms: int) -> tuple[list[ReplacedFolder], int]:
    """Remove what was replaced long ago. Returns the folders that stay, and how many were removed."""
    kept = [folder for folder in progress.replaced if now_ms - folder.at_ms < GRACE_MS]
    for folder in progress.replaced:
        if folder not in kept:
            with suppress(FileNotFoundError):
                shutil.rmtree(table.path / folder.relative_path)
    return kept, len(progress.replaced) - len(kept)


def _due_slices(table: HistoryTable, progress: HistoryProgress, today: date) -> dict[_Slice, list[int]]:
    """The first offsets of the folders of each day and log partition that have several.

    Records without a valid time have no day, and are never merged.
    """
    replaced = {(folder.day, folder.log_partition, folder.from_offset) for folder in progress.replaced}
    slices: dict[_Slice, list[int]] = {}
    for day, log_partition, first in map(parse_row_folder, table.row_paths()):
        if (day, log_partition, first) not in replaced and (parse_day(day) or today) < today:
            slices.setdefault(_Slice(day, log_partition), []).append(first)
    return {part: firsts for part, firsts in slices.items() if len(firsts) >= FOLDERS_MIN}


def _write(spark: SparkSession, table: HistoryTable, due: Mapping[_Slice, list[int]], number: int) -> int:
    """Write the rows to new folders, sync them, and compare them with the old ones. Returns their number."""
    slices = [f"{day}/{log_partition}" for day, log_partition in due]
    is_due = F.concat_ws("/", F.col(DAY).cast("string"), F.col(LOG_PARTITION).cast("string")).isin(slices)
    rows = table.rows(spark).where(is_due)
    expected = _counts(rows)
    files_before = table.files()
    merged = rows.withColumn(FROM_OFFSET, F.lit(-number).cast("long")).repartition(len(due), DAY, LOG_PARTITION)
    writer = merged.sortWithinPartitions(*PARTITION_COLUMNS, "log_offset").write.format(table.info.format)
    writer.mode("append").partitionBy(*PARTITION_COLUMNS).save(str(table.path))
    table.make_durable(files_before)
    written = table.count_rows(spark, dict.fromkeys(expected, -number))
    _check_written(table, written, expected)
    return sum(records for records, _ in expected.values())


def _check_written(table: HistoryTable, written: Counts, expected: Counts) -> None:
    if written != expected:
        raise OSError(
            f"{table.name}: the merged rows are {written} records and offsets by log partition, expected {expected};"
            " nothing was committed and nothing is lost: check the disk and Spark's log"
        )


def _counts(rows: DataFrame) -> Counts:
    """For each log partition the number of records, and of distinct offsets."""
    counted = rows.groupBy(LOG_PARTITION).agg(F.count("log_offset"), F.count_distinct("log_offset")).collect()
    return {number: (records, distinct) for number, records, distinct in counted}
