"""OffsetFetch (key 9): one group up to version 7, several from version 8; topics by id from version 10."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from ....actors.errors import ErrorCode
from ....actors.messages import Fetched, FetchedOffset, OffsetFetch
from ..authorize import Verdicts, authorize
from ..call import Call
from ..checks import DESCRIBE_GROUP, DESCRIBE_TOPIC, FILTERED_TOPIC
from ..codec.codes import NO_THROTTLE
from ..scatter_gather import ScatterGather

TOP_LEVEL_ERROR_FROM = 2
GROUPS_FROM = 8
TOPIC_IDS_FROM = 10

FetchedTopics = tuple[tuple[str, tuple[FetchedOffset, ...]], ...]
RequestedTopics = tuple[tuple[str, tuple[int, ...]], ...]


def handle(call: Call) -> None:
    if call.version < GROUPS_FROM:
        _fetch_one(call)
    else:
        _fetch_groups(call)


def _fetch_one(call: Call) -> None:
    request = call.request
    error = authorize(call, DESCRIBE_GROUP, (request.group_id,)).error
    if error:
        call.respond_with_bytes(_encode_one(_denied_topics(request.topics or (), error), call, Fetched(error)))
        return
    verdicts = authorize(call, DESCRIBE_TOPIC, (topic.name for topic in request.topics or ()))
    denied = [topic for topic in request.topics or () if not verdicts.allows(topic.name)]
    topics = _resolve_topics(call, verdicts, request)
    message = OffsetFetch(request.group_id, topics, getattr(request, "require_stable", False))
    call.ask_group(message, partial(_encode_one, _denied_topics(denied, verdicts.code)))


def _denied_topics(topics: Iterable[Any], error: ErrorCode) -> FetchedTopics:
    """Return requested topics with an error in each partition."""
    return tuple(
        (topic.name, tuple(FetchedOffset(index, -1, -1, "", error) for index in topic.partition_indexes))
        for topic in topics
    )


def _fetch_groups(call: Call) -> None:
    groups = call.request.groups
    verdicts = authorize(call, DESCRIBE_GROUP, (group.group_id for group in groups))
    topics = authorize(call, DESCRIBE_TOPIC, _topic_names(call))
    messages = [
        OffsetFetch(group.group_id, _resolve_topics(call, topics, group), call.request.require_stable)
        for group in groups
        if verdicts.allows(group.group_id)
    ]
    ScatterGather(call, messages, lambda replies: _encode_groups(call, verdicts, topics, replies)).send_next_batch()


def _topic_names(call: Call) -> Iterable[str]:
    """Yield the names of the requested topics of all groups."""
    for group in call.request.groups:
        for topic in group.topics or ():
            name = _topic_name(call, topic)
            if name is not None:
                yield name


def _topic_name(call: Call, requested: Any) -> str | None:
    """Return the name of a requested topic, None for an unknown id."""
    if call.version < TOPIC_IDS_FROM:
        return str(requested.name)
    topic = call.services.topics.by_id(requested.topic_id)
    return None if topic is None else topic.name


def _resolve_topics(call: Call, verdicts: Verdicts, group: Any) -> RequestedTopics | None:
    """Return the allowed topics with partitions. None requests all partitions that have an offset (v2+)."""
    if group.topics is None:
        return None
    topics = [(_topic_name(call, entry), entry.partition_indexes) for entry in group.topics]
    return tuple((name, partitions) for name, partitions in topics if name is not None and verdicts.allows(name))


def _shown_topics(call: Call, requested: Any, answer: Fetched) -> FetchedTopics:
    """Return the topics of a reply; of all topics, those that the client may describe."""
    if requested is not None:
        return answer.topics
    verdicts = authorize(call, FILTERED_TOPIC, (name for name, _ in answer.topics))
    return tuple(topic for topic in answer.topics if verdicts.allows(topic[0]))


def _encode_one(denied: FetchedTopics, call: Call, answer: Fetched) -> bytes:
    """Encode a reply. As in Kafka, the denied topics follow the others, except if the group has an error."""
    has_top_level_error = answer.error and call.version >= TOP_LEVEL_ERROR_FROM
    shown = (*_shown_topics(call, call.request.topics, answer), *(() if has_top_level_error else denied))
    topics = tuple(
        call.make(
            "OffsetFetchResponseTopic",
            name=name,
            partitions=tuple(_partition(call, "OffsetFetchResponsePartition", offset) for offset in partitions),
        )
        for name, partitions in shown
    )
    response = call.make("OffsetFetchResponse", throttle_time=NO_THROTTLE, topics=topics, error_code=answer.error)
    return call.schema.write(response)


def _encode_groups(call: Call, verdicts: Verdicts, topics: Verdicts, replies: list[Fetched]) -> bytes:
    remaining = iter(replies)
    answers = [
        (group, next(remaining) if verdicts.allows(group.group_id) else Fetched(verdicts.code))
        for group in call.request.groups
    ]
    groups = tuple(
        call.make(
            "OffsetFetchResponseGroup",
            group_id=group.group_id,
            topics=_group_topics(call, topics, group, answer),
            error_code=answer.error,
        )
        for group, answer in answers
    )
    return call.schema.write(call.make("OffsetFetchResponse", throttle_time=NO_THROTTLE, groups=groups))


def _group_topics(call: Call, verdicts: Verdicts, group: Any, answer: Fetched) -> tuple[Any, ...]:
    shown = _shown_topics(call, group.topics, answer)
    refused = () if answer.error else _refused_topics(call, verdicts, group)
    if call.version < TOPIC_IDS_FROM:
        return (*(_group_topic(call, name, None, partitions) for name, partitions in shown), *refused)
    if answer.error:
        return ()
    topics = call.services.topics
    entries = []
    for name, partitions in shown:
        topic = topics.get(name)
        if topic is not None:  # the offsets of a deleted topic are left out: it has no id
            entries.append(_group_topic(call, name, topic.topic_id, partitions))
    return (*entries, *refused)


def _group_topic(call: Call, name: str, topic_id: Any, partitions: tuple[FetchedOffset, ...]) -> Any:
    entries = tuple(_partition(call, "OffsetFetchResponsePartitions", offset) for offset in partitions)
    return call.make("OffsetFetchResponseTopics", name=name, topic_id=topic_id, partitions=entries)


def _refused_topics(call: Call, verdicts: Verdicts, group: Any) -> list[Any]:
    """Return entries for topics with an unknown id and denied topics. As in Kafka, they follow the others."""
    refused = []
    for requested in group.topics or ():
        name = _topic_name(call, requested)
        error = ErrorCode.UNKNOWN_TOPIC_ID if name is None else verdicts.error_of(name)
        if error:
            offsets = tuple(FetchedOffset(index, -1, -1, "", error) for index in requested.partition_indexes)
            topic_id = getattr(requested, "topic_id", None)
            refused.append(_group_topic(call, getattr(requested, "name", ""), topic_id, offsets))
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
