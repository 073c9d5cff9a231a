"""The assignors that have a name: Kafka's four, and ours."""

from __future__ import annotations

from .base import Assignor
from .cooperative import CooperativeSticky
from .range_ import Range
from .round_robin import RoundRobin
from .sticky import Sticky
from .weighted import Weighted

ASSIGNORS: dict[str, Assignor] = {
    assignor.name: assignor for assignor in (Range(), RoundRobin(), Sticky(), CooperativeSticky(), Weighted())
}


def find_assignor(assignor: str | Assignor) -> Assignor:
    """The assignor of this name, or the one that is given. Raises ValueError with the names that there are."""
    if isinstance(assignor, Assignor):
        return assignor
    if (found := ASSIGNORS.get(assignor)) is None:
        raise ValueError(
            f"no assignor is called {assignor!r}: expected {', '.join(ASSIGNORS)}, or FunctionAssignor(name, function)"
        )
    return found
