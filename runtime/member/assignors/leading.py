"""What a leader needs round an assignor, so that it never fails.

If no assignments come the whole group waits until its deadline, again and again. So an assignor that fails, which one's
own function may, is stood in for by round robin, and the leader has a sentence for its log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....actors.messages import JoinedMember
from .base import Assignment, Assignor, Subscribed
from .cooperative import held_by, hold_back
from .order import by_member, in_order
from .round_robin import RoundRobin
from .user_data import read_weight
from .wire import Subscription


def subscribed(member: JoinedMember, said: Subscription) -> Subscribed:
    """A member as assignors see it, with what it says of itself as far as its version of the protocol goes."""
    data = said.user_data or b""
    topics = frozenset(said.topics)
    names = (member.member_id, member.group_instance_id)
    return Subscribed(*names, topics, said.owned, said.generation, data, read_weight(data))


def assign(
    assignor: Assignor, partitions: Mapping[str, int], members: Sequence[Subscribed]
) -> tuple[Assignment, str | None]:
    """What the assignor says; if it fails, what round robin says, and what was wrong."""
    try:
        return assignor.assign(partitions, members), None
    except Exception as error:
        problem = f"assignor {assignor.name} failed, round robin stands in: {type(error).__name__}: {error}"
        return _stand_in(partitions, members, assignor.is_cooperative), problem


def _stand_in(partitions: Mapping[str, int], members: Sequence[Subscribed], is_cooperative: bool) -> Assignment:
    result = RoundRobin().assign(partitions, members)
    if not is_cooperative:
        return result
    ordered = in_order(members)
    shares = [result[member.member_id] for member in ordered]
    return by_member(ordered, hold_back(shares, held_by(ordered)))
