"""What an operator wants among the metrics, besides what is always there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..common.errors import StartError

LAG_GROUPS_MAX = 100
"""Each group is one time series, and one request for its offsets in each scrape."""


class MetricOptions(NamedTuple):
    """``lag_groups``: groups whose lag is shown. ``has_groups``: whether there is a page of single groups.
    ``has_requests``: whether requests are counted by API.
    """

    lag_groups: tuple[str, ...] = ()
    has_groups: bool = False
    has_requests: bool = False


def check_lag_groups(groups: Iterable[str]) -> tuple[str, ...]:
    """The groups, each once. Raises StartError if there are too many."""
    if isinstance(groups, str):
        raise StartError(f"bad lag groups {groups!r}: expected a list of group ids, as in [{groups!r}]")
    names = tuple(dict.fromkeys(groups))
    if len(names) > LAG_GROUPS_MAX:
        raise StartError(f"the lag of {len(names)} groups is requested, expected at most {LAG_GROUPS_MAX}")
    return names
