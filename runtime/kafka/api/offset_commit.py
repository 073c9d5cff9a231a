"""OffsetCommit (key 8). Answered when the offsets are durable.

An answer's bytes depend on nothing but the partitions and their errors, and a consumer commits the same partitions over
and over, so the encoded answers are kept.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from ....actors.errors import ErrorCode
from ....actors.messages import Commit, Committed, OffsetCommit
from ..call import Call
from ..codes import NO_THROTTLE, milliseconds
from ..schemas import Schema

LEADER_EPOCH_FROM = 6  # KIP-320
UNKNOWN_GROUP_FROM = 9  # KIP-848: GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION
TOPIC_IDS_FROM = 10
NO_LEADER_EPOCH = -1

Place = tuple[str, UUID | None, int]
"""A topic's name and id as the request has them, and a partition."""


class Sorted(NamedTuple):
    """A request's partitions: those that exist are for the group, the others are answered here."""

    known: tuple[Commit, ...]
    places: tuple[Place, ...]
    unknown: tuple[tuple[Place, ErrorCode], ...]


def handle(call: Call) -> None:
    request = call.request
    found = _sort(call)
    if not found.known:
        call.reply_bytes(_body(call.schema, found.unknown))
        return
    retention = getattr(request, "retention_time", None)  # v2-v4
    message = OffsetCommit(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
        generation_id=request.generation_id_or_member_epoch,
        commits=found.known,
        retention_ms=-1 if retention is None else milliseconds(retention),
        tells_unknown_group=call.schema.version >= UNKNOWN_GROUP_FROM,
    )
    call.ask(message, lambda call, answer: _encode(call, answer, found))


def _sort(call: Call) -> Sorted:
    version, topics = call.schema.version, call.node.topics
    has_epoch = version >= LEADER_EPOCH_FROM
    known: list[Commit] = []
    places: list[Place] = []
    unknown: list[tuple[Place, ErrorCode]] = []
    for asked in call.request.topics:
        if version >= TOPIC_IDS_FROM:
            topic_id = asked.topic_id
            topic = topics.by_id(topic_id) if topic_id is not None else None
            name, error = (topic.name if topic is not None else ""), ErrorCode.UNKNOWN_TOPIC_ID
        else:
            name, topic_id = asked.name, None
            topic, error = topics.get(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions = len(topic.partitions) if topic is not None else 0
        for one in asked.partitions:
            index = one.partition_index
            if not 0 <= index < partitions:
                beyond = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is not None else error
                unknown.append(((name, topic_id, index), beyond))
                continue
            epoch = one.committed_leader_epoch if has_epoch else NO_LEADER_EPOCH
            known.append(Commit(name, index, one.committed_offset, epoch, one.committed_metadata or ""))
            places.append((name, topic_id, index))
    return Sorted(tuple(known), tuple(places), tuple(unknown))


def _encode(call: Call, answer: Committed, found: Sorted) -> bytes:
    """What was refused here comes first, as in Kafka."""
    answered = tuple(zip(found.places, answer.errors, strict=True))
    return _body(call.schema, found.unknown + answered)


@lru_cache(maxsize=4096)
def _body(schema: Schema, answers: tuple[tuple[Place, ErrorCode], ...]) -> bytes:
    topics: dict[tuple[str, UUID | None], list[Any]] = {}
    for (name, topic_id, index), error in answers:
        partition = schema.make("OffsetCommitResponsePartition", partition_index=index, error_code=error)
        topics.setdefault((name, topic_id), []).append(partition)
    made = tuple(
        schema.make("OffsetCommitResponseTopic", name=name, topic_id=topic_id, partitions=tuple(partitions))
        for (name, topic_id), partitions in topics.items()
    )
    return schema.write(schema.make("OffsetCommitResponse", throttle_time=NO_THROTTLE, topics=made))
