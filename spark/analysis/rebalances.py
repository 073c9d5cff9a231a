"""Rebalances: the members that joined and left with each generation, and times with too many generations."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ..commands.defaults import STORM_GENERATIONS, STORM_MINUTES


def generations(records: DataFrame) -> DataFrame:
    """Each generation of each group: its members, those that joined and left, and the time since the previous one.

    ``joined`` and ``left`` have instance ids of static members, else member ids. So a static member that restarts is in
    neither; a dynamic member that rejoins is a new member. Compaction keeps only the last generation of a group; a
    history has all.
    """
    order = Window.partitionBy("log_partition", "group").orderBy("log_offset")
    names = F.transform("members", lambda member: F.coalesce(member["group_instance_id"], member["member_id"]))
    group_records = records.where((F.col("kind") == "group") & ~F.col("tombstone")).withColumn("names", names)
    previous_names = F.lag("names").over(order)
    rows = group_records.withColumn("before", F.coalesce(previous_names, F.array())).withColumn(
        "last", F.lag("timestamp").over(order)
    )
    rows = rows.withColumn("last_generation", F.lag("generation").over(order))
    is_new = F.col("last_generation").isNull() | (F.col("generation") != F.col("last_generation"))
    return (
        rows.where(is_new)
        .select(
            "group",
            "timestamp",
            "generation",
            F.size("names").alias("members"),
            F.array_except("names", "before").alias("joined"),
            F.array_except("before", "names").alias("left"),
            ((F.unix_micros("timestamp") - F.unix_micros("last")) / F.lit(1e6)).alias("seconds_since"),
            "leader",
            "log_partition",
            "log_offset",
        )
        .orderBy("group", "log_partition", "log_offset")
    )


def storms(records: DataFrame, minutes: float = STORM_MINUTES, at_least: int = STORM_GENERATIONS) -> DataFrame:
    """Time windows in which a group had at least ``at_least`` generations within ``minutes``, the worst first.

    Windows are on a fixed grid. ``a_minute``: generations per minute. ``joined``, ``left``: numbers of members.
    ``restless_members``: the member that joined and left most often.
    """
    seconds = max(1, round(minutes * 60))
    window = F.window("timestamp", f"{seconds} seconds")
    all_generations = generations(records)
    changed = all_generations.select(
        "group", window.alias("window"), F.explode(F.concat("joined", "left")).alias("member")
    )
    counts = changed.groupBy("group", "window", "member").count()
    restless_members = counts.groupBy("group", "window").agg(
        F.max_by("member", F.struct("count", "member")).alias("restless")
    )
    windows = all_generations.groupBy("group", window.alias("window")).agg(
        F.count("*").alias("generations"),
        F.sum(F.size("joined")).alias("joined"),
        F.sum(F.size("left")).alias("left"),
        F.min("members").alias("members_min"),
        F.max("members").alias("members_max"),
    )
    joined = windows.where(F.col("generations") >= at_least).join(restless_members, ["group", "window"], "left")
    rate = (F.col("generations") / F.lit(seconds / 60)).alias("a_minute")
    names = ("joined", "left", "members_min", "members_max", "restless")
    return joined.select("group", F.col("window.start").alias("since"), "generations", rate, *names).orderBy(
        F.desc("generations"), "group", "since"
    )
