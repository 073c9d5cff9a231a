"""OffsetCommit (key 8). Answered when the offsets are durable.

A response depends only on the partitions and their errors, and a consumer commits the same partitions repeatedly, so
encoded responses are cached.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any
from uuid import UUID

from ....actors.errors import ErrorCode
from ....actors.messages import Commit, Committed, OffsetCommit
from ..authorize import Verdicts, authorize
from ..call import Call
from ..checks import READ_GROUP, READ_TOPIC
from ..codec.codes import NO_THROTTLE, milliseconds
from ..codec.schemas import Schema
from ..partition_results import (
    NO_PARTITION,
    PartitionError,
    counts_if_topic_repeated,
    group_by_topic,
    split_by_counts,
)

RETENTION_UNTIL = 4
LEADER_EPOCH_FROM = 6  # KIP-320
INSTANCE_ID_FROM = 7  # KIP-345
UNKNOWN_GROUP_FROM = 9  # KIP-848: GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION
TOPIC_IDS_FROM = 10
NO_LEADER_EPOCH = -1
CACHED_PARTITIONS_MAX = 64  # larger responses, and those with unknown topics, are not cached

CommitTarget = tuple[str, UUID | None, int]
"""The name and id of a topic, as in the request, and a partition."""

FoundTopic = tuple[str, int, ErrorCode]
"""The name of a topic, its number of partitions, and the error of partitions that do not exist."""

FindTopic = Callable[[Call, Any, dict[str, UUID]], FoundTopic]

Refused = tuple[tuple[CommitTarget, ErrorCode], ...]
"""Partitions that do not exist or are denied, with their errors. They are not sent to the group."""


def handle(call: Call) -> None:
    error = authorize(call, READ_GROUP, (call.request.group_id,)).error
    if error:
        call.respond_with_error(error)
        return
    names = [_find_topic(call, topic, {})[0] for topic in call.request.topics]
    _commit(call, partial(_find_allowed_topic, authorize(call, READ_TOPIC, filter(None, names))))


def handle_unchecked(call: Call) -> None:
    _commit(call, _find_topic)


def _commit(call: Call, find_topic: FindTopic) -> None:
    request = call.request
    commits, ids, refused = _split_commits(call, find_topic)
    if not commits:
        call.respond_with_bytes(_body(call.schema, refused, (), ()))
        return
    version = call.schema.version
    message = OffsetCommit(
        request.group_id,
        request.member_id,
        request.group_instance_id if version >= INSTANCE_ID_FROM else None,
        request.generation_id_or_member_epoch,
        commits,
        milliseconds(request.retention_time) if version <= RETENTION_UNTIL else -1,
        version >= UNKNOWN_GROUP_FROM,
    )
    targets = tuple([(commit.topic, ids.get(commit.topic), commit.partition) for commit in commits])
    topics = request.topics
    encode = partial(_encode, refused, targets)
    if len(topics) > 1 and not refused:
        counts = counts_if_topic_repeated(
            (target[0] for target in targets), [len(topic.partitions) for topic in topics]
        )
        encode = partial(_encode_by_counts, counts, targets) if counts else encode
    call.ask_group(message, encode)


def _split_commits(call: Call, find_topic: FindTopic) -> tuple[tuple[Commit, ...], dict[str, UUID], Refused]:
    """Return the commits to partitions that exist, the ids of topics by name, and the refused partitions."""
    version = call.schema.version
    has_epoch = version >= LEADER_EPOCH_FROM
    ids: dict[str, UUID] = {}
    commits: list[Commit] = []
    refused: list[tuple[CommitTarget, ErrorCode]] = []
    for topic in call.request.topics:
        name, count, error = find_topic(call, topic, ids)
        for partition in topic.partitions:
            index = partition.partition_index
            if 0 <= index < count:
                epoch = partition.committed_leader_epoch if has_epoch else NO_LEADER_EPOCH
                metadata = partition.committed_metadata or ""
                commits.append(Commit(name, index, partition.committed_offset, epoch, metadata))
            else:
                refused.append(((name, getattr(topic, "topic_id", None), index), error))
        if not (count or topic.partitions):
            refused.append(((name, getattr(topic, "topic_id", None), NO_PARTITION), error))
    return tuple(commits), ids, tuple(refused)


def _find_allowed_topic(verdicts: Verdicts, call: Call, request: Any, ids: dict[str, UUID]) -> FoundTopic:
    """Find a topic. One that is denied has no partitions, whether it exists or not."""
    found = _find_topic(call, request, ids)
    return found if verdicts.allows(found[0]) else (found[0], 0, verdicts.code)


def _find_topic(call: Call, request: Any, ids: dict[str, UUID]) -> FoundTopic:
    if call.schema.version < TOPIC_IDS_FROM:
        topic = call.services.topics.get(request.name)
        return request.name, len(topic.partitions) if topic is not None else 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic = call.services.topics.by_id(request.topic_id)
    if topic is None:
        return "", 0, ErrorCode.UNKNOWN_TOPIC_ID
    ids[topic.name] = topic.topic_id
    return topic.name, len(topic.partitions), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _encode(refused: Refused, targets: tuple[CommitTarget, ...], call: Call, answer: Committed) -> bytes:
    body = _cached_body if not refused and len(targets) <= CACHED_PARTITIONS_MAX else _body
    return body(call.schema, refused, targets, answer.errors)


def _body(schema: Schema, refused: Refused, targets: tuple[CommitTarget, ...], errors: tuple[ErrorCode, ...]) -> bytes:
    answers = (*refused, *zip(targets, errors, strict=True))
    return _encode_topics(
        schema, group_by_topic(((name, topic_id), index, error) for (name, topic_id, index), error in answers)
    )


def _encode_by_counts(
    counts: tuple[int, ...], targets: tuple[CommitTarget, ...], call: Call, answer: Committed
) -> bytes:
    answers = zip(targets, answer.errors, strict=True)
    topics = split_by_counts((((name, topic_id), index, error) for (name, topic_id, index), error in answers), counts)
    return _encode_topics(call.schema, topics)


def _encode_topics(schema: Schema, topics: list[tuple[tuple[str, UUID | None], list[PartitionError]]]) -> bytes:
    entries = tuple(
        schema.make(
            "OffsetCommitResponseTopic",
            name=name,
            topic_id=topic_id,
            partitions=tuple(
                schema.make("OffsetCommitResponsePartition", partition_index=index, error_code=error)
                for index, error in partitions
            ),
        )
        for (name, topic_id), partitions in topics
    )
    return schema.write(schema.make("OffsetCommitResponse", throttle_time=NO_THROTTLE, topics=entries))


_cached_body = lru_cache(maxsize=4096)(_body)
