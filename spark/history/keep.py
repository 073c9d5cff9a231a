"""Copies the records of closed segments into the history's table, each exactly once.

A run copies each log partition from the offset in the newest commit up to the end of its closed segments. It writes
the rows to folders named by that first offset, syncs them, counts them, and then commits; afterwards the mark in the
data folder permits compaction up to the new offset. A run can be killed at any point: rows without a commit are not
visible, and the next run starts at the same offset and overwrites them with the same records, since compaction waits.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ...actors.text import format_count
from ...runtime.common.errors import StartError
from ...runtime.disk.disk import Disk, file_size, read_file
from ...runtime.disk.modes import disk_like
from ...runtime.engine.clock import wall_clock_ms
from ...runtime.log.compaction.history import FILE_NAME as MARK_NAME
from ...runtime.log.compaction.history import HistoryMark, read_history_mark, wait_for_compactions, write_history_mark
from ...runtime.log.folder import INFO_NAME as DATA_INFO_NAME
from ...runtime.log.folder import parse_info
from ...runtime.log.format.errors import Damage
from ...runtime.log.manifest import LogFile, log_files
from ...runtime.log.reading.damage_scan import scan_past_damage
from ...runtime.log.reading.partition_reader import partition_folders
from ...runtime.log.recovery.missing import missing_files
from ..files import is_url
from ..session import short_message
from .files_table import FilesTable
from .opening import create_table, open_to_write, table_exists, table_name
from .progress import PARTITION_COLUMNS, HistoryProgress
from .ranges import TABLE_SCHEMA, KeepRange, ValidRange, rows_of, run_tasks
from .remote import file_of_rows
from .row_folders import parse_day, parse_row_folder
from .table import FOLDER, PLAIN_FORMATS, HistoryTable, TableInfo
from .write_files import Sizes, write_ranges

_CHECK_COLUMNS = {"log_partition": "int", "end": "bigint", "records": "bigint", "problem": "string"}
_CHECK_ARROW_SCHEMA = pa.schema(
    [("log_partition", pa.int32()), ("end", pa.int64()), ("records", pa.int64()), ("problem", pa.string())]
)

ReportProgress = Callable[[str], None]


class RangeCheck(NamedTuple):
    """The valid part of a range: its end offset and number of records, and the problem that ended it, if any."""

    log_partition: int
    end: int
    records: int
    problem: str | None


class KeepResult(NamedTuple):
    """What a run has copied. ``problems``: a line for each damaged log partition, which was copied up to the damage.

    ``missing``: the number of offsets in the copied ranges whose records compaction had already removed.
    """

    partitions: int
    records: int
    commit: int
    problems: tuple[str, ...]
    seconds: float
    missing: int


def keep(
    spark: SparkSession,
    data: str | Path,
    table: str | Path,
    format: str = "parquet",
    *,
    disk: Disk | None = None,
    clock_ms: Callable[[], int] = wall_clock_ms,
    report_progress: ReportProgress = lambda message: None,
) -> KeepResult:
    """Copy the records in closed segments of ``data`` that are not in ``table`` yet. Creates the table if needed.

    ``table``: a folder, or a URL. From then on compaction does not go beyond the end of the history. Raises StartError
    if the folder or the table is not as expected, OSError if the disk fails, and a Spark error if the format cannot be
    written.
    """
    started_s, data = time.perf_counter(), Path(data).absolute()
    disk = disk or disk_like(data)
    folders = log_partition_folders(data)
    check_table(data, table, disk)
    if format not in PLAIN_FORMATS and not is_url(str(table)) and not table_exists(table):
        check_format(spark, Path(table).absolute(), format)
    history_table = _open_or_create_table(disk, data, table, format, clock_ms())
    with history_table.exclusive_writer():
        progress = history_table.progress()
        history_table.remove_leftovers(progress)
        _block_compaction(disk, data, history_table, progress, folders)
        ranges, problems = _new_ranges(disk, folders, progress)
        checks = _check_ranges(spark, ranges, report_progress) if ranges else []
        valid = [
            ValidRange(keep_range._replace(end=check.end), check.records)
            for keep_range, check in zip(ranges, checks, strict=True)
            if check.end > keep_range.first
        ]
        records = sum(valid_range.records for valid_range in valid)
        if valid:
            report_progress(f"writing {format_count(records, 'record')} of {format_count(len(valid), 'log partition')}")
            files = _write_and_verify(spark, history_table, valid)
            progress = _next_progress(disk, progress, valid, clock_ms())._replace(files={**progress.files, **files})
            is_of_files = isinstance(history_table, FilesTable)
            days = [file_of_rows(path).day for path in files] if is_of_files else days_written(history_table, valid)
            progress = without_changed_snapshots(progress, days)
            history_table.commit(progress, [_commit_entry(valid_range) for valid_range in valid])
        if not _permit_compaction(disk, data, history_table, progress):
            report_progress("history was turned off meanwhile, and stays off")
    problems += [check.problem for check in checks if check.problem]
    missing = sum(keep_range.end - keep_range.first for keep_range, _ in valid) - records
    return KeepResult(len(valid), records, progress.number, tuple(problems), time.perf_counter() - started_s, missing)


def nothing_new(data: Path, location: str | Path, disk: Disk | None = None) -> KeepResult | None:
    """The result of ``keep`` if the table has all records of closed segments; None if there is work for Spark.

    The arguments are valid, see ``log_partition_folders`` and ``check_table``. Raises StartError for a table that
    cannot be read or that another process writes to, OSError if the disk fails.
    """
    started_s, disk = time.perf_counter(), disk or disk_like(data)
    mark = read_history_mark(disk, data)
    if mark is None or not table_exists(location):
        return None
    table = open_to_write(location, disk)
    with table.exclusive_writer():
        progress = table.progress()
        ranges, problems = _new_ranges(disk, log_partition_folders(data), progress)
    if ranges or mark.taken_to != progress.taken_to:
        return None
    return KeepResult(0, 0, progress.number, tuple(problems), time.perf_counter() - started_s, 0)


def log_partition_folders(data: Path) -> dict[int, Path]:
    """The log partitions of a data folder. Raises StartError if the folder is not a data folder."""
    if not (data / DATA_INFO_NAME).is_file():
        raise StartError(
            f"{data}: found no {DATA_INFO_NAME}, expected the data folder of a Callboard server; check the path"
        )
    return partition_folders(data)


def check_table(data: Path, location: str | Path, disk: Disk) -> None:
    """Raise StartError if the history of this data folder cannot be written to this table."""
    mark = read_history_mark(disk, data)
    if not table_exists(location):
        if mark is not None and table_name(location) != mark.table:
            raise StartError(_other_table_text(data, mark))
        return
    table, cluster_id = open_to_write(location, disk), _cluster_id(disk, data)
    if table.info.cluster_id != cluster_id:
        raise StartError(
            f"{table.name}: found the history of cluster {table.info.cluster_id}, expected that of {cluster_id}, the"
            f" cluster of {data}; choose another table"
        )
    if mark is None:
        return
    if mark.table_id != table.info.table_id:
        raise StartError(_other_table_text(data, mark))
    refuse_lost_commits(data, mark, table)


def refuse_lost_commits(data: Path, mark: HistoryMark, table: HistoryTable) -> None:
    """Raise StartError if the newest commits of a table are gone, such as in an older copy of it.

    Their rows would be taken for those of a killed run: not read, and removed. Compaction may have removed the records.
    """
    taken_to = table.progress().taken_to
    for number, offset in sorted(mark.taken_to.items()):
        if taken_to.get(number, 0) < offset:
            raise StartError(
                f"{table.name}: its newest commit has log partition {number} up to offset {taken_to.get(number, 0)},"
                f" expected {offset} by {data / MARK_NAME}: newer files in {FOLDER}/commits are gone; put them back"
                " with their rows, or, to go on without what compaction has removed, run callboard history off first"
            )


def check_format(spark: SparkSession, path: Path, format: str) -> None:
    """Write an empty table beside ``path``, and remove it. Raises StartError if Spark cannot write the format.

    From the first run on compaction waits for the table, so a table that can never be written must be refused before.
    """
    trial = path.with_name(f".{path.name}.trial")
    try:
        _save(spark.createDataFrame([], TABLE_SCHEMA), format, trial)
    except (PySparkException, Py4JError) as error:
        raise StartError(
            f"bad --format '{format}': Spark cannot write a history with it: {short_message(error)}"
        ) from None
    finally:
        shutil.rmtree(trial, ignore_errors=True)


def _open_or_create_table(disk: Disk, data: Path, table: str | Path, format: str, now_ms: int) -> HistoryTable:
    if read_history_mark(disk, data) is None and not table_exists(table):
        return create_table(table, TableInfo(str(uuid4()), _cluster_id(disk, data), format, now_ms), disk)
    return open_to_write(table, disk)


def _cluster_id(disk: Disk, data: Path) -> str:
    return parse_info(data / DATA_INFO_NAME, read_file(disk, data / DATA_INFO_NAME)).cluster_id


def _other_table_text(data: Path, mark: HistoryMark) -> str:
    return f"{data}: its history is in {mark.table}; use that table, or run callboard history off first"


def _block_compaction(
    disk: Disk, data: Path, table: HistoryTable, progress: HistoryProgress, folders: dict[int, Path]
) -> None:
    """Make compaction wait for the history.

    Waits for running compactions even if the mark exists: the run that wrote it may have been killed before it waited.
    """
    mark = read_history_mark(disk, data)
    if mark is None:
        write_history_mark(disk, data, HistoryMark(table.name, table.info.table_id, progress.taken_to))
    elif mark.table_id != table.info.table_id:
        raise StartError(_other_table_text(data, mark))
    wait_for_compactions(disk, folders.values())


def _permit_compaction(disk: Disk, data: Path, table: HistoryTable, progress: HistoryProgress) -> bool:
    """Permit compaction up to the end of the history. False if the history was turned off during the run.

    Raises StartError if another run has begun a history in another table: compaction must wait for that one.
    """
    mark = read_history_mark(disk, data)
    if mark is None:
        return False
    if mark.table_id != table.info.table_id:
        raise StartError(_other_table_text(data, mark))
    write_history_mark(disk, data, HistoryMark(table.name, table.info.table_id, progress.taken_to))
    return True


def _new_ranges(disk: Disk, folders: dict[int, Path], progress: HistoryProgress) -> tuple[list[KeepRange], list[str]]:
    """The ranges to copy, and problems: log partitions that end before the history does."""
    ranges, problems = [], []
    for number, folder in folders.items():
        first = progress.taken_to.get(number, 0)
        files = log_files(disk, folder).files
        closed_files = [file for file in files if file.is_closed]
        end = files[len(closed_files)].base if len(closed_files) < len(files) else first
        if end < first:
            problems.append(
                f"{folder}: its history ends at offset {first}, but its open segment begins at {end}: this is a"
                " different log; keep its history in another table"
            )
        elif end > first:
            size = sum(file_size(disk, file.path) for file in _files_from(closed_files, end, first))
            ranges.append(KeepRange(number, folder, first, end, size))
    return ranges, problems


def _files_from(files: Sequence[LogFile], end: int, first: int) -> list[LogFile]:
    """The files that have offsets from ``first`` on."""
    ends = [*(file.base for file in files[1:]), end]
    return [file for file, file_end in zip(files, ends, strict=True) if file_end > first]


# Check ---------------------------------------------------------------------------------------------------------------


def _check_ranges(
    spark: SparkSession, ranges: Sequence[KeepRange], report_progress: ReportProgress
) -> list[RangeCheck]:
    """Check every batch before anything is written. Damage stops only its own log partition."""
    report_progress(f"checking {sum(keep_range.size for keep_range in ranges):,} bytes of {len(ranges)} log partitions")

    def check_task(some_ranges: list[KeepRange]) -> Iterator[pa.RecordBatch]:
        rows = [check_range(keep_range)._asdict() for keep_range in some_ranges]
        yield pa.RecordBatch.from_pylist(rows, schema=_CHECK_ARROW_SCHEMA)

    schema = ", ".join(f"{name} {kind}" for name, kind in _CHECK_COLUMNS.items())
    checks = {row[0]: RangeCheck(*row) for row in run_tasks(spark, ranges, check_task, schema).collect()}
    return [checks[keep_range.log_partition] for keep_range in ranges]


def check_range(keep_range: KeepRange) -> RangeCheck:
    """Find the end of the valid part of a range, at a file boundary, and count its records."""
    disk, records = Disk(), 0
    for damage in missing_files(disk, keep_range.folder)[1]:
        if damage.offset_before < keep_range.end and (damage.offset_after or keep_range.end) > keep_range.first:
            problem = f"{damage}; restore a copy of this file"
            return RangeCheck(keep_range.log_partition, keep_range.first, 0, problem)
    files = [file for file in log_files(disk, keep_range.folder).files if file.is_closed and file.base < keep_range.end]
    for file in _files_from(files, keep_range.end, keep_range.first):
        count = 0
        for batch in scan_past_damage(disk, file.path, file.base):
            if isinstance(batch, Damage):
                end = max(file.base, keep_range.first)
                return RangeCheck(keep_range.log_partition, end, records, f"{batch}; restore a copy of this file")
            if batch.base_offset >= keep_range.first:
                count += batch.record_count
            elif batch.last_offset >= keep_range.first:
                count += sum(offset >= keep_range.first for offset, *_ in batch.records())
        records += count
    return RangeCheck(keep_range.log_partition, keep_range.end, records, None)


# Write ---------------------------------------------------------------------------------------------------------------


def _write_and_verify(spark: SparkSession, table: HistoryTable, valid: Sequence[ValidRange]) -> Sizes:
    """Write the rows durably, and verify that each record is there exactly once. Raises OSError if not.

    Returns the files if the table's commits name them.
    """
    non_empty = [valid_range for valid_range in valid if valid_range.records]
    files: Sizes = {}
    if not non_empty:
        return files
    keep_ranges = [keep_range for keep_range, _ in non_empty]
    if isinstance(table, FilesTable):
        files, counts = write_ranges(spark, table, keep_ranges)
    else:
        counts = _write_folders(spark, table, keep_ranges)
    for keep_range, records in non_empty:
        if (written := counts.get(keep_range.log_partition, (0, 0))) != (records, records):
            raise OSError(
                f"{table.name}: found {written[0]} records of {keep_range.folder} at {written[1]} offsets, expected"
                f" {records}; nothing was committed and nothing is lost: check the disk and Spark's log, and run it"
                " again"
            )
    return files


def _write_folders(spark: SparkSession, table: HistoryTable, ranges: Sequence[KeepRange]) -> dict[int, tuple[int, int]]:
    files_before = table.files()
    write_rows(spark, table, ranges)
    table.make_durable(files_before)
    return table.count_rows(spark, {keep_range.log_partition: keep_range.first for keep_range in ranges})


def write_rows(spark: SparkSession, table: HistoryTable, ranges: Sequence[KeepRange]) -> None:
    """Write the rows of ranges, replacing any rows with the same first offsets."""

    def read_task(some_ranges: list[KeepRange]) -> Iterator[pa.RecordBatch]:
        for keep_range in some_ranges:
            yield from rows_of(keep_range)

    _save(run_tasks(spark, ranges, read_task, TABLE_SCHEMA), table.info.format, table.path)


def _save(frame: DataFrame, format: str, path: Path) -> None:
    writer = frame.write.format(format).mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy(*PARTITION_COLUMNS).save(str(path))


def _next_progress(disk: Disk, progress: HistoryProgress, valid: Sequence[ValidRange], now_ms: int) -> HistoryProgress:
    taken_to = {**progress.taken_to, **{keep_range.log_partition: keep_range.end for keep_range, _ in valid}}
    complete_since_ms = _complete_since_ms(disk, progress, valid)
    return progress._replace(
        number=progress.number + 1, taken_to=taken_to, complete_since_ms=complete_since_ms, at_ms=now_ms
    )


def days_written(table: HistoryTable, valid: Sequence[ValidRange]) -> list[date | None]:
    """The days of the folders that a run has written."""
    firsts = {keep_range.log_partition: keep_range.first for keep_range, _ in valid}
    return [
        parse_day(day) for day, number, first in map(parse_row_folder, table.row_paths()) if firsts.get(number) == first
    ]


def without_changed_snapshots(progress: HistoryProgress, days: Iterable[date | None]) -> HistoryProgress:
    """Without the snapshots of days that got records, or later ones: a clock went back. Without all for no day."""
    first_day = min((day or date.min for day in days), default=date.max)
    unchanged = (snapshot for snapshot in progress.snapshots if date.fromisoformat(snapshot.day) < first_day)
    return progress._replace(snapshots=tuple(unchanged))


def _complete_since_ms(disk: Disk, progress: HistoryProgress, valid: Sequence[ValidRange]) -> int:
    """The time of the last compaction that removed records before they were copied."""
    manifests = ((keep_range.first, log_files(disk, keep_range.folder).manifest) for keep_range, _ in valid)
    gaps = [manifest.created_ms for first, manifest in manifests if manifest.clean_end > first]
    return max([progress.complete_since_ms, *gaps])


def _commit_entry(valid: ValidRange) -> dict[str, int]:
    number, _, first, end, _ = valid.range
    return {"log_partition": number, "first": first, "end": end, "records": valid.records}
