"""Filter pushdown: which log partitions, segments and records a query's filters leave to be read.

Spark has one reader for all queries of a DataFrame, and plans each with the filters of the last one that had any (up to
4.3). So filters are pushed down only into a DataFrame that asks for it, which then is for one query.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from .options import Options

SETTING = "spark.sql.python.filterPushdown.enabled"
"""Spark pushes filters down to Python sources only if this is true in the session."""


def narrowed(options: Options, filters: Iterable[Filter], log_partitions: Callable[[], Collection[int]]) -> Options:
    """Options that leave out what these filters exclude. Other kinds of filters, and other columns, change nothing.

    ``log_partitions``: those of the log. Rows that a filter excludes may be left, so Spark must evaluate all filters.
    """
    for each in filters:
        name = ".".join(getattr(each, "attribute", ()))
        if (values := _values(each)) is not None:
            options = _with_values(options, name, values, log_partitions)
        elif name == "log_offset" and isinstance(value := getattr(each, "value", None), int):
            options = _with_bound(options, each, value)
    return options


def _values(filter: Filter) -> frozenset[Any] | None:
    """The values that the filter allows; None if it is not a list of them. A comparison with null allows none."""
    if isinstance(filter, In):
        return frozenset(filter.value) - {None}
    if isinstance(filter, EqualTo) or (isinstance(filter, EqualNullSafe) and filter.value is not None):
        return frozenset((filter.value,)) - {None}
    return None


def _with_values(
    options: Options, name: str, values: frozenset[Any], log_partitions: Callable[[], Collection[int]]
) -> Options:
    if name == "group":
        return options._replace(groups=values if options.groups is None else options.groups & values)
    if name == "kind":
        return options._replace(kinds=options.kinds & values)
    if name == "log_partition":
        known = frozenset(log_partitions()) if options.partitions is None else options.partitions
        return options._replace(partitions=known & values)
    if name == "log_offset" and values:
        return _between(options, min(values), max(values) + 1)
    return options


def _with_bound(options: Options, filter: Filter, value: int) -> Options:
    if isinstance(filter, GreaterThan):
        return _between(options, value + 1, None)
    if isinstance(filter, GreaterThanOrEqual):
        return _between(options, value, None)
    if isinstance(filter, LessThan):
        return _between(options, 0, value)
    return _between(options, 0, value + 1) if isinstance(filter, LessThanOrEqual) else options


def _between(options: Options, first: int, end: int | None) -> Options:
    ends = [each for each in (options.end_offset, end) if each is not None]
    return options._replace(first_offset=max(options.first_offset, first), end_offset=min(ends, default=None))
