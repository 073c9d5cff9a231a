"""Offsets that will expire: by the rules of KIP-211, as a coordinator applies them."""

from __future__ import annotations

from datetime import datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..history.states import KEY
from .zombies import SECONDS_A_DAY, members, newest_commits

WITHIN_DAYS = 7.0
RETENTION_MINUTES = 10_080
"""Kafka's offsets.retention.minutes."""

CONSUMER = "consumer"


def expiring(
    records: DataFrame, now: datetime, days: float = WITHIN_DAYS, retention_minutes: int = RETENTION_MINUTES
) -> DataFrame:
    """Offsets that a coordinator will delete within so many days if nothing changes, or should have; the next first.

    ``why``: "empty", the group has no members, which counts from when it became so; "unsubscribed", no member
    subscribes to the topic, or "simple", it never had members, which both count from the commit; or "asked", when the
    commit came with a time of its own.
    """
    live = newest_commits(records).join(members(records), "group", "left")
    is_simple = F.col("members").isNull() | (F.coalesce("protocol_type", F.lit("")) == "")
    is_empty = F.col("members") == 0
    is_consumer = (F.col("protocol_type") == CONSUMER) & ~F.col("is_unreadable")
    is_unsubscribed = is_consumer & ~F.array_contains("subscribed", F.col("topic"))
    kind = F.when(is_simple, "simple").when(is_empty, "empty").when(is_unsubscribed, "unsubscribed")
    since = F.when(kind == "empty", F.coalesce("state_since", "commit_timestamp")).otherwise(F.col("commit_timestamp"))
    retention = F.lit(timedelta(minutes=retention_minutes))
    why = F.when(F.col("expire_timestamp").isNotNull(), "asked").otherwise(kind)
    found = live.where(kind.isNotNull()).select(
        *KEY, "offset", F.coalesce("expire_timestamp", since + retention).alias("expires"), why.alias("why")
    )
    left = (F.unix_micros("expires") - F.unix_micros(F.lit(now))) / F.lit(1e6) / SECONDS_A_DAY
    named = found.withColumn("days_left", left).where(F.col("days_left") <= days)
    return named.select(*KEY, "offset", "expires", "days_left", "why").orderBy("expires", *KEY)
