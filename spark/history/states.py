"""All committed offsets and their owners at a point in time, and the differences between two points.

Times are those of the log: when the coordinator wrote a record. The state at a time has the newest record of each key.
An offset in a transaction is effective once the transaction is committed; its position in the log decides which offset
is newest. A partition's owner is taken from the last group record before the commit; simple consumers have none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ...runtime.common.errors import StartError
from ...runtime.disk.disk import Disk, read_file
from ...runtime.log.compaction.history import read_history_mark
from ...runtime.log.folder import INFO_NAME, FolderInfo, parse_info
from ...runtime.log.manifest import log_files
from ...runtime.log.reading.partition_reader import partition_of
from ..differences import difference
from ..options import Options
from ..scan import PartitionScan
from ..tasks import run_for_each
from .keep import log_partition_folders, refuse_lost_commits
from .opening import open_table
from .progress import DAY, HistoryProgress, Snapshot
from .ranges import HISTORY_KINDS, with_day
from .table import DATED_SCHEMA, HistoryTable

KEY_COLUMNS = ("group", "topic", "partition")
VALUE_COLUMNS = ("offset", "leader_epoch", "metadata", "commit_timestamp", "expire_timestamp")
OWNER_COLUMNS = ("owner", "owner_instance", "owner_client", "owner_host", "owner_generation")
RECORD_COLUMNS = ("log_partition", "log_offset", "timestamp")
COMMIT_COLUMNS = (*KEY_COLUMNS, *VALUE_COLUMNS, *RECORD_COLUMNS, "tombstone")
AS_OF_COLUMNS = (*KEY_COLUMNS, *VALUE_COLUMNS, *OWNER_COLUMNS, *RECORD_COLUMNS)
"""The columns of ``as_of``."""

PARTITIONS_PER_TASK = 4


def as_of(
    spark: SparkSession,
    table: HistoryTable | str | Path,
    at: datetime | int,
    *,
    groups: Collection[str] | None = None,
    data: str | Path | None = None,
) -> DataFrame:
    """The committed offsets at a time, of some groups or of all; columns as in ``AS_OF_COLUMNS``.

    ``at``: a datetime with a zone, or ms since 1970. ``data``: the data folder, to include the records that are not in
    the table yet. ``table``: a folder or a URL. Raises StartError if a folder is not as expected.
    """
    history_table = open_table(table)
    return committed_state(_records_until(spark, history_table, at, data), groups)


def diff(
    spark: SparkSession,
    table: HistoryTable | str | Path,
    before: datetime | int,
    after: datetime | int,
    *,
    groups: Collection[str] | None = None,
    data: str | Path | None = None,
) -> DataFrame:
    """The keys that differ between two times, with the offsets and owners at both, and ``change``.

    ``change``: new, gone, forward, back, or again for the same offset committed again. Other arguments as ``as_of``.
    """
    history_table = open_table(table)
    names = ("offset", "timestamp", "owner", "log_offset")
    first, second = (
        committed_state(_records_until(spark, history_table, at, data), groups).select(
            *KEY_COLUMNS, *(F.col(name).alias(f"{side}_{name}") for name in names)
        )
        for side, at in (("before", before), ("after", after))
    )
    joined = first.join(second, list(KEY_COLUMNS), "full").where(
        ~F.col("before_log_offset").eqNullSafe(F.col("after_log_offset"))
    )
    moved = difference(F.col("after_offset"), F.col("before_offset"))
    change = (
        F.when(F.col("before_offset").isNull(), "new")
        .when(F.col("after_offset").isNull(), "gone")
        .when(moved > 0, "forward")
        .when(moved < 0, "back")
        .otherwise("again")
    )
    columns = (f"{side}_{name}" for name in names[:3] for side in ("before", "after"))
    return joined.select(*KEY_COLUMNS, change.alias("change"), moved.alias("moved"), *columns).orderBy(*KEY_COLUMNS)


def damaged_files(
    spark: SparkSession, table: HistoryTable, data: str | Path, groups: Collection[str] | None = None
) -> list[str]:
    """The damaged files, among those not in the table yet, that may hold records of these groups, or of any."""
    rows = _records_not_in_table(spark, table, Path(data).absolute(), table.progress()).where(F.col("kind") == "damage")
    if groups is not None:
        total = _info(Path(data)).offsets_partitions
        rows = rows.where(F.col("log_partition").isin(*{partition_of(group, total) for group in groups}))
    return sorted({row.notice.partition(": ")[0] for row in rows.select("notice").collect()})


def records(
    spark: SparkSession, table: HistoryTable, data: str | Path | None = None, after: Snapshot | None = None
) -> DataFrame:
    """The table's records, and with ``data`` those that are not in it yet; columns as in the data source.

    ``after``: this snapshot instead of the records of its day and earlier ones.
    """
    return _records_of(spark, table, data, after, table.progress())


def _records_of(
    spark: SparkSession,
    table: HistoryTable,
    data: str | Path | None,
    after: Snapshot | None,
    progress: HistoryProgress,
) -> DataFrame:
    """The same for a table after a commit: if ``keep`` commits meanwhile, no record is missed or read twice."""
    rows = table.rows(spark, after, progress)
    if after:
        rows = rows.unionByName(table.snapshot_rows(spark, after))
    if data is None:
        return rows
    return rows.unionByName(_records_not_in_table(spark, table, Path(data).absolute(), progress))


def _records_until(spark: SparkSession, table: HistoryTable, at: datetime | int, data: str | Path | None) -> DataFrame:
    """The records that decide the state at a time. Those whose timestamp is out of range (null) count as older."""
    time = at if isinstance(at, datetime) else datetime.fromtimestamp(at / 1000, UTC)
    if time.tzinfo is None:
        raise ValueError(f"{time}: found a time without a zone, expected one with it, as in datetime(..., tzinfo=UTC)")
    day = time.astimezone(UTC).date()
    progress = table.progress()
    rows = _records_of(spark, table, data, progress.snapshot_before(day), progress)
    limit = F.timestamp_millis(F.lit(int(time.timestamp() * 1000)))
    is_before = (F.col("timestamp") <= limit) & (F.col(DAY) <= F.lit(day.isoformat()).cast("date"))
    return rows.where(F.col("timestamp").isNull() | is_before)


def committed_state(rows: DataFrame, groups: Collection[str] | None = None) -> DataFrame:
    """The committed offsets and their owners after these records."""
    offsets = effective_offsets(rows)
    if groups is not None:
        offsets = offsets.where(F.col("group").isin(*groups))
    newest = (
        offsets.groupBy(*KEY_COLUMNS)
        .agg(F.max_by(F.struct(*COMMIT_COLUMNS), "log_offset").alias("newest"))
        .select("newest.*")
    )
    return _add_owners(newest.where(~F.col("tombstone")), rows.where(F.col("kind") == "group")).select(*AS_OF_COLUMNS)


def effective_offsets(rows: DataFrame) -> DataFrame:
    """The offset records, with tombstones, except those of aborted or open transactions."""
    offsets = rows.where(F.col("kind") == "offset")
    committed = ended_transactions(offsets.where(is_in_transaction()), rows).where("ended")
    return offsets.where(~is_in_transaction()).select(*COMMIT_COLUMNS).unionByName(committed.select(*COMMIT_COLUMNS))


def is_in_transaction() -> Column:
    """Whether an offset is effective only once its transaction is committed."""
    return F.col("transactional") & ~F.col("tombstone")


def ended_transactions(pending: DataFrame, rows: DataFrame) -> DataFrame:
    """The offsets in transactions with ``ended``: whether the next marker commits them, or null without a marker."""
    markers = rows.where(F.col("kind") == "marker")
    later = Window.partitionBy("log_partition", "producer_id").orderBy("log_offset")
    later = later.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    combined = pending.unionByName(markers).withColumn("ended", F.first("committed", ignorenulls=True).over(later))
    return combined.where(F.col("kind") == "offset")


def group_offsets(offsets: DataFrame, groups: DataFrame) -> DataFrame:
    """The offsets with ``group_offset``: the log offset of the last group record before each."""
    by_offset = Window.partitionBy("log_partition", "group").orderBy("log_offset")
    by_offset = by_offset.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    records = groups.select("log_partition", "group", "log_offset", F.col("log_offset").alias("group_offset"))
    combined = offsets.unionByName(records, allowMissingColumns=True)
    joined = combined.withColumn("group_offset", F.last("group_offset", ignorenulls=True).over(by_offset))
    return joined.where(F.col("topic").isNotNull())


def _add_owners(offsets: DataFrame, groups: DataFrame) -> DataFrame:
    """Add each offset's owner according to the last group record before it."""
    return group_offsets(offsets, groups).join(
        owners(groups), ["log_partition", "group_offset", "topic", "partition"], "left"
    )


def owners(groups: DataFrame) -> DataFrame:
    """The member that each partition is assigned to, by group record (``group_offset`` is the record's log offset).

    If an assignor, a program of a client, has given a partition to several members, it is the first in the record.
    """
    members = groups.select(
        "log_partition", F.col("log_offset").alias("group_offset"), "generation", F.posexplode("members")
    )
    assigned = members.select("*", F.explode("col.assigned").alias("assigned"))
    by_partition = assigned.groupBy("log_partition", "group_offset", "assigned.topic", "assigned.partition")
    owner = F.struct(
        F.col("col.member_id").alias("owner"),
        F.col("col.group_instance_id").alias("owner_instance"),
        F.col("col.client_id").alias("owner_client"),
        F.col("col.client_host").alias("owner_host"),
        F.col("generation").alias("owner_generation"),
    )
    first = by_partition.agg(F.min_by(owner, "pos").alias("first"))
    return first.select("log_partition", "group_offset", "topic", "partition", "first.*")


def _records_not_in_table(spark: SparkSession, table: HistoryTable, data: Path, progress: HistoryProgress) -> DataFrame:
    folders = log_partition_folders(data)
    cluster_id = _info(data).cluster_id
    if cluster_id != table.info.cluster_id:
        raise StartError(
            f"{data}: found the data of cluster {cluster_id}, expected that of {table.info.cluster_id}, since"
            f" {table.name} is the history of that cluster"
        )
    mark = read_history_mark(Disk(), data)
    if mark and mark.table_id == table.info.table_id:
        refuse_lost_commits(data, mark, table)
    firsts = {number: (folder, progress.taken_to.get(number, 0)) for number, folder in folders.items()}
    return read_log_partitions(spark, firsts, data)


def _info(data: Path) -> FolderInfo:
    return parse_info(data / INFO_NAME, read_file(Disk(), data / INFO_NAME))


def read_log_partitions(
    spark: SparkSession, partitions: dict[int, tuple[Path, int]], history_of: Path | None = None
) -> DataFrame:
    """The records of log partitions, each given by its folder and first offset; columns as in ``records``.

    ``history_of``: the data folder, if the records are those that its history does not have. The query then fails if
    compaction has removed records that ``keep`` has copied meanwhile.
    """
    options = Options("", kinds=HISTORY_KINDS, is_permissive=True)

    def read(item: tuple[int, tuple[Path, int]]) -> Iterator[pa.RecordBatch]:
        number, (folder, first) = item
        yield from map(with_day, PartitionScan(Disk(), folder, number, options).since(first))
        if history_of is not None:
            _check_not_compacted(history_of, folder, number, first)

    task_count = max(1, -(-len(partitions) // PARTITIONS_PER_TASK))
    return run_for_each(spark, list(partitions.items()), read, DATED_SCHEMA, task_count)


def _check_not_compacted(data: Path, folder: Path, number: int, first: int) -> None:
    """Raise OSError if records from ``first`` on may have been compacted after they were copied to the history."""
    clean_end, mark = log_files(Disk(), folder).manifest.clean_end, read_history_mark(Disk(), data)
    if mark and first < mark.taken_to.get(number, 0) and first < clean_end:
        raise OSError(
            f"{folder}: history keep has copied the records from offset {first} on during the query, and compaction has"
            " removed some: run the query again"
        )
