"""When a process that has ended is started again."""

from __future__ import annotations

LONGEST_DELAY_S = 60.0
STABLE_RUN_S = 60.0
"""A process that ran so long has not crashed at its start."""


def restart_delay_s(first_s: float, previous_s: float | None, ran_s: float) -> float:
    """The delay before a restart: ``first_s`` after a long run, else twice the previous one, up to a minute.

    ``previous_s``: None before the first restart. ``ran_s``: how long the process ran.
    """
    if previous_s is None or ran_s >= STABLE_RUN_S:
        return first_s
    return max(first_s, min(2 * previous_s, LONGEST_DELAY_S))
