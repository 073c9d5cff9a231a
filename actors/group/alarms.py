"""The alarms of an active group: its deadlines that are due."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ..errors import UnknownDeadline
from ..steps import Steps, pieces
from .active_group import IDLE, ActiveGroup


def expire(active: ActiveGroup, names: Sequence[Hashable]) -> Steps[bool]:
    """Handle the alarms of the deadlines ``names``. Returns whether the group should be passivated."""
    for piece in pieces(names):
        for name in piece:
            if name != IDLE:
                _expire(active, name)
                if active.effects.work:
                    yield from active.work_in_steps()
        active.apply_effects()
        yield
    return IDLE in names and active.handle_idle_deadline()


def _expire(active: ActiveGroup, name: Hashable) -> None:
    """A group that has become one of another kind does not know all alarms that were on their way."""
    try:
        active.group.expired(name, active.effects)
    except UnknownDeadline:
        if name not in active.cancelled_names:
            raise
