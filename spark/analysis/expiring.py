"""Offsets that will expire, by the rules of KIP-211."""

from __future__ import annotations

from datetime import datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..commands.defaults import RETENTION_MINUTES, WITHIN_DAYS
from ..history.states import KEY_COLUMNS
from .zombies import SECONDS_PER_DAY, group_members, live_offsets

CONSUMER = "consumer"


def expiring(
    records: DataFrame, now: datetime, days: float = WITHIN_DAYS, retention_minutes: int = RETENTION_MINUTES
) -> DataFrame:
    """Offsets that a coordinator will delete within ``days`` if nothing changes, or that are overdue; the next first.

    ``why``: "empty", the group has no members (the time counts from when it became empty); "unsubscribed", no member
    subscribes to the topic, or "simple", the group never had members (it counts from the commit); "asked", the commit
    has an expiry time of its own.
    """
    live = live_offsets(records).join(group_members(records), "group", "left")
    is_simple = F.col("members").isNull() | (F.coalesce("protocol_type", F.lit("")) == "")
    is_empty = F.col("members") == 0
    is_consumer = (F.col("protocol_type") == CONSUMER) & ~F.col("is_unreadable")
    is_unsubscribed = is_consumer & ~F.array_contains("subscribed", F.col("topic"))
    kind = F.when(is_simple, "simple").when(is_empty, "empty").when(is_unsubscribed, "unsubscribed")
    since = F.when(kind == "empty", F.coalesce("state_since", "commit_timestamp")).otherwise(F.col("commit_timestamp"))
    retention = F.lit(timedelta(minutes=retention_minutes))
    why = F.when(F.col("expire_timestamp").isNotNull(), "asked").otherwise(kind)
    expiring_offsets = live.where(kind.isNotNull()).select(
        *KEY_COLUMNS,
        "offset",
        F.coalesce("expire_timestamp", F.try_add(since, retention)).alias("expires"),
        why.alias("why"),
    )
    days_left = (F.unix_micros("expires") - F.unix_micros(F.lit(now))) / F.lit(1e6) / SECONDS_PER_DAY
    expiring_soon = expiring_offsets.withColumn("days_left", days_left).where(F.col("days_left") <= days)
    return expiring_soon.select(*KEY_COLUMNS, "offset", "expires", "days_left", "why").orderBy("expires", *KEY_COLUMNS)
