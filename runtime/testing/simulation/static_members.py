"""``StaticMemberChecker``: a static member is fenced only by another one with its instance id (KIP-345).

Once a SyncGroup of a member is answered, the record of its generation is durable, with its member id. Since then, also
after restarts of the coordinator, its instance id belongs to it until a JoinGroup without a member id arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....actors.errors import ErrorCode
from ....actors.messages import Committed, Heartbeat, JoinGroup, OffsetCommit, Synced, SyncGroup
from .history import Exchange, Listener

Instance = tuple[str, str]
"""Group id and instance id."""


class StaticMemberChecker(Listener):
    """``fail`` is called with a text for each violation."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._owners: dict[Instance, str] = {}  # member ids
        self._newest_join_at: dict[Instance, float] = {}

    def forget(self) -> None:
        """A power loss may have dropped records that were answered before they were synced."""
        self._owners.clear()

    def arrived(self, exchange: Exchange) -> None:
        message = exchange.message
        if isinstance(message, JoinGroup) and message.group_instance_id is not None and not message.member_id:
            instance = message.group_id, message.group_instance_id
            self._owners.pop(instance, None)
            self._newest_join_at[instance] = exchange.arrived_at

    def answered(self, exchange: Exchange) -> None:
        message: Any = exchange.message
        if not isinstance(message, Heartbeat | OffsetCommit | SyncGroup) or message.group_instance_id is None:
            return
        instance = message.group_id, message.group_instance_id
        error = _error_of(exchange.answer)
        if isinstance(message, SyncGroup) and error is ErrorCode.NONE:
            if exchange.arrived_at > self._newest_join_at.get(instance, -1):
                self._owners[instance] = message.member_id
        elif error is ErrorCode.FENCED_INSTANCE_ID and self._owners.get(instance) == message.member_id:
            self._fail(f"{exchange} was fenced, but nobody has taken its instance id since its SyncGroup was answered")


def _error_of(answer: Any) -> ErrorCode:
    if isinstance(answer, Committed):
        return answer.errors[0] if answer.errors else ErrorCode.NONE
    return answer.error if isinstance(answer, Synced) else ErrorCode(answer)
