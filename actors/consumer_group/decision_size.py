"""How long a decision takes, in items of ``Effects.run``: the names and the members that it looks at."""

from __future__ import annotations

from typing import Any

from ..group.reset_messages import ResetOffsets
from ..messages import JoinGroup, LeaveGroup
from .messages import ConsumerHeartbeat, RegexesResolved
from .state import GroupState
from .timers import DeadlinePassed, RebalanceExpired

ITEM_BYTES_MIN = 4
"""The least that an item of a subscription takes: the number of a partition."""

MAY_REMOVE = (ConsumerHeartbeat, JoinGroup, DeadlinePassed, RebalanceExpired)
"""What may remove one member."""


def decision_size(state: GroupState, message: Any) -> int:
    return _names(state, message) + _members(state, message)


def _names(state: GroupState, message: Any) -> int:
    subscribed = sum(len(topics) for topics, _regex in state.subscriptions)
    resolved = sum(len(value.topics) for value in state.regexes.values())
    return subscribed + resolved + _names_in(message)


def _names_in(message: Any) -> int:
    if isinstance(message, JoinGroup):
        return len(message.protocols[0].metadata) // ITEM_BYTES_MIN if message.protocols else 0
    if isinstance(message, RegexesResolved):
        return sum(len(value.topics) for value in message.resolved.values())
    if isinstance(message, ResetOffsets):
        return len(message.offsets)
    return len(message.topics or ()) if isinstance(message, ConsumerHeartbeat) else 0


def _members(state: GroupState, message: Any) -> int:
    """Those that may leave; if only members of the classic protocol may be left, all."""
    if isinstance(message, ResetOffsets):
        return len(state.members)
    leaving = len(message.members) if isinstance(message, LeaveGroup) else int(isinstance(message, MAY_REMOVE))
    may_downgrade = leaving and state.classic_count and state.classic_count + leaving >= len(state.members)
    return leaving + (len(state.members) if may_downgrade else 0)
