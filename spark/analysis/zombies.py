"""Groups and topics that still have offsets, and nobody who commits any."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..history.states import KEY, effective

OLD_DAYS = 7.0
SECONDS_A_DAY = 86_400


def zombie_groups(records: DataFrame, now: datetime, days: float = OLD_DAYS) -> DataFrame:
    """Groups without a commit for so many days, the oldest first.

    ``members``: of the group's last record, null if it never had one. With members they live and have nothing to do, or
    cannot commit; without, Kafka deletes the offsets after ``offsets.retention.minutes``.
    """
    live = (
        newest_commits(records)
        .groupBy("group")
        .agg(
            F.count("*").alias("offsets"),
            F.count_distinct("topic").alias("topics"),
            F.max("timestamp").alias("last_commit"),
        )
    )
    found = live.join(members(records).select("group", "members"), "group", "left")
    return (
        _old(found, now, days)
        .select("group", "offsets", "topics", "members", "last_commit", "days")
        .orderBy(F.desc("days"), "group")
    )


def zombie_topics(records: DataFrame, now: datetime, days: float = OLD_DAYS) -> DataFrame:
    """Topics for which no group has committed for so many days, the oldest first."""
    found = (
        newest_commits(records)
        .groupBy("topic")
        .agg(
            F.count_distinct("group").alias("groups"),
            F.count_distinct("partition").alias("partitions"),
            F.max("timestamp").alias("last_commit"),
        )
    )
    return (
        _old(found, now, days)
        .select("topic", "groups", "partitions", "last_commit", "days")
        .orderBy(F.desc("days"), "topic")
    )


def newest_commits(records: DataFrame) -> DataFrame:
    """The offsets that live."""
    names = [name for name in effective(records).columns if name not in KEY]
    newest = F.max_by(F.struct(*names), "log_offset").alias("newest")
    found = effective(records).groupBy(*KEY).agg(newest)
    return found.select(*KEY, "newest.*").where(~F.col("tombstone"))


def members(records: DataFrame) -> DataFrame:
    """Groups by their last record: how many members, since when, and what they subscribe to."""
    groups = records.where(F.col("kind") == "group")
    last = F.max_by(F.struct("members", "protocol_type", "current_state_timestamp", "tombstone"), "log_offset")
    found = groups.groupBy("group").agg(last.alias("last")).where(~F.col("last.tombstone"))
    return found.select(
        "group",
        F.size("last.members").alias("members"),
        F.col("last.protocol_type").alias("protocol_type"),
        F.col("last.current_state_timestamp").alias("state_since"),
        F.flatten(F.transform("last.members", lambda one: F.coalesce(one["topics"], F.array()))).alias("subscribed"),
        F.exists("last.members", lambda one: one["topics"].isNull()).alias("is_unreadable"),
    )


def _old(found: DataFrame, now: datetime, days: float) -> DataFrame:
    age = (F.unix_micros(F.lit(now)) - F.unix_micros("last_commit")) / F.lit(1e6) / SECONDS_A_DAY
    return found.withColumn("days", age).where(F.col("days") > days)
