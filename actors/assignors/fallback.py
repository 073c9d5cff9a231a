"""The leader's use of an assignor: if it fails, round robin replaces it, so that the leader always has an assignment.

Without an assignment the whole group would wait until its deadline, in each rebalance. A user's own function may fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..messages import JoinedMember
from .base import Assignor, GroupAssignment, MemberSubscription
from .consumer_protocol import Subscription
from .cooperative import current_owners, withhold_owned
from .order import by_member_id, sort_members
from .round_robin import RoundRobin
from .user_data import read_weight


def to_member_subscription(member: JoinedMember, subscription: Subscription) -> MemberSubscription:
    """A member for assignors, with its subscription as far as its protocol version goes."""
    user_data = subscription.user_data or b""
    return MemberSubscription(
        member.member_id,
        member.group_instance_id,
        frozenset(subscription.topics),
        subscription.owned,
        subscription.generation,
        user_data,
        read_weight(user_data),
        subscription.rack_id,
    )


def assign_with_fallback(
    assignor: Assignor, partitions: Mapping[str, int], members: Sequence[MemberSubscription]
) -> tuple[GroupAssignment, str | None]:
    """The assignor's assignment; if it fails, that of round robin and a message for the log."""
    try:
        return assignor.assign(partitions, members), None
    except Exception as error:
        problem = f"assignor {assignor.name} failed, using round robin: {type(error).__name__}: {error}"
        return _assign_round_robin(partitions, members, assignor.is_cooperative), problem


def _assign_round_robin(
    partitions: Mapping[str, int], members: Sequence[MemberSubscription], is_cooperative: bool
) -> GroupAssignment:
    assignment = RoundRobin().assign(partitions, members)
    if not is_cooperative:
        return assignment
    ordered = sort_members(members)
    shares = [assignment[member.member_id] for member in ordered]
    return by_member_id(ordered, withhold_owned(shares, current_owners(ordered)))
