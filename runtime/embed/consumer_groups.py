"""Descriptions of groups of the consumer protocol, from the answers of a node in this process or of another one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from ...actors.consumer_group.messages import ConsumerGroupDescribed, DescribedConsumer
from ...actors.consumer_group.records import CONSUMER, Partition
from ...actors.errors import ErrorCode
from ..topics.catalogue import TopicCatalogue
from .admin_requests import NamedTopics
from .results import GroupDescription, GroupMember, TopicPartition

DESCRIBE = "consumer_group_describe"
PROTOCOL_TYPE = "consumer"
NO_TOPIC_ID = UUID(int=0)
CLASSIC_MEMBER = 0  # a type of members


def describe_values(group: str) -> dict[str, Any]:
    """The values of the request ``DESCRIBE``."""
    return {"group_ids": (group,), "include_authorized_operations": False}


def named(answer: ConsumerGroupDescribed, topics: TopicCatalogue) -> NamedTopics:
    ids = {topic_id for member in answer.members for topic_id, _ in (*member.assigned, *member.target)}
    found = {topic_id: topics.by_id(UUID(bytes=topic_id)) for topic_id in ids}
    return NamedTopics(answer, {topic_id: topic.name for topic_id, topic in found.items() if topic is not None})


def read_response(response: Any, error: ErrorCode) -> NamedTopics:
    """Of a response to ``DESCRIBE`` for one group. ``error``: the one in it."""
    [group] = response.groups
    names: dict[bytes, str] = {}
    answer = ConsumerGroupDescribed(
        error,
        group.group_id,
        group.error_message,
        group.group_state,
        group.group_epoch,
        group.assignment_epoch,
        group.assignor_name,
        tuple(_read_member(member, names) for member in group.members),
    )
    return NamedTopics(answer, names)


def _read_member(member: Any, names: dict[bytes, str]) -> DescribedConsumer:
    return DescribedConsumer(
        *(member.member_id, member.instance_id, member.rack_id, member.member_epoch),
        *(member.client_id, member.client_host, member.subscribed_topic_names, member.subscribed_topic_regex or ""),
        _read_partitions(member.assignment, names),
        _read_partitions(member.target_assignment, names),
        getattr(member, "member_type", None) == CLASSIC_MEMBER,
    )


def _read_partitions(assignment: Any, names: dict[bytes, str]) -> tuple[Partition, ...]:
    partitions: list[Partition] = []
    for topic in assignment.topic_partitions:
        topic_id = (topic.topic_id or NO_TOPIC_ID).bytes
        names[topic_id] = topic.topic_name
        partitions += ((topic_id, number) for number in topic.partitions)
    return tuple(partitions)


def describe_consumer_group(described: NamedTopics) -> GroupDescription:
    answer, names = described
    return GroupDescription(
        answer.group_id,
        answer.state,
        PROTOCOL_TYPE,
        answer.assignor_name,
        tuple(_describe_member(member, names) for member in answer.members),
        CONSUMER,
        answer.epoch,
        answer.assignment_epoch,
    )


def _describe_member(member: DescribedConsumer, names: Mapping[bytes, str]) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        tuple(sorted(member.topics)),
        _by_name(member.assigned, names),
        b"",
        b"",
        member.member_epoch,
        _by_name(member.target, names),
    )


def _by_name(partitions: Iterable[Partition], names: Mapping[bytes, str]) -> tuple[TopicPartition, ...]:
    """Without those of deleted topics."""
    return tuple(sorted((names[topic_id], number) for topic_id, number in partitions if topic_id in names))
