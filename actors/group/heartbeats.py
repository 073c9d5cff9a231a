"""Heartbeats, the hot path: those that change nothing need no row, no records and no message in the mailbox."""

from __future__ import annotations

from typing import Protocol

from ..consumer_group.group import ConsumerGroup
from ..consumer_group.messages import ConsumerHeartbeat
from ..engine_ports import NOT_HANDLED
from ..messages import Heartbeat
from .active_group import ActiveGroup


class Active(Protocol):
    """A ``GroupActor``."""

    active: ActiveGroup


def answer_heartbeat(actor: Active, request: Heartbeat) -> object:
    """NOT_HANDLED in a consumer group, where the heartbeat of a member of the classic protocol is a decision."""
    active = actor.active
    group, effects = active.group, active.effects
    if type(group) is ConsumerGroup:
        return NOT_HANDLED
    answer = group.handle(request, None, effects)
    if effects.alarms:
        active.apply_effects()
    return answer


def answer_consumer_heartbeat(actor: Active, request: ConsumerHeartbeat) -> object:
    """NOT_HANDLED if the heartbeat may change something."""
    active = actor.active
    group = active.group
    answer = group.renew(request, active.effects) if type(group) is ConsumerGroup else None
    if answer is None:
        return NOT_HANDLED
    if active.effects.alarms:
        active.apply_effects()
    return answer
