"""The log's growth by day, and a forecast by linear regression."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ..commands.defaults import FORECAST_DAYS
from ..history.states import KEY_COLUMNS

FIT_DAYS = 28  # older days say little about the future
STUDENT_95 = (
    *(12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16),
    *(2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09, 2.08, 2.07, 2.07, 2.06, 2.06, 2.06),
)
"""How many standard deviations on either side contain 95 % of Student's t-distribution with 1, 2, ..., 26 degrees of
freedom: those of a line through 3, 4, ..., 28 days."""


def growth(records: DataFrame) -> DataFrame:
    """One row for each day, in UTC: records of each kind, active groups, and new keys and groups.

    Records that compaction has removed are not counted, except with a history.
    """
    dated_records = records.where(F.col("day").isNotNull())
    is_offset, is_alive = F.col("kind") == "offset", ~F.col("tombstone")
    days = dated_records.groupBy("day").agg(
        F.count("*").alias("records"),
        F.count_if(is_offset & is_alive).alias("commits"),
        F.count_if(~is_alive).alias("tombstones"),
        F.count_if(F.col("kind") == "group").alias("group_records"),
        F.count_distinct("group").alias("groups"),
    )
    keys = dated_records.where(is_offset).groupBy(*KEY_COLUMNS).agg(F.min("day").alias("day")).groupBy("day")
    groups = (
        dated_records.where(F.col("group").isNotNull()).groupBy("group").agg(F.min("day").alias("day")).groupBy("day")
    )
    days = days.join(keys.agg(F.count("*").alias("new_keys")), "day", "left")
    days = days.join(groups.agg(F.count("*").alias("new_groups")), "day", "left").fillna(0)
    cumulative = Window.orderBy("day").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return days.withColumn("records_so_far", F.sum("records").over(cumulative)).orderBy("day")


class DailyRecords(NamedTuple):
    """The records of a day, counted or forecast; a forecast is between ``low`` and ``high`` in 95 % of cases."""

    day: date
    records: float
    low: float
    high: float
    is_forecast: bool


def forecast(days: Sequence[Any], now: datetime, ahead: int = FORECAST_DAYS) -> list[DailyRecords]:
    """The days of ``growth``, and ``ahead`` days after that of ``now``, on a straight line through the last four weeks.

    The first day and the day of ``now`` are incomplete and not used for the line. Days without records count as 0, also
    those after the last record. With fewer than three complete days there is no forecast. It ends with the year 9999.
    """
    today = now.astimezone(UTC).date()
    counts = {row.day: row.records for row in days if row.day <= today}
    result = [DailyRecords(day, records, records, records, False) for day, records in sorted(counts.items())]
    if not result:
        return []
    first = max(result[0].day + timedelta(days=1), today - timedelta(days=FIT_DAYS))
    fit_days = [first + timedelta(days=index) for index in range((today - first).days)]
    if len(fit_days) < 3:
        return result
    line = _TrendLine(np.array([counts.get(day, 0) for day in fit_days], dtype=float))
    for index in range(1, min(ahead, (date.max - today).days) + 1):
        day = today + timedelta(days=index)
        value, margin = line.at((day - first).days)
        result.append(DailyRecords(day, max(value, 0.0), max(value - margin, 0.0), max(value + margin, 0.0), True))
    return result


def forecast_frame(records: DataFrame, now: datetime, ahead: int = FORECAST_DAYS) -> DataFrame:
    """``forecast`` as a DataFrame."""
    spark, days = records.sparkSession, forecast(growth(records).collect(), now, ahead)
    schema = "day date, records double, low double, high double, is_forecast boolean"
    return spark.createDataFrame([(day.day, *map(float, day[1:4]), day.is_forecast) for day in days], schema)


class _TrendLine:
    """Linear regression of at least three counts at 0, 1, 2, ..., with prediction intervals.

    The standard deviation from the line is at least that of independent events (Poisson), the root of their mean: a few
    counts that happen to be on a line do not make a forecast certain.
    """

    def __init__(self, values: Any) -> None:
        self._count = len(values)
        self._middle = (self._count - 1) / 2
        x = np.arange(self._count) - self._middle
        self._sum_of_squares = float(np.sum(x**2))
        self._slope = float(np.sum(x * values)) / self._sum_of_squares
        self._mean = float(np.mean(values))
        residuals = values - self._mean - self._slope * x
        degrees = self._count - 2
        deviation = max(np.sqrt(np.sum(residuals**2) / degrees), np.sqrt(max(self._mean, 1.0)))
        self._margin = STUDENT_95[degrees - 1] * float(deviation)

    def at(self, x: float) -> tuple[float, float]:
        """The predicted value, and half the width of the 95 % prediction interval."""
        x -= self._middle
        factor = float(np.sqrt(1 + 1 / self._count + x**2 / self._sum_of_squares))
        return self._mean + self._slope * x, self._margin * factor
