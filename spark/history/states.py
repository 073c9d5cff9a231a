"""All offsets as they were at a time, with whose they were; and what changed between two times.

A time is that of the log: when the coordinator wrote a record. Of each key the record counts that was the newest then.
An offset in a transaction counts from when its transaction was committed, at the place in the log where it lies. Who
owned a partition is what the group's record before the commit says; simple consumers have no owner.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ...runtime.common.errors import StartError
from ...runtime.disk.disk import Disk, read_file
from ...runtime.log.folder import INFO_NAME, FolderInfo, parse_info
from ...runtime.log.reading.partition_reader import partition_of
from ..columns import ALL, ddl
from ..options import Options
from ..scan import Scan
from ..tasks import freeze_once
from .keep import KINDS, folders_of
from .table import DAY, HistoryTable

KEY = ("group", "topic", "partition")
VALUE = ("offset", "leader_epoch", "metadata", "commit_timestamp", "expire_timestamp")
OWNER = ("owner", "owner_instance", "owner_client", "owner_host", "owner_generation")
RECORD = ("log_partition", "log_offset", "timestamp")
COMMIT = (*KEY, *VALUE, *RECORD, "tombstone")
AS_OF = (*KEY, *VALUE, *OWNER, *RECORD)
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
    """The committed offsets as they were at a time, of some groups or of all; columns as in ``AS_OF``.

    ``at``: with a zone, or ms since 1970. ``data``: the data folder, for what the table has not taken yet; a log
    partition's newest records lie there only. StartError when a folder is not what it should be.
    """
    made = table if isinstance(table, HistoryTable) else HistoryTable.open(table)
    return state_of(until(records(spark, made, data), at), groups)


def diff(
    spark: SparkSession,
    table: HistoryTable | str | Path,
    before: datetime | int,
    after: datetime | int,
    *,
    groups: Collection[str] | None = None,
    data: str | Path | None = None,
) -> DataFrame:
    """What is different at a second time: for each key both offsets and both owners, and ``change``.

    ``change``: new, gone, forward, back, or again for one that was committed anew. Other arguments as for ``as_of``.
    """
    made = table if isinstance(table, HistoryTable) else HistoryTable.open(table)
    rows = records(spark, made, data)
    names = ("offset", "timestamp", "owner", "log_offset")
    one, other = (
        state_of(until(rows, at), groups).select(*KEY, *(F.col(name).alias(f"{side}_{name}") for name in names))
        for side, at in (("before", before), ("after", after))
    )
    both = one.join(other, list(KEY), "full").where(~F.col("before_log_offset").eqNullSafe(F.col("after_log_offset")))
    moved = F.col("after_offset") - F.col("before_offset")
    change = (
        F.when(F.col("before_offset").isNull(), "new")
        .when(F.col("after_offset").isNull(), "gone")
        .when(moved > 0, "forward")
        .when(moved < 0, "back")
        .otherwise("again")
    )
    shown = (f"{side}_{name}" for name in names[:3] for side in ("before", "after"))
    return both.select(*KEY, change.alias("change"), moved.alias("moved"), *shown).orderBy(*KEY)


def damaged_files(
    spark: SparkSession, table: HistoryTable, data: str | Path, groups: Collection[str] | None = None
) -> list[str]:
    """The damaged files of what the table has not taken yet, where records of some groups, or of any, can be."""
    rows = _fresh(spark, table, Path(data).absolute()).where(F.col("kind") == "damage")
    if groups is not None:
        total = _info(Path(data)).offsets_partitions
        rows = rows.where(F.col("log_partition").isin(*{partition_of(group, total) for group in groups}))
    return sorted({row.notice.partition(": ")[0] for row in rows.select("notice").collect()})


def records(spark: SparkSession, table: HistoryTable, data: str | Path | None = None) -> DataFrame:
    """Every record that the table has, and with ``data`` those that it has not yet; the data source's columns."""
    rows = table.rows(spark)
    return rows if data is None else rows.unionByName(_fresh(spark, table, Path(data).absolute()))


def until(rows: DataFrame, at: datetime | int) -> DataFrame:
    """The records up to a time; one whose own time no calendar holds is taken for old."""
    moment = at if isinstance(at, datetime) else datetime.fromtimestamp(at / 1000, UTC)
    if moment.tzinfo is None:
        raise ValueError(
            f"{moment}: found a time without a zone, expected one with it, as in datetime(..., tzinfo=UTC)"
        )
    limit = F.timestamp_millis(F.lit(int(moment.timestamp() * 1000)))
    day = F.lit(moment.astimezone(UTC).date())
    is_known = (F.col("timestamp") <= limit) & (F.col(DAY) <= day)
    return rows.where(F.col("timestamp").isNull() | is_known)


def state_of(known: DataFrame, groups: Collection[str] | None = None) -> DataFrame:
    """What is committed after some records, and whose it is."""
    counted = effective(known)
    if groups is not None:
        counted = counted.where(F.col("group").isin(*groups))
    newest = counted.groupBy(*KEY).agg(F.max_by(F.struct(*COMMIT), "log_offset").alias("newest")).select("newest.*")
    return _with_owners(newest.where(~F.col("tombstone")), known.where(F.col("kind") == "group")).select(*AS_OF)


def effective(known: DataFrame) -> DataFrame:
    """The offsets of some records that count, tombstones too: without transactions that were aborted or are open."""
    offsets = known.where(F.col("kind") == "offset")
    is_pending = F.col("transactional") & ~F.col("tombstone")
    pending = _committed(offsets.where(is_pending), known)
    return offsets.where(~is_pending).select(*COMMIT).unionByName(pending.select(*COMMIT))


def _committed(pending: DataFrame, known: DataFrame) -> DataFrame:
    """Those of some offsets whose transaction was committed: by the next marker of their producer."""
    markers = known.where(F.col("kind") == "marker")
    later = Window.partitionBy("log_partition", "producer_id").orderBy("log_offset")
    later = later.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    both = pending.unionByName(markers).withColumn("ended", F.first("committed", ignorenulls=True).over(later))
    return both.where((F.col("kind") == "offset") & F.col("ended"))


def _with_owners(offsets: DataFrame, groups: DataFrame) -> DataFrame:
    """With who had the partition by the group's last record before each offset."""
    before = Window.partitionBy("log_partition", "group").orderBy("log_offset")
    before = before.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    places = groups.select("log_partition", "group", "log_offset", F.col("log_offset").alias("group_offset"))
    both = offsets.unionByName(places, allowMissingColumns=True)
    found = both.withColumn("group_offset", F.last("group_offset", ignorenulls=True).over(before))
    found = found.where(F.col("topic").isNotNull())
    return found.join(owners(groups), ["log_partition", "group_offset", "topic", "partition"], "left")


def owners(groups: DataFrame) -> DataFrame:
    """Of records of groups: which member has which partition, with the record's place as ``group_offset``."""
    members = groups.select("log_partition", "log_offset", "generation", F.explode("members").alias("member"))
    places = members.select("*", F.explode("member.assigned").alias("place"))
    return places.select(
        "log_partition",
        F.col("log_offset").alias("group_offset"),
        "place.topic",
        "place.partition",
        F.col("member.member_id").alias("owner"),
        F.col("member.group_instance_id").alias("owner_instance"),
        F.col("member.client_id").alias("owner_client"),
        F.col("member.client_host").alias("owner_host"),
        F.col("generation").alias("owner_generation"),
    )


def _fresh(spark: SparkSession, table: HistoryTable, data: Path) -> DataFrame:
    taken_to = table.progress().taken_to
    found = folders_of(data)
    cluster_id = _info(data).cluster_id
    if cluster_id != table.info.cluster_id:
        raise StartError(
            f"{data}: found the data of cluster {cluster_id}, expected that of {table.info.cluster_id}, whose history"
            f" {table.path} is"
        )
    return fresh(spark, {number: (folder, taken_to.get(number, 0)) for number, folder in found.items()})


def _info(data: Path) -> FolderInfo:
    return parse_info(data / INFO_NAME, read_file(Disk(), data / INFO_NAME))


def fresh(spark: SparkSession, places: dict[int, tuple[Path, int]]) -> DataFrame:
    """The records of log partitions, given by their folders, from an offset of each on; as ``records``."""
    listed = list(places.items())
    options = Options("", kinds=KINDS, is_patient=True)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_once()
        for batch in batches:
            for index in batch.column(0).to_pylist():
                number, (folder, first) = listed[index]
                for found in Scan(Disk(), folder, number, options).since(first):
                    days = found.column("timestamp").cast(pa.timestamp("us")).cast(pa.date32(), safe=False)
                    yield pa.RecordBatch.from_arrays([*found.columns, days], names=[*found.schema.names, DAY])

    tasks = max(1, -(-len(listed) // PARTITIONS_PER_TASK))
    indexes = spark.range(0, len(listed), numPartitions=tasks)
    return indexes.mapInArrow(read, f"{ddl(list(ALL))}, {DAY} date")
