"""ConsumerGroupDescribe: a group and its members as they are durable.

Source: ``ConsumerGroup.asDescribedGroup`` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..assignors.server.hash_order import timeline_order
from ..errors import NO_ERROR
from ..steps import Steps, pieces
from .messages import ConsumerGroupDescribed, DescribedConsumer
from .state import NO_TARGET, GroupState, Member
from .target import preferred_assignor


def describe(state: GroupState, assignors: Sequence[str]) -> Steps[ConsumerGroupDescribed]:
    """``assignors``: names; the first is the default. Members are in Kafka's order."""
    members: list[DescribedConsumer] = []
    for member_ids in pieces(timeline_order(state.members, state.seen.members_max)):
        members += [_describe(state, state.members[member_id]) for member_id in member_ids]
        yield
    return ConsumerGroupDescribed(
        NO_ERROR,
        state.group_id,
        state=state.phase.value,
        epoch=state.epoch.epoch,
        assignment_epoch=state.target.epoch,
        assignor_name=preferred_assignor(state.members, len(assignors)) or assignors[0],
        members=tuple(members),
    )


def _describe(state: GroupState, member: Member) -> DescribedConsumer:
    about, current = member.about, member.current
    return DescribedConsumer(
        member_id=member.member_id,
        instance_id=about.instance_id,
        rack_id=about.rack_id,
        member_epoch=current.member_epoch,
        client_id=about.client_id,
        client_host=about.client_host,
        topics=about.topics,
        regex=about.regex,
        assigned=(*current.assigned, *current.pending_revocation),
        target=state.targets.get(member.member_id, NO_TARGET),
        is_classic=about.classic is not None,
    )
