"""Why members leave by LeaveGroup: by themselves, or because an administrator has removed them. Pure."""

from __future__ import annotations

from ..messages import LeaveGroup, LeavingMember
from .events import Cause, Identity, Reason

ADMIN_REASON = "member was removed by an admin"
"""The beginning of the reason in a LeaveGroup of Kafka's admin client."""


def leave_cause(leaving: LeavingMember, request: LeaveGroup, member: Identity | None) -> Cause:
    """The cause of a removal by LeaveGroup.

    ``member`` is None if the member had not joined yet.

    An admin names only the instance, gives the reason of Kafka's admin client, or is another client than the member.
    """
    is_by_admin = not leaving.member_id or (leaving.reason is not None and leaving.reason.startswith(ADMIN_REASON))
    is_by_admin = is_by_admin or _is_other_client(request, member)
    return Cause(Reason.ADMIN if is_by_admin else Reason.MEMBER_LEFT, member, leaving.reason)


def _is_other_client(request: LeaveGroup, member: Identity | None) -> bool:
    sender = request.client_id, request.client_host
    return member is not None and sender not in (("", ""), (member.client_id, member.client_host))
