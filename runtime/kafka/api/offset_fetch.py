"""OffsetFetch (key 9): one group up to version 7, several from version 8; topics by id from version 10."""

from __future__ import annotations

from typing import Any

from ....actors.errors import ErrorCode
from ....actors.messages import Fetched, FetchedOffset, OffsetFetch
from ..call import Call
from ..codec.codes import NO_THROTTLE
from ..scatter_gather import ScatterGather

GROUPS_FROM = 8
TOPIC_IDS_FROM = 10


def handle(call: Call) -> None:
    request = call.request
    stable = getattr(request, "require_stable", False)
    if call.version < GROUPS_FROM:
        call.ask_group(OffsetFetch(request.group_id, _topics_by_name(request.topics), stable), _encode_one)
        return
    messages = [OffsetFetch(group.group_id, _resolve_topics(call, group), stable) for group in request.groups]
    ScatterGather(call, messages, lambda replies: _encode_groups(call, replies)).send_next_batch()


def _topics_by_name(topics: Any) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
    """Return topics with partitions. None requests all partitions that have an offset (v2+)."""
    return None if topics is None else tuple((topic.name, topic.partition_indexes) for topic in topics)


def _resolve_topics(call: Call, group: Any) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
    if call.version < TOPIC_IDS_FROM or group.topics is None:
        return _topics_by_name(group.topics)
    topics = [(call.services.topics.by_id(entry.topic_id), entry.partition_indexes) for entry in group.topics]
    return tuple((topic.name, partitions) for topic, partitions in topics if topic is not None)


def _encode_one(call: Call, answer: Fetched) -> bytes:
    topics = tuple(
        call.make(
            "OffsetFetchResponseTopic",
            name=name,
            partitions=tuple(_partition(call, "OffsetFetchResponsePartition", offset) for offset in partitions),
        )
        for name, partitions in answer.topics
    )
    response = call.make("OffsetFetchResponse", throttle_time=NO_THROTTLE, topics=topics, error_code=answer.error)
    return call.schema.write(response)


def _encode_groups(call: Call, replies: list[Fetched]) -> bytes:
    groups = tuple(
        call.make(
            "OffsetFetchResponseGroup",
            group_id=group.group_id,
            topics=_group_topics(call, group, answer),
            error_code=answer.error,
        )
        for group, answer in zip(call.request.groups, replies, strict=True)
    )
    return call.schema.write(call.make("OffsetFetchResponse", throttle_time=NO_THROTTLE, groups=groups))


def _group_topics(call: Call, group: Any, answer: Fetched) -> tuple[Any, ...]:
    if call.version < TOPIC_IDS_FROM:
        return tuple(_group_topic(call, name, None, partitions) for name, partitions in answer.topics)
    if answer.error:
        return ()
    topics = call.services.topics
    entries = []
    for name, partitions in answer.topics:
        topic = topics.get(name)
        if topic is not None:  # the offsets of a deleted topic are left out: it has no id
            entries.append(_group_topic(call, name, topic.topic_id, partitions))
    return (*entries, *_unknown_topics(call, group))


def _group_topic(call: Call, name: str, topic_id: Any, partitions: tuple[FetchedOffset, ...]) -> Any:
    entries = tuple(_partition(call, "OffsetFetchResponsePartitions", offset) for offset in partitions)
    return call.make("OffsetFetchResponseTopics", name=name, topic_id=topic_id, partitions=entries)


def _unknown_topics(call: Call, group: Any) -> list[Any]:
    """Return entries for topics with an unknown id. As in Kafka, they follow the others."""
    refused = []
    for topic in group.topics or ():
        if call.services.topics.by_id(topic.topic_id) is None:
            missing = tuple(
                FetchedOffset(index, -1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes
            )
            refused.append(_group_topic(call, "", topic.topic_id, missing))
    return refused


def _partition(call: Call, type_name: str, offset: FetchedOffset) -> Any:
    return call.make(
        type_name,
        partition_index=offset.partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=offset.error,
    )
