"""The records that delete a group of the consumer protocol."""

from __future__ import annotations

from collections.abc import Iterator

from .records import (
    ConsumerRecord,
    CurrentRecord,
    GroupEpochRecord,
    MemberRecord,
    RegexRecord,
    TargetEpochRecord,
    TargetRecord,
    TopicMetadataRecord,
)
from .state import GroupState


def tombstones(state: GroupState) -> Iterator[ConsumerRecord]:
    """In Kafka's order."""
    group_id = state.group_id
    for member_id in state.members:
        yield CurrentRecord(group_id, member_id, None)
    for member_id in state.targets:
        yield TargetRecord(group_id, member_id, None)
    yield TargetEpochRecord(group_id, None)
    for member_id in state.members:
        yield MemberRecord(group_id, member_id, None)
    if state.has_topic_metadata:
        yield TopicMetadataRecord(group_id, None)
    for regex in state.regexes:
        yield RegexRecord(group_id, regex, None)
    yield GroupEpochRecord(group_id, None)
