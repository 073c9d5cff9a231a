"""How groups commit: too often, with gaps, backwards, or unevenly over their partitions."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..commands.defaults import GAP_MINUTES
from ..differences import LONG_MAX, difference
from ..history.states import KEY_COLUMNS, effective_offsets

SECONDS_PER_MINUTE = 60.0


def commit_steps(records: DataFrame) -> DataFrame:
    """Every effective commit with the previous one of its key: ``before`` (offset), ``moved``, and ``seconds`` between.

    Deletions are left out; a commit after a deletion has no previous one.
    """
    order = Window.partitionBy("log_partition", *KEY_COLUMNS).orderBy("log_offset")
    previous = F.lag(F.struct("offset", "timestamp", "tombstone")).over(order)
    commits = effective_offsets(records).withColumn("previous", previous).where(~F.col("tombstone"))
    has_previous = ~F.col("previous.tombstone")
    return commits.select(
        *KEY_COLUMNS,
        "log_partition",
        "log_offset",
        "timestamp",
        "offset",
        F.when(has_previous, F.col("previous.offset")).alias("before"),
        F.when(has_previous, difference(F.col("offset"), F.col("previous.offset"))).alias("moved"),
        F.when(has_previous, F.col("previous.timestamp")).alias("since"),
        F.when(has_previous, _seconds(F.col("previous.timestamp"), F.col("timestamp"))).alias("seconds"),
    )


def frequent_commits(records: DataFrame) -> DataFrame:
    """How often groups commit, the most frequent first: one row for each group.

    ``seconds_between``: the mean time between two commits of a partition. ``offsets_a_commit``: the mean progress.
    ``idle_share``: the share of commits without progress. ``commits_a_minute`` counts each partition as a commit.
    """
    span = _seconds(F.min("timestamp"), F.max("timestamp")) / SECONDS_PER_MINUTE
    by_group = (
        commit_steps(records)
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
    other_columns = ("seconds_between", "offsets_a_commit", "idle_share")
    return by_group.select(*names, *other_columns).orderBy(F.desc("commits"), "group")


def gaps(records: DataFrame, minutes: float = GAP_MINUTES) -> DataFrame:
    """Times of more than ``minutes`` between two commits of a partition, the longest first.

    ``moved``: the progress between the two. 0: there were no records to process. Large: the consumer was stuck, or its
    commits failed.
    """
    pauses = commit_steps(records).where(F.col("seconds") > minutes * SECONDS_PER_MINUTE)
    length = (F.col("seconds") / SECONDS_PER_MINUTE).alias("minutes")
    return pauses.select(*KEY_COLUMNS, "since", F.col("timestamp").alias("until"), length, "moved").orderBy(
        F.desc("minutes"), *KEY_COLUMNS
    )


def rewinds(records: DataFrame) -> DataFrame:
    """Commits of a smaller offset, the furthest first: resets, or members that commit partitions they have lost."""
    backwards = commit_steps(records).where(F.col("moved") < 0)
    return backwards.select(
        *KEY_COLUMNS, "timestamp", "before", F.col("offset").alias("after"), "moved", "log_partition", "log_offset"
    ).orderBy("moved", *KEY_COLUMNS, "log_offset")


def skew(records: DataFrame) -> DataFrame:
    """Groups and topics whose partitions progress unevenly, the most uneven first.

    ``fastest_moved``, ``median_moved``, ``slowest_moved``: offsets from a partition's first commit to its last; after
    a rewind offsets count again. ``ratio``: the fastest to the median; null if the median is 0.
    """
    moved = commit_steps(records).groupBy(*KEY_COLUMNS).agg(_sum_of_positive("moved").alias("moved"))
    by_topic = moved.groupBy("group", "topic").agg(
        F.count("*").alias("partitions"),
        F.min_by("partition", F.struct("moved", "partition")).alias("slowest"),
        F.min("moved").alias("slowest_moved"),
        F.median("moved").alias("median_moved"),
        F.max_by("partition", F.struct("moved", "partition")).alias("fastest"),
        F.max("moved").alias("fastest_moved"),
    )
    ratio = F.when(F.col("median_moved") > 0, F.col("fastest_moved") / F.col("median_moved")).alias("ratio")
    uneven = by_topic.where(F.col("fastest_moved") > F.col("slowest_moved")).select("*", ratio)
    return uneven.orderBy(F.desc_nulls_last("ratio"), F.desc("fastest_moved"), "group", "topic")


def _sum_of_positive(name: str) -> Column:
    return F.coalesce(F.try_sum(F.greatest(F.lit(0), F.coalesce(name, F.lit(0)))), F.lit(LONG_MAX))


def _seconds(first: Column, last: Column) -> Column:
    return (F.unix_micros(last) - F.unix_micros(first)) / F.lit(1e6)
