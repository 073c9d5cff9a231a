"""The causes of rebalances, derived from the reasons of events. Pure.

Most clients do not say why they join or leave (KIP-800 is used by Java and franz-go), so the coordinator derives it.
"""

from __future__ import annotations

from ..group.events import Reason

POLL_TIMEOUT = "poll_timeout"
COOPERATIVE_FOLLOWUP = "cooperative_followup"
OTHER = "other"

NAMES = {
    Reason.MEMBER_JOINED: "new_member",
    Reason.MEMBER_LEFT: "member_left",
    Reason.ADMIN: "evicted",
    Reason.RESET: "reset",
    Reason.SESSION_EXPIRED: "session_expired",
    Reason.STATIC_MEMBER_REPLACED: "static_replaced",
    Reason.DID_NOT_REJOIN: "join_timeout",
    Reason.DID_NOT_REVOKE: "revoke_timeout",
    Reason.SYNC_TIMEOUT: "sync_timeout",
    Reason.GROUP_IS_FULL: "group_is_full",
    Reason.SUBSCRIPTION_CHANGED: "subscription_changed",
    Reason.LEADER_REJOINED: "leader_rejoined",
    Reason.ASSIGNMENT_NOT_STORED: "assignment_not_stored",
    Reason.TOPICS_CHANGED: "metadata_changed",
    Reason.DOWNGRADED: "downgraded",
    Reason.TOO_MANY_MEMBERS: "too_many_members",
    Reason.LEFT_FOR_A_WHILE: "static_left",
}
"""Those that begin a rebalance, and the removals in it."""

TEXTS = {
    "new_member": "{who} joined",
    "member_left": "{who} left",
    POLL_TIMEOUT: "{who} left, because it had not polled for max.poll.interval.ms",
    "evicted": "an administrator removed {who}",
    "reset": "an administrator reset its offsets",
    "session_expired": "{who} sent no heartbeat within its session timeout",
    "static_replaced": "{who} was started again, with its instance id",
    "join_timeout": "{who} did not rejoin in time",
    "revoke_timeout": "{who} did not give back partitions in time",
    "sync_timeout": "{who} did not ask for its assignment in time",
    "group_is_full": "the group has no room for {who}",
    "subscription_changed": "{who} changed its subscription",
    COOPERATIVE_FOLLOWUP: "{who} gave back partitions that others get now",
    "leader_rejoined": "the leader, {who}, asked for a new assignment",
    "assignment_not_stored": "the log could not store the assignment",
    "metadata_changed": "a topic was created, has grown, or was deleted",
    "downgraded": "the last member of the consumer protocol left",
    "too_many_members": "the group was loaded with more members than group_max_size",
    "static_left": "{who} stopped, and may come back",
    OTHER: "of an event that has no text here",
}
"""By cause, what follows "because" in a sentence. ``{who}``: the member."""


def cause_of(reason: Reason, client_reason: str) -> str:
    """``client_reason``: the client's words. Java says there that it leaves because of max.poll.interval.ms."""
    if reason is Reason.MEMBER_LEFT and "poll timeout" in client_reason:
        return POLL_TIMEOUT
    return NAMES.get(reason, OTHER)
