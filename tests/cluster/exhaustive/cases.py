"""What the search has to find: the sizes of the scopes, and the planted mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from ..seeds_to_detection import ALL_MISTAKES
from .scopes import NOT_MEASURED, SCOPES
from .search import Result, Search

PLANT_STATES_MAX = 200_000


class Plant(NamedTuple):
    """In which scope a mistake is found. ``is_short``: ``make test`` looks for it, in some seconds of CPU."""

    scope: str
    is_short: bool = True


PLANTS: Mapping[str, Plant] = {
    "no seal": Plant("round"),
    "tail is forgotten": Plant("round"),
    "answered before it is stored": Plant("round"),
    "stale owner accepts": Plant("round"),
    "needed rounds deleted": Plant("own"),
    "checkpoint drops too much": Plant("own"),
    "rounds counted after the checkpoint": Plant("own"),
    "round in flight counts as stored": Plant("own"),
    "segments of the next version deleted": Plant("own-garbage", is_short=False),
    "deleted rounds are missed": Plant("own-continuity"),
    "no tombstone": Plant("checkpoint"),
    "seal ignores the floor": Plant("checkpoint"),
    "floor read before the tombstone": Plant("checkpoint"),
    "rounds deleted without floor": Plant("checkpoint"),
    "rounds deleted without a look": Plant("checkpoint"),
    "manifest replaced blindly": Plant("checkpoint-taken", is_short=False),
    "segments of another owner": Plant("checkpoint-taken", is_short=False),
    "manifest is read again before the checkpoint": Plant("checkpoint-taken", is_short=False),
    "reads without lease": Plant("lease", is_short=False),
    "tombstone is not looked at": Plant("lease", is_short=False),
    "counter is not read again": Plant("lease", is_short=False),
    "lease counts from the answer": Plant("lease", is_short=False),
}


def search_scope(name: str, states_max: int = 0) -> Result:
    return Search(SCOPES[name], states_max).run()


def search_plant(mistake: str) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        ALL_MISTAKES[mistake](patch)
        return Search(SCOPES[PLANTS[mistake].scope], PLANT_STATES_MAX).run()


CASES: tuple[str, ...] = (*SCOPES, *PLANTS)
"""A case stands for a seed of ``make soak``."""


def run_case(number: int) -> str | None:
    """Returns what is not as expected, or None."""
    name = CASES[number]
    if name in PLANTS:
        return None if search_plant(name).violation else f"{name}: not found"
    result, expected = search_scope(name), SCOPES[name].size
    if result.violation:
        return f"{name}: {result.violation}: " + "; ".join(result.trace)
    size = result.states, result.steps, result.depth
    return None if expected in (size, NOT_MEASURED) else f"{name}: {size}, expected {expected}"
