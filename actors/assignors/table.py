"""The built-in assignors by name: Kafka's four and ``callboard-weighted``."""

from __future__ import annotations

from ..text import did_you_mean
from .base import Assignor
from .cooperative import CooperativeSticky
from .range_ import Range
from .round_robin import RoundRobin
from .sticky import Sticky
from .weighted import Weighted

ASSIGNORS: dict[str, Assignor] = {
    assignor.name: assignor for assignor in (Range(), RoundRobin(), Sticky(), CooperativeSticky(), Weighted())
}


def find_assignor(name_or_assignor: str | Assignor) -> Assignor:
    """The assignor of this name; an object is returned as it is. Raises ValueError for an unknown name."""
    if isinstance(name_or_assignor, Assignor):
        return name_or_assignor
    if (assignor := ASSIGNORS.get(name_or_assignor)) is None:
        raise ValueError(
            f"there is no assignor {name_or_assignor!r}:{did_you_mean(name_or_assignor, ASSIGNORS)}"
            f" expected {', '.join(ASSIGNORS)}, or "
            f"FunctionAssignor(name, function)"
        )
    return assignor
