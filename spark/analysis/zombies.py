"""Groups and topics that still have committed offsets but no new commits."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..commands.defaults import ZOMBIE_DAYS
from ..history.states import KEY_COLUMNS, effective_offsets

SECONDS_PER_DAY = 86_400


def zombie_groups(records: DataFrame, now: datetime, days: float = ZOMBIE_DAYS) -> DataFrame:
    """Groups without a commit for ``days``, the oldest first.

    ``members``: from the group's last record; null if it never had one. A group with members is idle, or cannot commit;
    the offsets of one without members are deleted after ``offsets.retention.minutes``.
    """
    live = (
        live_offsets(records)
        .groupBy("group")
        .agg(
            F.count("*").alias("offsets"),
            F.count_distinct("topic").alias("topics"),
            F.max("timestamp").alias("last_commit"),
        )
    )
    rows = live.join(group_members(records).select("group", "members"), "group", "left")
    return (
        _older_than(rows, now, days)
        .select("group", "offsets", "topics", "members", "last_commit", "days")
        .orderBy(F.desc("days"), "group")
    )


def zombie_topics(records: DataFrame, now: datetime, days: float = ZOMBIE_DAYS) -> DataFrame:
    """Topics for which no group has committed for ``days``, the oldest first."""
    rows = (
        live_offsets(records)
        .groupBy("topic")
        .agg(
            F.count_distinct("group").alias("groups"),
            F.count_distinct("partition").alias("partitions"),
            F.max("timestamp").alias("last_commit"),
        )
    )
    return (
        _older_than(rows, now, days)
        .select("topic", "groups", "partitions", "last_commit", "days")
        .orderBy(F.desc("days"), "topic")
    )


def live_offsets(records: DataFrame) -> DataFrame:
    """The committed offsets, without deleted ones."""
    names = [name for name in effective_offsets(records).columns if name not in KEY_COLUMNS]
    newest = F.max_by(F.struct(*names), "log_offset").alias("newest")
    rows = effective_offsets(records).groupBy(*KEY_COLUMNS).agg(newest)
    return rows.select(*KEY_COLUMNS, "newest.*").where(~F.col("tombstone"))


def group_members(records: DataFrame) -> DataFrame:
    """Groups by their last record: the number of members, since when, and the topics that they subscribe to."""
    groups = records.where(F.col("kind") == "group")
    last = F.max_by(F.struct("members", "protocol_type", "current_state_timestamp", "tombstone"), "log_offset")
    rows = groups.groupBy("group").agg(last.alias("last")).where(~F.col("last.tombstone"))
    return rows.select(
        "group",
        F.size("last.members").alias("members"),
        F.col("last.protocol_type").alias("protocol_type"),
        F.col("last.current_state_timestamp").alias("state_since"),
        F.flatten(F.transform("last.members", lambda member: F.coalesce(member["topics"], F.array()))).alias(
            "subscribed"
        ),
        F.exists("last.members", lambda member: member["topics"].isNull()).alias("is_unreadable"),
    )


def _older_than(rows: DataFrame, now: datetime, days: float) -> DataFrame:
    age = (F.unix_micros(F.lit(now)) - F.unix_micros("last_commit")) / F.lit(1e6) / SECONDS_PER_DAY
    return rows.withColumn("days", age).where(F.col("days") > days)
