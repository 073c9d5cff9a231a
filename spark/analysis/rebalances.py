"""Rebalances: who came and who went with each generation, and when there were too many of them."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

STORM_GENERATIONS = 3
STORM_MINUTES = 1.0


def generations(records: DataFrame) -> DataFrame:
    """Each generation of each group: its members, who came and who went since the one before, and after how long.

    A static member is known by its instance id, so one that restarts neither comes nor goes; a dynamic one that joins
    anew is another member. ``came`` and ``went`` have member ids, or instance ids. Compaction leaves only the last
    generation of a group: keep a history for more.
    """
    order = Window.partitionBy("log_partition", "group").orderBy("log_offset")
    names = F.transform("members", lambda one: F.coalesce(one["group_instance_id"], one["member_id"]))
    living = records.where((F.col("kind") == "group") & ~F.col("tombstone")).withColumn("names", names)
    before = F.lag("names").over(order)
    found = living.withColumn("before", F.coalesce(before, F.array())).withColumn(
        "last", F.lag("timestamp").over(order)
    )
    found = found.withColumn("last_generation", F.lag("generation").over(order))
    is_new = F.col("last_generation").isNull() | (F.col("generation") != F.col("last_generation"))
    return (
        found.where(is_new)
        .select(
            "group",
            "timestamp",
            "generation",
            F.size("names").alias("members"),
            F.array_except("names", "before").alias("came"),
            F.array_except("before", "names").alias("went"),
            ((F.unix_micros("timestamp") - F.unix_micros("last")) / F.lit(1e6)).alias("seconds_since"),
            "leader",
            "log_partition",
            "log_offset",
        )
        .orderBy("group", "log_partition", "log_offset")
    )


def storms(records: DataFrame, minutes: float = STORM_MINUTES, at_least: int = STORM_GENERATIONS) -> DataFrame:
    """Where a group had at least so many generations within so many minutes, the worst first.

    One row for each such stretch of time, on a fixed grid: ``generations`` in it, of which ``a_minute``; how many
    members came and went, and who did so most often (``restless``).
    """
    seconds = max(1, round(minutes * 60))
    window = F.window("timestamp", f"{seconds} seconds")
    found = generations(records)
    changed = found.select("group", window.alias("window"), F.explode(F.concat("came", "went")).alias("member"))
    counts = changed.groupBy("group", "window", "member").count()
    restless = counts.groupBy("group", "window").agg(F.max_by("member", F.struct("count", "member")).alias("restless"))
    stretches = found.groupBy("group", window.alias("window")).agg(
        F.count("*").alias("generations"),
        F.sum(F.size("came")).alias("came"),
        F.sum(F.size("went")).alias("went"),
        F.min("members").alias("members_min"),
        F.max("members").alias("members_max"),
    )
    joined = stretches.where(F.col("generations") >= at_least).join(restless, ["group", "window"], "left")
    rate = (F.col("generations") / F.lit(seconds / 60)).alias("a_minute")
    names = ("came", "went", "members_min", "members_max", "restless")
    return joined.select("group", F.col("window.start").alias("since"), "generations", rate, *names).orderBy(
        F.desc("generations"), "group", "since"
    )
