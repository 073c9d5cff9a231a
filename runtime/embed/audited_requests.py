"""The audit trail of an embedded coordinator's admin methods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.group.reset_messages import ResetOffsets
from ...actors.messages import DeleteGroup, GroupRequest, LeaveGroup, OffsetCommit, OffsetDelete, OffsetFetch
from ..kafka.audit.group_changes import CHANGING, group_change
from ..kafka.authentication.principal import IN_PROCESS
from ..security.audit import Asked, AskedBy, Audit, Change, Who

if TYPE_CHECKING:
    from ..node.node import Node

WHO: Final = Who(str(IN_PROCESS))


ASKED_BY: ContextVar[AskedBy | None] = ContextVar("callboard_asked_by", default=None)
"""Set it in the task that calls a method: the change is recorded with it. Without it, it is the program's own."""

METHODS: Mapping[type, str] = {
    OffsetCommit: "reset",
    OffsetDelete: "delete_offsets",
    DeleteGroup: "delete",
    LeaveGroup: "remove_members",
    ResetOffsets: "evict_and_reset",
}
"""The method that sends a message."""


def check_audit(audit: Audit) -> None:
    """Raise CoordinatorError if changes must be refused."""
    if audit.refusal:
        raise CoordinatorError(ErrorCode.KAFKA_STORAGE_ERROR, audit.refusal)


def asked_by(method: str, reason: str = "") -> AskedBy:
    """On whose behalf a method is called now."""
    return ASKED_BY.get() or AskedBy(WHO, Asked(f"Coordinator.{method}"), reason)


def record_change(node: Node, method: str, change: Change | None, reason: str = "", change_id: str = "") -> None:
    """Record a change by a method of the coordinator, if there is one. ``change_id``: its id, if it has one."""
    if change is not None:
        caller = asked_by(method, reason)
        node.services.audit.changed(caller.who, caller.asked, [change], caller.reason, change_id)


async def ask_recorded(node: Node, ask: Callable[[Any], Awaitable[Any]], message: GroupRequest) -> Any:
    """Send a message to a group, and record what it changes. Raises CoordinatorError if changes must be refused."""
    audit = node.services.audit
    if not audit.is_on or type(message) not in CHANGING:
        return await ask(message)
    check_audit(audit)
    offsets = None if isinstance(message, LeaveGroup | ResetOffsets) else await ask(OffsetFetch(message.group_id, None))
    reply = await ask(message)
    made = group_change(message, offsets, reply)
    if made is not None:
        record_change(node, METHODS[type(message)], made.change, made.reason, getattr(message, "change_id", ""))
    return reply
