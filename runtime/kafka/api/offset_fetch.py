"""OffsetFetch (key 9): one group up to version 7, several from version 8 on; topics by id from version 10 on."""

from __future__ import annotations

from typing import Any

from ....actors.errors import ErrorCode
from ....actors.messages import Fetched, FetchedOffset, OffsetFetch
from ..call import Call
from ..codec.codes import NO_THROTTLE
from ..gather import Gather

GROUPS_FROM = 8
TOPIC_IDS_FROM = 10


def handle(call: Call) -> None:
    request = call.request
    stable = getattr(request, "require_stable", False)
    if call.version < GROUPS_FROM:
        call.ask(OffsetFetch(request.group_id, _named(request.topics), stable), _encode_one)
        return
    messages = [OffsetFetch(group.group_id, _asked(call, group), stable) for group in request.groups]
    gather = Gather(call, messages, lambda answers: _encode_groups(call, answers))
    gather.send()


def _named(topics: Any) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
    """None asks for all partitions that have an offset (v2+)."""
    return None if topics is None else tuple((topic.name, topic.partition_indexes) for topic in topics)


def _asked(call: Call, group: Any) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
    if call.version < TOPIC_IDS_FROM or group.topics is None:
        return _named(group.topics)
    known = [(call.node.topics.by_id(asked.topic_id), asked.partition_indexes) for asked in group.topics]
    return tuple((topic.name, partitions) for topic, partitions in known if topic is not None)


def _encode_one(call: Call, answer: Fetched) -> bytes:
    topics = tuple(
        call.make(
            "OffsetFetchResponseTopic",
            name=name,
            partitions=tuple(_partition(call, "OffsetFetchResponsePartition", one) for one in partitions),
        )
        for name, partitions in answer.topics
    )
    response = call.make("OffsetFetchResponse", throttle_time=NO_THROTTLE, topics=topics, error_code=answer.error)
    return call.schema.write(response)


def _encode_groups(call: Call, answers: list[Fetched]) -> bytes:
    groups = tuple(
        call.make(
            "OffsetFetchResponseGroup",
            group_id=asked.group_id,
            topics=_group_topics(call, asked, answer),
            error_code=answer.error,
        )
        for asked, answer in zip(call.request.groups, answers, strict=True)
    )
    return call.schema.write(call.make("OffsetFetchResponse", throttle_time=NO_THROTTLE, groups=groups))


def _group_topics(call: Call, asked: Any, answer: Fetched) -> tuple[Any, ...]:
    if call.version < TOPIC_IDS_FROM:
        return tuple(_group_topic(call, name, None, partitions) for name, partitions in answer.topics)
    if answer.error:
        return ()
    topics = call.node.topics
    found = []
    for name, partitions in answer.topics:
        topic = topics.get(name)
        if topic is not None:  # an offset of a deleted topic has no id that it could be told by
            found.append(_group_topic(call, name, topic.topic_id, partitions))
    return (*found, *_unknown_ids(call, asked))


def _group_topic(call: Call, name: str, topic_id: Any, partitions: tuple[FetchedOffset, ...]) -> Any:
    made = tuple(_partition(call, "OffsetFetchResponsePartitions", one) for one in partitions)
    return call.make("OffsetFetchResponseTopics", name=name, topic_id=topic_id, partitions=made)


def _unknown_ids(call: Call, asked: Any) -> list[Any]:
    """Topics asked for by an id that nothing has: each partition is refused, behind the others as in Kafka."""
    refused = []
    for topic in asked.topics or ():
        if call.node.topics.by_id(topic.topic_id) is None:
            missing = tuple(
                FetchedOffset(index, -1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes
            )
            refused.append(_group_topic(call, "", topic.topic_id, missing))
    return refused


def _partition(call: Call, type_name: str, one: FetchedOffset) -> Any:
    return call.make(
        type_name,
        partition_index=one.partition,
        committed_offset=one.offset,
        committed_leader_epoch=one.leader_epoch,
        metadata=one.metadata,
        error_code=one.error,
    )
