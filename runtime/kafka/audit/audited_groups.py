"""Handlers of requests to groups that record in the audit trail what was changed, with the offsets before.

Commits and leaves of members are not recorded. What an operator does to a group of others is: a commit without a
member, offsets that are deleted, members that are removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....actors.group.reset_messages import ResetOffsets
from ....actors.messages import Described, DescribeGroup, GroupRequest, LeaveGroup, OffsetFetch
from ....actors.steps import Steps
from ...engine.reply import Reply
from ...security.audit import AskedBy
from ..authorization.checks import DELETE_GROUP, READ_GROUP, Check
from ..authorization.quiet_check import would_allow
from ..call import Call, message_of, watch
from ..lease import Handler
from .audited import record
from .group_changes import group_change


class Answer:
    """The reply to a message that no client has sent. ``value`` is None until it is there."""

    def __init__(self) -> None:
        self.value: Any = None

    def set(self, value: Any = None) -> None:
        self.value = value

    def set_exception(self, exc_info: Any = None) -> None:
        """The line has no values before the change."""

    def wait_for_room(self, room: Reply) -> None:
        """The client waits when its own request finds no room."""


def audited(name: str, handle: Handler) -> Handler:
    """Return the handler of an API that records changes, by kio's name of the API."""
    wrap = {"offset_commit": _handle_commit, "offset_delete": _handle_delete, "leave_group": _handle_leave}.get(name)
    return handle if wrap is None else lambda call: wrap(handle, call)


def _handle_commit(handle: Handler, call: Call) -> Steps[None] | None:
    """Consumers that belong to no group commit without a member, too: their groups have no protocol type."""
    request = call.request
    if request.member_id or request.generation_id_or_member_epoch >= 0 or not _is_allowed(call, READ_GROUP):
        return handle(call)
    group, offsets = _ask(call, DescribeGroup(request.group_id)), _ask(call, OffsetFetch(request.group_id, None))

    def observe(reply: Any) -> None:
        described: Described | None = group.value
        if described is not None and described.protocol_type:
            _record(call, offsets, reply)

    return _and_watch(handle(call), call, observe)


def _handle_delete(handle: Handler, call: Call) -> Steps[None] | None:
    if not _is_allowed(call, DELETE_GROUP):
        return handle(call)
    offsets = _ask(call, OffsetFetch(call.request.group_id, None))
    return _and_watch(handle(call), call, lambda reply: _record(call, offsets, reply))


def _handle_leave(handle: Handler, call: Call) -> Steps[None] | None:
    return _and_watch(handle(call), call, lambda reply: _record(call, Answer(), reply))


def _record(call: Call, offsets: Answer, reply: Any) -> None:
    made = group_change(message_of(call), offsets.value, reply)
    if made is not None:
        record(call, [made.change], made.reason)


def watch_change(call: Call, message: GroupRequest, caller: AskedBy, send: Callable[[], None]) -> None:
    """Send a message that may change a group, by ``send``, and record what it has changed on behalf of ``caller``."""
    audit = call.services.audit
    if not audit.is_on:
        send()
        return
    offsets = Answer()
    if not isinstance(message, LeaveGroup | ResetOffsets):
        call.services.groups.post(OffsetFetch(message.group_id, None), offsets)

    def observe(reply: Any) -> None:
        made = group_change(message, offsets.value, reply)
        if made is not None:
            change_id = getattr(message, "change_id", "")
            audit.changed(caller.who, caller.asked, [made.change], caller.reason or made.reason, change_id)

    send()
    watch(call, observe)


def _is_allowed(call: Call, check: Check) -> bool:
    """Whether the client may send the request. The group is not asked for its offsets if the client is denied."""
    return would_allow(call, check, call.request.group_id)


def _ask(call: Call, message: DescribeGroup | OffsetFetch) -> Answer:
    """Ask a group before the client's request, which is sent after it, changes it."""
    answer = Answer()
    call.services.groups.post(message, answer)
    return answer


def _and_watch(steps: Steps[None] | None, call: Call, observe: Callable[[Any], None]) -> Steps[None] | None:
    if steps is None:
        watch(call, observe)
        return None
    return _run_and_watch(steps, call, observe)


def _run_and_watch(steps: Steps[None], call: Call, observe: Callable[[Any], None]) -> Steps[None]:
    yield from steps
    watch(call, observe)
