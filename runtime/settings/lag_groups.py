"""The groups that an operator wants among the metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..common.errors import StartError

LAG_GROUPS_MAX = 100
"""Each group is one time series, and one request for its offsets in each scrape."""


class MetricGroups(NamedTuple):
    """``lag``: groups whose lag is shown. ``have_page``: whether there is a page of single groups."""

    lag: tuple[str, ...] = ()
    have_page: bool = False


def check_lag_groups(groups: Iterable[str]) -> tuple[str, ...]:
    """The groups, each once. Raises StartError if there are too many."""
    if isinstance(groups, str):
        raise StartError(f"bad lag groups {groups!r}: expected a list of group ids, as in [{groups!r}]")
    names = tuple(dict.fromkeys(groups))
    if len(names) > LAG_GROUPS_MAX:
        raise StartError(f"the lag of {len(names)} groups is requested, expected at most {LAG_GROUPS_MAX}")
    return names
