"""Resets of offsets: from targets to offsets, and what a reset has changed or would change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.group.reset_messages import OffsetsReset
from .results import (
    CommittedOffset,
    GroupMember,
    GroupReset,
    PartitionRange,
    ResetTargets,
    TopicDescription,
    TopicPartition,
)

if TYPE_CHECKING:
    from .admin_requests import AdminRequests

OFFSET_MAX = 2**63 - 1


def planned_reset(
    group: str,
    after: Mapping[TopicPartition, int | None],
    offsets: Mapping[TopicPartition, CommittedOffset],
    members: Iterable[GroupMember],
) -> GroupReset:
    committed = {partition: offsets.get(partition) for partition in after}
    before = {partition: None if offset is None else offset.offset for partition, offset in committed.items()}
    return GroupReset(
        group, dict(before.items()), dict(after.items()), tuple(member.member_id for member in members), None
    )


def made_reset(group: str, after: Mapping[TopicPartition, int | None], answer: OffsetsReset) -> GroupReset:
    before = {(topic, partition): offset for topic, partition, offset in answer.before}
    until_ms = answer.guarded_until_ms
    guarded_until = None if until_ms < 0 else datetime.fromtimestamp(until_ms / 1000, UTC)
    return GroupReset(group, dict(before.items()), dict(after.items()), answer.removed, guarded_until)


def open_transaction(producer_id: int) -> str:
    return f"the producer with id {producer_id} has an open transaction with offsets of it: try again when it has ended"


async def resolve_targets(requests: AdminRequests, targets: ResetTargets) -> dict[TopicPartition, int | None]:
    """The offset of each partition; a partition's own target wins over its topic's."""
    offsets: dict[TopicPartition, int | None] = {}
    topics: dict[str, TopicDescription] = {}
    for key in sorted(targets, key=lambda key: not isinstance(key, str)):  # topics first: partitions override them
        name, index = (key, None) if isinstance(key, str) else key
        if name not in topics:
            topics[name] = await requests.describe_topic(name)
        ranges = topics[name].partitions
        if index is not None and not 0 <= index < len(ranges):
            raise CoordinatorError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {name!r} has partitions 0 to {len(ranges) - 1}, not {index}",
            )
        for number in range(len(ranges)) if index is None else (index,):
            offsets[name, number] = _resolve_offset(targets[key], ranges[number])
    return offsets


def _resolve_offset(target: object, offsets: PartitionRange) -> int | None:
    if target is None:
        return None
    if target == "earliest":
        return offsets.start_offset
    if target == "latest":
        return offsets.end_offset
    if type(target) is not int or not 0 <= target <= OFFSET_MAX:
        raise ValueError(f"offset {target!r}: expected a whole number from 0 to 2**63-1, 'earliest' or 'latest'")
    return target
