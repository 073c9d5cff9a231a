"""How groups commit: too often, with gaps, backwards, and some of their partitions behind the others."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..history.states import KEY, effective

GAP_MINUTES = 10.0
SECONDS_A_MINUTE = 60.0


def steps(records: DataFrame) -> DataFrame:
    """Every commit that counts, with the one before it: ``before``, ``moved``, and ``seconds`` from one to the other.

    After a deletion nothing is before; deletions themselves are left out.
    """
    order = Window.partitionBy("log_partition", *KEY).orderBy("log_offset")
    previous = F.lag(F.struct("offset", "timestamp", "tombstone")).over(order)
    both = effective(records).withColumn("previous", previous).where(~F.col("tombstone"))
    is_after = ~F.col("previous.tombstone")
    return both.select(
        *KEY,
        "log_partition",
        "log_offset",
        "timestamp",
        "offset",
        F.when(is_after, F.col("previous.offset")).alias("before"),
        F.when(is_after, F.col("offset") - F.col("previous.offset")).alias("moved"),
        F.when(is_after, F.col("previous.timestamp")).alias("since"),
        F.when(is_after, _seconds(F.col("previous.timestamp"), F.col("timestamp"))).alias("seconds"),
    )


def frequent_commits(records: DataFrame) -> DataFrame:
    """Who commits how often, the most first: one row a group.

    ``seconds_between``: from one commit of a partition to its next, on average. ``offsets_a_commit``: how far one goes,
    on average. ``idle_share``: the part that changed nothing. ``commits_a_minute`` counts every partition.
    """
    span = _seconds(F.min("timestamp"), F.max("timestamp")) / SECONDS_A_MINUTE
    found = (
        steps(records)
        .groupBy("group")
        .agg(
            F.count("*").alias("commits"),
            F.count_distinct("topic", "partition").alias("partitions"),
            span.alias("minutes"),
            F.avg("seconds").alias("seconds_between"),
            F.avg("moved").alias("offsets_a_commit"),
            F.avg((F.col("moved") == 0).cast("int")).alias("idle_share"),
        )
    )
    rate = F.when(F.col("minutes") > 0, F.col("commits") / F.col("minutes"))
    names = ("group", "commits", "partitions", "minutes", rate.alias("commits_a_minute"))
    rest = ("seconds_between", "offsets_a_commit", "idle_share")
    return found.select(*names, *rest).orderBy(F.desc("commits"), "group")


def gaps(records: DataFrame, minutes: float = GAP_MINUTES) -> DataFrame:
    """Where a partition had no commit for longer than so many minutes and then one again, the longest first.

    ``moved``: how far it went meanwhile. 0 says that there was nothing to do; much says that it stood, or that commits
    failed.
    """
    found = steps(records).where(F.col("seconds") > minutes * SECONDS_A_MINUTE)
    length = (F.col("seconds") / SECONDS_A_MINUTE).alias("minutes")
    return found.select(*KEY, "since", F.col("timestamp").alias("until"), length, "moved").orderBy(
        F.desc("minutes"), *KEY
    )


def rewinds(records: DataFrame) -> DataFrame:
    """Commits that went backwards, the furthest first: resets, and members that commit what is not theirs any more."""
    found = steps(records).where(F.col("moved") < 0)
    return found.select(
        *KEY, "timestamp", "before", F.col("offset").alias("after"), "moved", "log_partition", "log_offset"
    ).orderBy("moved", *KEY, "log_offset")


def skew(records: DataFrame) -> DataFrame:
    """How unevenly a group goes forward in a topic: one row for each where it is uneven, the most uneven first.

    ``fastest_moved``, ``median_moved``, ``slowest_moved``: offsets from the first commit to the last, of a partition;
    what was rewound counts again. ``ratio``: the fastest to the median; empty when the median stood still.
    """
    moved = steps(records).groupBy(*KEY).agg(F.sum(F.greatest(F.lit(0), F.coalesce("moved", F.lit(0)))).alias("moved"))
    found = moved.groupBy("group", "topic").agg(
        F.count("*").alias("partitions"),
        F.min_by("partition", F.struct("moved", "partition")).alias("slowest"),
        F.min("moved").alias("slowest_moved"),
        F.median("moved").alias("median_moved"),
        F.max_by("partition", F.struct("moved", "partition")).alias("fastest"),
        F.max("moved").alias("fastest_moved"),
    )
    ratio = F.when(F.col("median_moved") > 0, F.col("fastest_moved") / F.col("median_moved")).alias("ratio")
    uneven = found.where(F.col("fastest_moved") > F.col("slowest_moved")).select("*", ratio)
    return uneven.orderBy(F.desc_nulls_last("ratio"), F.desc("fastest_moved"), "group", "topic")


def _seconds(first: Column, last: Column) -> Column:
    return (F.unix_micros(last) - F.unix_micros(first)) / F.lit(1e6)
