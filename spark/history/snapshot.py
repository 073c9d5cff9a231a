"""Snapshots: what is left of a history's records at the end of a day, so that ``as_of`` need not read older ones.

A snapshot has the records on which states after its day depend: the newest offset of each key, offsets in open
transactions, and the group records that say who owned them. It is made from the snapshot before it and the records
since. ``TABLE/_callboard/snapshots/DAY-NUMBER`` has its rows, and the commit of that number names it.

The times of a log may go back when a clock is set. There is a snapshot of a day only if in each log partition all
records of that day and earlier ones stand before all later ones. ``keep`` gives up the snapshots whose days get new
records.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from itertools import islice
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ...runtime.disk.disk import Disk
from ...runtime.engine.clock import wall_clock_ms
from ...runtime.log.format.batch import Batch
from ...runtime.log.manifest import log_files
from ...runtime.log.reading.damage_scan import scan_past_damage
from ..columns import ALL_COLUMNS
from .files_table import FilesTable
from .keep import log_partition_folders
from .opening import open_to_write
from .progress import DAY, HistoryProgress, Snapshot
from .row_folders import parse_day
from .states import KEY_COLUMNS, ended_transactions, group_offsets, is_in_transaction
from .table import HistoryTable
from .write_files import write_snapshot

RECORDS_MIN = 100_000
"""With fewer records since the last one, a snapshot saves little."""


def take_snapshot(
    spark: SparkSession,
    table: str | Path,
    data: str | Path | None = None,
    *,
    disk: Disk | None = None,
    clock_ms: Callable[[], int] = wall_clock_ms,
    records_min: int = RECORDS_MIN,
) -> Snapshot | None:
    """Make a snapshot of the last day in the table before today (UTC), if it is worth it; None if not.

    It is when at least ``records_min`` records are new since the last one, and as many as that one has. So all
    snapshots together have no more records than the table. ``data``: the data folder, to choose a day that is
    completely in the table; ``keep`` would give up a snapshot of a day whose records it copies later. Raises StartError
    for a table that is not there or is being written to, OSError if the disk fails.
    """
    history_table = open_to_write(table, disk)
    with history_table.exclusive_writer():
        progress, now_ms = history_table.progress(), clock_ms()
        history_table.remove_leftovers(progress, of_merges=True)
        begun_ms = now_ms if data is None else first_time_not_kept_ms(Path(data).absolute(), progress, now_ms)
        day = _last_day(history_table, datetime.fromtimestamp(begun_ms / 1000, UTC).date())
        last = progress.snapshots[-1] if progress.snapshots else None
        if day is None or (last and day <= last.day):
            return None
        since = history_table.rows(spark, last)
        enough = max(records_min, last.records if last else 0)
        if not _has_enough_in_order(since, day, enough):
            return None
        rows = since.where(F.col(DAY) <= F.lit(day).cast("date"))
        if last:
            rows = rows.unionByName(history_table.snapshot_rows(spark, last))
        snapshot = Snapshot(day, progress.number + 1, 0)
        write = _write_file if isinstance(history_table, FilesTable) else _write_folder
        snapshot = write(spark, history_table, snapshot, remaining_records(rows))
        snapshots = (*progress.snapshots, snapshot)
        history_table.commit(progress._replace(number=snapshot.number, at_ms=now_ms, snapshots=snapshots), [])
        return snapshot


def first_time_not_kept_ms(data: Path, progress: HistoryProgress, now_ms: int) -> int:
    """The time of the first record that is not in the table yet, of all log partitions; ``now_ms`` if it has all."""
    times_ms = [now_ms]
    for number, folder in log_partition_folders(data).items():
        files = (file for file in log_files(Disk(), folder).files if file.base >= progress.taken_to.get(number, 0))
        for batch in (next(scan_past_damage(Disk(), file.path, file.base), None) for file in islice(files, 1)):
            times_ms.append(batch.base_timestamp_ms if isinstance(batch, Batch) else now_ms)
    return max(min(times_ms), 0)


def _last_day(table: HistoryTable, today: date) -> str | None:
    """The last ended day that has rows. None if there is none, or if there are rows without a day."""
    names = table.days()
    days = [parse_day(name) for name in names]
    if None in days:
        return None
    return max((name for name, day in zip(names, days, strict=True) if day and day < today), default=None)


def _has_enough_in_order(rows: DataFrame, day: str, records_min: int) -> bool:
    """Whether there are so many records up to a day, all of them before the later ones of their log partition."""
    is_later = F.col(DAY) > F.lit(day).cast("date")
    by_partition = rows.groupBy("log_partition").agg(
        F.count_if(~is_later),
        F.max(F.when(~is_later, F.col("log_offset"))),
        F.min(F.when(is_later, F.col("log_offset"))),
    )
    counts = [(records, last, first) for _, records, last, first in by_partition.collect()]
    in_order = all(last is None or first is None or last < first for _, last, first in counts)
    return in_order and sum(records for records, _, _ in counts) >= max(records_min, 1)


def _write_folder(spark: SparkSession, table: HistoryTable, snapshot: Snapshot, rows: DataFrame) -> Snapshot:
    files_before = table.files()
    rows.coalesce(1).write.mode("overwrite").parquet(str(table.snapshot_path(snapshot)))
    table.make_durable(files_before)
    return snapshot._replace(records=table.snapshot_rows(spark, snapshot).count())


def _write_file(spark: SparkSession, table: HistoryTable, snapshot: Snapshot, rows: DataFrame) -> Snapshot:
    assert isinstance(table, FilesTable)
    files, records = write_snapshot(table, rows)
    return snapshot._replace(records=records, files=files)


def remaining_records(rows: DataFrame) -> DataFrame:
    """The records on which the states after these records depend, whatever follows in each log partition."""
    offsets = _remaining_offsets(rows.select(*ALL_COLUMNS, DAY))
    return offsets.unionByName(_remaining_groups(offsets, rows.where("kind = 'group'"))).select(*ALL_COLUMNS, DAY)


def _remaining_offsets(rows: DataFrame) -> DataFrame:
    """The newest effective offset of each key, and the offsets in open transactions.

    A committed transaction has no effect on later records, so its offsets become plain ones. A tombstone stays while
    an offset in an open transaction is older: when that is committed, the key is deleted all the same.
    """
    offsets = rows.where("kind = 'offset'")
    pending = ended_transactions(offsets.where(is_in_transaction()), rows)
    committed = pending.where("ended").withColumn("transactional", F.lit(False)).drop("ended")
    effective = offsets.where(~is_in_transaction()).unionByName(committed)
    newest = effective.groupBy(*KEY_COLUMNS).agg(F.max_by(F.struct("*"), "log_offset").alias("newest"))
    open_offsets = pending.where("ended is null").drop("ended")
    first_open = open_offsets.groupBy("log_partition").agg(F.min("log_offset").alias("first_open"))
    is_needed = ~F.col("tombstone") | (F.col("first_open") < F.col("log_offset"))
    kept = newest.select("newest.*").join(F.broadcast(first_open), "log_partition", "left").where(is_needed)
    return kept.drop("first_open").unionByName(open_offsets)


def _remaining_groups(offsets: DataFrame, groups: DataFrame) -> DataFrame:
    """The group records with the owners of these offsets, and the last one of each group that is not deleted."""
    owning = group_offsets(offsets, groups).select("log_partition", F.col("group_offset").alias("log_offset"))
    last = groups.groupBy("log_partition", "group").agg(
        F.max("log_offset").alias("log_offset"), F.max_by("tombstone", "log_offset").alias("is_deleted")
    )
    deleted = last.where("is_deleted").join(offsets, ["log_partition", "group"], "leftsemi")
    needed = last.where("not is_deleted").unionByName(deleted).select("log_partition", "log_offset")
    return groups.join(needed.unionByName(owning).distinct(), ["log_partition", "log_offset"], "leftsemi")
