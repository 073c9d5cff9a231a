"""Kafka's ``uniform``: all members get the same number of partitions, and keep theirs where that allows it."""

from __future__ import annotations

from .base import GroupToAssign, TargetAssignment
from .heterogeneous import assign_heterogeneous
from .homogeneous import assign_homogeneous


class Uniform:
    """Kafka's default. Two algorithms, for members with equal and with different subscriptions."""

    name = "uniform"

    def assign(self, group: GroupToAssign) -> TargetAssignment:
        if not any(map(group.subscribed, group.members)):
            return {member.member_id: {} for member in group.members}
        return assign_homogeneous(group) if group.is_homogeneous else assign_heterogeneous(group)
