"""How many seeds a planted mistake needs until it is found: ``python -m cluster --mistakes [NAME ...]``."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from itertools import chain

import pytest

from .blind_mistakes import BLIND_MISTAKES
from .cluster_mutations import MUTATIONS, Plant
from .design_mistakes import DESIGN_MISTAKES
from .found_mistakes import FOUND_MISTAKES
from .simulated_cluster import simulate
from .violation import Violation

ALL_MISTAKES: Mapping[str, Plant] = {**DESIGN_MISTAKES, **BLIND_MISTAKES, **MUTATIONS, **FOUND_MISTAKES}
SEEDS_MAX = 2000


def seeds_to_detection(plant: Plant, seeds_max: int = SEEDS_MAX) -> tuple[int, str] | None:
    """The number of seeds, and what was violated. None if it is not found."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        for seed in range(seeds_max):
            try:
                simulate(seed)
            except Violation as violation:
                return seed + 1, str(violation).partition("\n")[0]
    return None


def print_table(names: Iterable[str]) -> int:
    """Returns 1 if a mistake is not found."""
    logging.disable(logging.CRITICAL)
    unknown = [name for name in names if name not in ALL_MISTAKES]
    if unknown:
        print(f"unknown mistake {unknown[0]!r}; expected one of: {', '.join(ALL_MISTAKES)}")
        return 2
    selected = list(names) or list(dict.fromkeys(chain(DESIGN_MISTAKES, BLIND_MISTAKES)))
    missed = 0
    for name in selected:
        result = seeds_to_detection(ALL_MISTAKES[name])
        missed += result is None
        seeds, text = result or (f"not in {SEEDS_MAX}", "")
        print(f"| {name} | {seeds} | {text} |", flush=True)
    return min(missed, 1)
