"""How the log grows, day by day, and how it will if it goes on so."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ..history.states import KEY

FORECAST_DAYS = 14
LEARN_DAYS = 28  # what is older says little about what comes
SPREAD = 1.96  # standard deviations, between which 95 % of a normal distribution lie


def growth(records: DataFrame) -> DataFrame:
    """One row a day, in UTC: records of each kind, groups that were active, and keys and groups met for the first time.

    Of what compaction has dropped nothing is counted: keep a history for the whole of it.
    """
    dated = records.where(F.col("day").isNotNull())
    is_offset, is_alive = F.col("kind") == "offset", ~F.col("tombstone")
    days = dated.groupBy("day").agg(
        F.count("*").alias("records"),
        F.count_if(is_offset & is_alive).alias("commits"),
        F.count_if(~is_alive).alias("tombstones"),
        F.count_if(F.col("kind") == "group").alias("group_records"),
        F.count_distinct("group").alias("groups"),
    )
    keys = dated.where(is_offset).groupBy(*KEY).agg(F.min("day").alias("day")).groupBy("day")
    groups = dated.where(F.col("group").isNotNull()).groupBy("group").agg(F.min("day").alias("day")).groupBy("day")
    found = days.join(keys.agg(F.count("*").alias("new_keys")), "day", "left")
    found = found.join(groups.agg(F.count("*").alias("new_groups")), "day", "left").fillna(0)
    so_far = Window.orderBy("day").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return found.withColumn("records_so_far", F.sum("records").over(so_far)).orderBy("day")


class Day(NamedTuple):
    """Records of a day: as they were, or as they are to be expected, between ``low`` and ``high`` in 95 % of cases."""

    day: date
    records: float
    low: float
    high: float
    is_forecast: bool


def forecast(days: Sequence[Any], now: datetime, ahead: int = FORECAST_DAYS) -> list[Day]:
    """The days of ``growth``, and as many more as ``ahead``, by a straight line through the last four weeks.

    The day of ``now`` is not over, and the first day may have begun before the log did: neither teaches. Days without a
    record count as none. With fewer than three days to learn from there is nothing to say: no day is added. Over few
    days the range is wide, and rightly so.
    """
    today = now.astimezone(UTC).date()
    counted = {row.day: row.records for row in days if row.day <= today}
    known = [Day(day, records, records, records, False) for day, records in sorted(counted.items())]
    if not known:
        return []
    first, last = known[0].day + timedelta(days=1), min(known[-1].day, today - timedelta(days=1))
    learned = [first + timedelta(days=index) for index in range((last - first).days + 1)][-LEARN_DAYS:]
    if len(learned) < 3:
        return known
    line, newest = _Line(np.array([counted.get(day, 0) for day in learned], dtype=float)), known[-1].day
    for index in range(1, ahead + 1):
        day = newest + timedelta(days=index)
        middle, spread = line.at((day - learned[0]).days)
        known.append(Day(day, max(middle, 0.0), max(middle - spread, 0.0), max(middle + spread, 0.0), True))
    return known


class _Line:
    """A straight line through values at 0, 1, 2, ..., and how far a new value may be from it."""

    def __init__(self, values: Any) -> None:
        self._count = len(values)
        self._middle = (self._count - 1) / 2
        places = np.arange(self._count) - self._middle
        self._square = float(np.sum(places**2))
        self._slope = float(np.sum(places * values)) / self._square
        self._mean = float(np.mean(values))
        rest = values - self._mean - self._slope * places
        self._deviation = float(np.sqrt(np.sum(rest**2) / (self._count - 2)))

    def at(self, place: float) -> tuple[float, float]:
        """The value of the line, and half the width of its range."""
        off = place - self._middle
        width = SPREAD * self._deviation * float(np.sqrt(1 + 1 / self._count + off**2 / self._square))
        return self._mean + self._slope * off, width
