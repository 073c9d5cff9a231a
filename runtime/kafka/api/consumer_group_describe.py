"""ConsumerGroupDescribe (key 69, KIP-848): epochs, members and assignments. Topics that do not exist are left out."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any
from uuid import UUID

from ....actors.consumer_group.messages import ConsumerGroupDescribed, DescribeConsumerGroup, DescribedConsumer
from ....actors.consumer_group.records import Partition
from ....actors.errors import ErrorCode
from ....actors.steps import Steps, pieces
from ...security.resources import ResourceType
from ..authorization.authorize import authorize_in_steps, authorized_operations
from ..authorization.checks import DESCRIBE_TOPIC
from ..call import Body, Call
from ..codec.codes import NO_THROTTLE
from ..codec.rows import NO_TAGS, compact_count, compact_string
from ..codec.step_writer import write_in_steps
from ..described_groups import describe_groups

OPERATIONS_BYTES = 4
OPERATIONS_UNKNOWN = -(1 << 31)  # if they were not requested
MEMBER_TYPE_FROM = 1  # KIP-1099
TOPIC_DENIED = "The group has described topic(s) that the client is not authorized to describe."

_INT32 = struct.Struct(">i")
_CLASSIC, _CONSUMER = b"\0", b"\1"

TopicNames = Mapping[bytes, str]
"""The names of topics by id."""


def handle(call: Call) -> Steps[None]:
    """As in Kafka, the entries of denied groups come first, then those without a name."""
    return describe_groups(call, call.request.group_ids, DescribeConsumerGroup, partial(_encode, call), _encode_group)


def _encode(call: Call, denial: ErrorCode, numbers: dict[str, int], entries: list[bytes]) -> Body:
    """Encode the response. ``entries``: the encoded groups, by their numbers. Other groups are denied."""
    groups = _entries(call, denial, numbers, entries)
    return write_in_steps(call.make("ConsumerGroupDescribeResponse", throttle_time=NO_THROTTLE, groups=groups))


def _entries(call: Call, denial: ErrorCode, numbers: dict[str, int], entries: list[bytes]) -> Iterator[Any]:
    for group_ids in pieces(call.request.group_ids):
        for group_id in group_ids:
            if group_id not in numbers:
                yield _group(call, ConsumerGroupDescribed(denial, group_id))
        yield None
    group_ids = call.request.group_ids
    for group_id in chain(("",) * group_ids.count(""), filter(None, group_ids)):
        if group_id in numbers:
            yield entries[numbers[group_id]]


def _encode_group(call: Call, reply: ConsumerGroupDescribed) -> Steps[bytes]:
    names = yield from _topic_names(call, reply)
    verdicts = yield from authorize_in_steps(call, DESCRIBE_TOPIC, names.values())
    if verdicts.error:
        reply = ConsumerGroupDescribed(verdicts.error, reply.group_id, TOPIC_DENIED)
    members: list[bytes] = []
    for member in reply.members:
        members.append((yield from _encode_member(call, names, member)))
        yield
    return call.schema.write_item(_group(call, reply), members, OPERATIONS_BYTES)


def _topic_names(call: Call, reply: ConsumerGroupDescribed) -> Steps[TopicNames]:
    names: dict[bytes, str] = {}
    unknown: set[bytes] = set()
    for member in reply.members:
        for partitions in pieces((*member.assigned, *member.target)):
            for topic_id in {topic_id for topic_id, _number in partitions} - names.keys() - unknown:
                topic = call.services.topics.by_id(UUID(bytes=topic_id))
                if topic is None:
                    unknown.add(topic_id)
                else:
                    names[topic_id] = topic.name
            yield
    return names


def _encode_member(call: Call, names: TopicNames, member: DescribedConsumer) -> Steps[bytes]:
    parts = [compact_string(text) for text in (member.member_id, member.instance_id, member.rack_id)]
    parts += _INT32.pack(member.member_epoch), compact_string(member.client_id), compact_string(member.client_host)
    parts.append(compact_count(len(member.topics)))
    for topics in pieces(member.topics):
        parts += map(compact_string, topics)
        yield
    parts.append(compact_string(member.regex))
    for partitions in (member.assigned, member.target):
        parts.append((yield from _encode_assignment(names, partitions)))
    if call.version >= MEMBER_TYPE_FROM:
        parts.append(_CLASSIC if member.is_classic else _CONSUMER)
    return b"".join((*parts, NO_TAGS))


def _encode_assignment(names: TopicNames, partitions: Iterable[Partition]) -> Steps[bytes]:
    numbers: dict[bytes, list[int]] = {}
    for piece in pieces(partitions):
        for topic_id, number in piece:
            if topic_id in names:
                numbers.setdefault(topic_id, []).append(number)
        yield
    parts = [compact_count(len(numbers))]
    for topic_id, of_topic in numbers.items():
        parts += topic_id, compact_string(names[topic_id])
        parts += compact_count(len(of_topic)), struct.pack(f">{len(of_topic)}i", *of_topic), NO_TAGS
    return b"".join((*parts, NO_TAGS))


def _group(call: Call, reply: ConsumerGroupDescribed) -> Any:
    """A group without its members."""
    include_operations = call.request.include_authorized_operations and not reply.error
    return call.make(
        "DescribedGroup",
        error_code=reply.error,
        error_message=reply.message,
        group_id=reply.group_id,
        group_state=reply.state,
        group_epoch=reply.epoch,
        assignment_epoch=reply.assignment_epoch,
        assignor_name=reply.assignor_name,
        members=(),
        authorized_operations=authorized_operations(call, ResourceType.GROUP, reply.group_id)
        if include_operations
        else OPERATIONS_UNKNOWN,
    )
