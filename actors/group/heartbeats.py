"""Heartbeats, the hot path: those that change nothing need no row, no records and no message in the mailbox."""

from __future__ import annotations

from typing import Protocol

from ..messages import GroupRequest
from .active_group import ActiveGroup


class Active(Protocol):
    """A ``GroupActor``."""

    active: ActiveGroup


def answer_heartbeat(actor: Active, request: GroupRequest) -> object:
    """NOT_HANDLED if the heartbeat may change something."""
    active = actor.active
    answer = active.group.answer_at_once(request, active.effects)
    if active.effects.alarms:
        active.apply_effects()
    return answer
