"""OffsetCommit (key 8). Answered when the offsets are durable.

An answer's bytes depend on nothing but the partitions and their errors, and a consumer commits the same partitions over
and over, so the encoded answers are kept.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any
from uuid import UUID

from ....actors.errors import ErrorCode
from ....actors.messages import Commit, Committed, OffsetCommit
from ..call import Call
from ..codec.codes import NO_THROTTLE, milliseconds
from ..codec.schemas import Schema
from ..places import NO_PARTITION, Answered, apart, counts_if_twice, together

RETENTION_UNTIL = 4
LEADER_EPOCH_FROM = 6  # KIP-320
INSTANCE_ID_FROM = 7  # KIP-345
UNKNOWN_GROUP_FROM = 9  # KIP-848: GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION
TOPIC_IDS_FROM = 10
NO_LEADER_EPOCH = -1
KEPT_PLACES = 64  # larger answers, and those that name topics of the client's invention, are made each time

Place = tuple[str, UUID | None, int]
"""A topic's name and id as the request has them, and a partition."""

Refused = tuple[tuple[Place, ErrorCode], ...]
"""Partitions that do not exist: they are answered here, the group does not see them."""


def handle(call: Call) -> None:
    request = call.request
    commits, ids, refused = _sort(call)
    if not commits:
        call.reply_bytes(_body(call.schema, refused, (), ()))
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
    places = tuple([(commit.topic, ids.get(commit.topic), commit.partition) for commit in commits])
    topics = request.topics
    encode = partial(_encode, refused, places)
    if len(topics) > 1 and not refused:
        counts = counts_if_twice((place[0] for place in places), [len(topic.partitions) for topic in topics])
        encode = partial(_encode_apart, counts, places) if counts else encode
    call.ask(message, encode)


def _sort(call: Call) -> tuple[tuple[Commit, ...], dict[str, UUID], Refused]:
    """The commits to partitions that exist, the ids by which their topics were named, and what is refused."""
    version = call.schema.version
    has_epoch = version >= LEADER_EPOCH_FROM
    ids: dict[str, UUID] = {}
    commits: list[Commit] = []
    refused: list[tuple[Place, ErrorCode]] = []
    for asked in call.request.topics:
        name, count, error = _topic(call, asked, ids)
        for one in asked.partitions:
            index = one.partition_index
            if 0 <= index < count:
                epoch = one.committed_leader_epoch if has_epoch else NO_LEADER_EPOCH
                commits.append(Commit(name, index, one.committed_offset, epoch, one.committed_metadata or ""))
            else:
                refused.append(((name, getattr(asked, "topic_id", None), index), error))
        if not (count or asked.partitions):
            refused.append(((name, getattr(asked, "topic_id", None), NO_PARTITION), error))
    return tuple(commits), ids, tuple(refused)


def _topic(call: Call, asked: Any, ids: dict[str, UUID]) -> tuple[str, int, ErrorCode]:
    """A topic's name, how many partitions it has, and what those are answered that it has not."""
    if call.schema.version < TOPIC_IDS_FROM:
        topic = call.node.topics.get(asked.name)
        return asked.name, len(topic.partitions) if topic is not None else 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic = call.node.topics.by_id(asked.topic_id)
    if topic is None:
        return "", 0, ErrorCode.UNKNOWN_TOPIC_ID
    ids[topic.name] = topic.topic_id
    return topic.name, len(topic.partitions), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _encode(refused: Refused, places: tuple[Place, ...], call: Call, answer: Committed) -> bytes:
    body = _kept_body if not refused and len(places) <= KEPT_PLACES else _body
    return body(call.schema, refused, places, answer.errors)


def _body(schema: Schema, refused: Refused, places: tuple[Place, ...], errors: tuple[ErrorCode, ...]) -> bytes:
    answers = (*refused, *zip(places, errors, strict=True))
    return _written(schema, together(((name, topic_id), index, error) for (name, topic_id, index), error in answers))


def _encode_apart(counts: tuple[int, ...], places: tuple[Place, ...], call: Call, answer: Committed) -> bytes:
    answers = zip(places, answer.errors, strict=True)
    found = apart((((name, topic_id), index, error) for (name, topic_id, index), error in answers), counts)
    return _written(call.schema, found)


def _written(schema: Schema, topics: list[tuple[tuple[str, UUID | None], list[Answered]]]) -> bytes:
    made = tuple(
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
    return schema.write(schema.make("OffsetCommitResponse", throttle_time=NO_THROTTLE, topics=made))


_kept_body = lru_cache(maxsize=4096)(_body)
