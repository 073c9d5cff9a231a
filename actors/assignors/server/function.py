"""A function of your own as an assignor of the coordinator. It sees topics by name; the group keeps them by id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..base import AssignFunction, MemberSubscription, TopicPartition
from ..custom import InvalidAssignment, check_result
from ..order import sort_members
from .base import AssignmentFailed, GroupMember, GroupToAssign, PartitionsByTopic, TargetAssignment


class ServerFunction:
    """The same function may serve the members: ``callboard.FunctionAssignor``.

    ``assign`` raises AssignmentFailed if the function raises, or if its result is not valid: each partition with
    subscribers is assigned once, to one of them, and nothing else is.
    """

    def __init__(self, name: str, function: AssignFunction) -> None:
        self.name = name
        self._function = function

    def assign(self, group: GroupToAssign) -> TargetAssignment:
        members = sort_members(_by_name(group))
        counts = {name: topic.partition_count for name, topic in sorted(group.topics.items())}
        try:
            shares = check_result(self._function(dict(counts), tuple(members)), counts, members)
        except InvalidAssignment as error:
            raise AssignmentFailed(f"assignor {self.name}: {error}") from error
        except Exception as error:
            raise AssignmentFailed(f"assignor {self.name} failed: {type(error).__name__}: {error}") from error
        return {member.member_id: _by_id(group, share) for member, share in zip(members, shares, strict=True)}


def _by_name(group: GroupToAssign) -> list[MemberSubscription]:
    names = {topic.topic_id: name for name, topic in group.topics.items()}
    return [_subscription(member, names) for member in group.members]


def _subscription(member: GroupMember, names: Mapping[bytes, str]) -> MemberSubscription:
    return MemberSubscription(
        member.member_id,
        member.instance_id,
        frozenset(member.topics),
        _owned(member.owned, names),
        rack_id=member.rack_id,
        client_id=member.client_id,
    )


def _owned(owned: PartitionsByTopic, names: Mapping[bytes, str]) -> tuple[TopicPartition, ...]:
    """Without topics that were deleted."""
    return tuple(
        sorted((names[topic_id], number) for topic_id in owned if topic_id in names for number in owned[topic_id])
    )


def _by_id(group: GroupToAssign, share: Sequence[TopicPartition]) -> dict[bytes, list[int]]:
    partitions: dict[bytes, list[int]] = {}
    for name, number in sorted(share):
        partitions.setdefault(group.topics[name].topic_id, []).append(number)
    return partitions
