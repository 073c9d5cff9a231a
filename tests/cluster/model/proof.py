"""The proof of ``make soak``: each search to its end, and each planted mistake. A case stands for a seed there."""

from __future__ import annotations

from .mistakes import Mistake
from .spaces import PLANTS, SPACES, Size, search_plant, search_space

CASES: tuple[str | Mistake, ...] = (*SPACES, *PLANTS)


def run_case(number: int) -> str | None:
    """Returns what is not as expected, or None."""
    case = CASES[number]
    return _check_plant(case) if isinstance(case, Mistake) else _check_space(case)


def _check_space(name: str) -> str | None:
    result = search_space(name)
    if result.violation:
        return f"{name}: {result.violation}: " + "; ".join(result.trace)
    size, expected = Size(result.states, result.steps, result.depth), SPACES[name].size
    return None if size == expected else f"{name}: {size}, expected {expected}"


def _check_plant(mistake: Mistake) -> str | None:
    result, expected = search_plant(mistake), PLANTS[mistake].steps
    if len(result.trace) == expected:
        return None
    return f"{mistake.option}: found in {len(result.trace)} steps, expected {expected} (0: not found)"
