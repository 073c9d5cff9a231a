"""Which refused requests to a group of the consumer protocol the flight recorder remembers. Pure."""

from __future__ import annotations

from typing import Any

from ..errors import ErrorCode
from ..group.effects import Effects
from ..group.rebalance_notes import Fenced
from ..group.refusals import note_refused_join
from ..messages import JoinGroup
from .messages import ConsumerHeartbeat

FENCES = frozenset({ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID})


def note_refusal(message: Any, code: ErrorCode, now_ms: int, effects: Effects) -> None:
    """Requests whose instance id another member has, and joins of classic members without a common assignor."""
    if code in FENCES:
        is_heartbeat = isinstance(message, ConsumerHeartbeat)
        instance_id = (message.instance_id if is_heartbeat else message.group_instance_id) or ""
        effects.note_refusal(Fenced(now_ms, instance_id))
    elif code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL and isinstance(message, JoinGroup):
        note_refused_join(message, now_ms, effects)
