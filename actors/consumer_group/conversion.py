"""A group that has members changes its protocol (KIP-848): the records, and when it may.

Upgrade: a member of the consumer protocol joins a classic group of consumers. The others stay, as members of the
classic protocol in a consumer group. Downgrade: the last member of the consumer protocol goes. Source:
``ConsumerGroup.fromClassicGroup`` and ``ClassicGroup.fromConsumerGroup`` of Kafka 4.3.1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping

from ..assignors.assignment import InvalidLength
from ..assignors.base import TopicPartition
from ..assignors.consumer_protocol import (
    VERSION_MAX,
    MemberAssignment,
    Subscription,
    assignment_in_steps,
    subscription_in_steps,
    write_assignment,
)
from ..assignors.server.hash_order import timeline_order
from ..errors import CoordinatorError, ErrorCode
from ..group.classic import ClassicGroup
from ..group.group_value import value_of
from ..group.members import GroupMember
from ..group.states import Event
from ..group.subscription import CONSUMER_PROTOCOL_TYPE
from ..messages import Protocol
from ..ports import TopicsView
from ..records import GroupRecord, GroupValue, Record
from ..steps import Steps, distinct, pieces
from .members import sorted_topics
from .plan import ConsumerSettings, DecisionEnvironment, Downgrade
from .records import (
    ClassicMember,
    ConsumerRecord,
    CurrentRecord,
    CurrentValue,
    GroupEpochRecord,
    GroupEpochValue,
    MemberRecord,
    MemberState,
    MemberValue,
    Partition,
    TargetEpochRecord,
    TargetEpochValue,
    TargetRecord,
)
from .state import GroupState, Member
from .subscriptions import subscribed_topics
from .tombstones import tombstones

_INT16 = struct.Struct(">h")

# Upgrade -------------------------------------------------------------------------------------------------------------


def check_upgrade(group: ClassicGroup, settings: ConsumerSettings) -> None:
    """Raises CoordinatorError if the group must not become a consumer group."""
    if not settings.migration_policy.allows_upgrade:
        raise _refusal(group, "online upgrade is disabled")
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _refusal(group, "the group does not use the consumer embedded protocol")
    if len(group.members) > settings.max_size:
        raise _refusal(group, "the group size exceeds the consumer group maximum size")


def _refusal(group: ClassicGroup, reason: str) -> CoordinatorError:
    message = f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}."
    return CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def upgrade_records(
    group: ClassicGroup, stored: GroupValue | None, environment: DecisionEnvironment
) -> Steps[tuple[ConsumerRecord, ...]]:
    """The records of the consumer group, whose last record is ``stored``. Raises CoordinatorError.

    All members are stable in the epoch that is the generation, with the partitions of their last assignment; after a
    downgrade whose rebalance has not ended, with those that ``downgrade_records`` has stored.
    """
    group_id, epoch = group.group_id, group.generation
    members: list[Member] = []
    names: dict[str, None] = {}
    assignments = _assignments(group, stored)
    for classic_member in group.members:
        assignment = assignments.get(classic_member.member_id, b"")
        member = yield from _upgraded(group, classic_member, assignment, environment.topics)
        members.append(member)
        names |= yield from distinct(member.about.topics)
    metadata_hash = yield from environment.metadata_hash(names)
    return (
        *(MemberRecord(group_id, member.member_id, member.about) for member in members),
        GroupEpochRecord(group_id, GroupEpochValue(epoch, metadata_hash)),
        *(TargetRecord(group_id, member.member_id, tuple(member.current.assigned)) for member in members),
        TargetEpochRecord(group_id, TargetEpochValue(epoch)),
        *(CurrentRecord(group_id, member.member_id, member.current) for member in members),
    )


def _assignments(group: ClassicGroup, stored: GroupValue | None) -> Mapping[str, bytes]:
    if stored is not None and stored.leader is None:
        return {member_value.member_id: member_value.assignment for member_value in stored.members}
    return {member.member_id: member.assignment for member in group.members}


def _upgraded(group: ClassicGroup, member: GroupMember, assignment: bytes, topics: TopicsView) -> Steps[Member]:
    subscription, epoch = (yield from _subscription(group, member)), group.generation
    about = MemberValue(
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=(yield from sorted_topics(subscription.topics)),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMember(
            member.session_timeout_ms, tuple((offer.name, offer.metadata) for offer in member.protocols)
        ),
    )
    assigned = dict.fromkeys((yield from _assigned(group, assignment, topics)), epoch)
    return Member(member.member_id, about, CurrentValue(epoch, epoch, MemberState.STABLE, assigned))


def _subscription(group: ClassicGroup, member: GroupMember) -> Steps[Subscription]:
    """As in Kafka, the first join phase of a group is an error without a text: there is no protocol yet."""
    if group.protocol_name is None:
        raise CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR, "")
    subscription = yield from subscription_in_steps(member.metadata(group.protocol_name))
    if subscription is None:
        raise _refusal(group, "the embedded consumer protocol is malformed")
    return subscription


def _assigned(group: ClassicGroup, data: bytes, topics: TopicsView) -> Steps[list[Partition]]:
    """The partitions of topics that exist in a member's assignment."""
    assignment = yield from _assignment(group, data)
    if assignment.user_data:
        reason = (
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default"
            " assignor before re-attempting the upgrade"
        )
        raise _refusal(group, reason)
    return (yield from existing_partitions(assignment.partitions, topics))


def _assignment(group: ClassicGroup, data: bytes) -> Steps[MemberAssignment]:
    """As in Kafka, an invalid length is an error without a text."""
    try:
        return (yield from assignment_in_steps(data))
    except InvalidLength as error:
        raise CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR, "") from error
    except (struct.error, ValueError) as error:
        raise _refusal(group, "the embedded consumer protocol is malformed") from error


# Downgrade -----------------------------------------------------------------------------------------------------------


def may_downgrade(state: GroupState, going: Iterable[str], size: int, settings: ConsumerSettings) -> bool:
    """Whether the group becomes a classic one without the members ``going``. ``size``: its members then."""
    consumers_going = sum(state.members[member_id].about.classic is None for member_id in going)
    is_classic_only = state.classic_count + consumers_going == len(state.members)
    return is_classic_only and settings.migration_policy.allows_downgrade and 0 < size <= settings.classic_max_size


def downgrade_records(
    state: GroupState, downgrade: Downgrade, group: ClassicGroup, topics: TopicsView
) -> Steps[tuple[Record, ...]]:
    """Make ``group``, which is new, the classic group of ``state``. Returns the records of the change.

    If the members have to join again, the record has no leader: a coordinator that loads it lets them do so. It has the
    partitions that they own instead of those of their targets, because an upgrade may come before they have joined.
    """
    names = topic_names((yield from subscribed_topics(state.subscriptions, state.regexes)), topics)
    for piece in pieces(_remaining(state, downgrade)):
        for member in piece:
            group.members.add(_downgraded(member))
        yield
    group.protocol_type, group.generation = CONSUMER_PROTOCOL_TYPE, downgrade.generation
    group.leader_id = next(iter(group.members)).member_id
    group.protocol_name = yield from group.members.vote()
    owned: list[tuple[str, bytes]] = []
    for classic_member in group.members:
        yield
        target = state.targets.get(classic_member.member_id, ())
        metadata = classic_member.metadata(group.protocol_name)
        classic_member.assignment = encode_assignment(target, names, metadata)
        owned.append((classic_member.member_id, encode_assignment(_owned(state, classic_member), names, metadata)))
    yield from group.members.count_assignments()
    yield from group.subscriptions.store(group.protocol_type, group.protocol_name, group.members)
    group.machine.apply(Event.LOADED_WITH_MEMBERS, group.clock.wall_ms())
    value = yield from value_of(group, tuple(owned) if downgrade.needs_rebalance else None)
    if downgrade.needs_rebalance:
        value = value._replace(leader=None)
    return (*tombstones(state), GroupRecord(state.group_id, value))


def _owned(state: GroupState, member: GroupMember) -> Iterable[Partition]:
    """None, if the member only joins."""
    if member.member_id not in state.members:
        return ()
    current = state.members[member.member_id].current
    return (*current.assigned, *current.pending_revocation)


def _remaining(state: GroupState, downgrade: Downgrade) -> Iterator[Member]:
    """In Kafka's order. The member that takes the place of another one comes last."""
    joining = downgrade.joining
    for member_id in timeline_order(state.members, state.seen.members_max):
        if member_id != joining and member_id not in downgrade.leaving:
            yield state.members[member_id]
    if joining:
        yield state.members[joining]


def _downgraded(member: Member) -> GroupMember:
    about = member.about
    assert about.classic is not None, "a member of the consumer protocol is left"
    classic_member = GroupMember(member.member_id, about.instance_id, about.client_id, about.client_host)
    classic_member.protocols = tuple(Protocol(*protocol) for protocol in about.classic.protocols)
    classic_member.session_timeout_ms = about.classic.session_timeout_ms
    classic_member.rebalance_timeout_ms = about.rebalance_timeout_ms
    return classic_member


# Assignments ---------------------------------------------------------------------------------------------------------


def encode_assignment(partitions: Iterable[Partition], topics: Mapping[bytes, str], subscription: bytes) -> bytes:
    """An assignment in the version of the member's subscription. Topics that are not in ``topics`` are left out."""
    named = tuple((topics[topic_id], number) for topic_id, number in partitions if topic_id in topics)
    return write_assignment(MemberAssignment(named), _version(subscription))


def _version(subscription: bytes) -> int:
    """0, which all clients can read, if there is none: only the subscription of the first protocol is checked."""
    version = _INT16.unpack_from(subscription)[0] if len(subscription) >= _INT16.size else 0
    return min(max(version, 0), VERSION_MAX)


def topic_names(names: Iterable[str], topics: TopicsView) -> Mapping[bytes, str]:
    """The names of those of these topics that exist, by id."""
    return {topic_id: name for name in names if (topic_id := topics.topic_id(name)) is not None}


def existing_partitions(named: Iterable[TopicPartition], topics: TopicsView) -> Steps[list[Partition]]:
    """Those of topics that exist."""
    partitions: list[Partition] = []
    for piece in pieces(named):
        identified = ((topics.topic_id(topic), number) for topic, number in piece)
        partitions += ((topic_id, number) for topic_id, number in identified if topic_id is not None)
        yield
    return partitions
