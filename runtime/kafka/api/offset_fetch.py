"""OffsetFetch (key 9): one group up to version 7, several from version 8; topics by id from version 10."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from ....actors.errors import ErrorCode
from ....actors.messages import Fetched, FetchedOffset, OffsetFetch
from ....actors.steps import ITEMS_PER_STEP, Steps, pieces
from ...common.shared_bytes import SharedBytes
from ..authorization.authorize import ALL_ALLOWED, Verdicts, authorize, authorize_in_steps
from ..authorization.checks import DESCRIBE_GROUP, DESCRIBE_TOPIC, FILTERED_TOPIC
from ..call import Body, Call
from ..codec.codes import NO_THROTTLE
from ..codec.step_writer import write_in_steps
from ..scatter_gather import ScatterGather

TOP_LEVEL_ERROR_FROM = 2
GROUPS_FROM = 8
MEMBER_FROM = 9  # KIP-848
TOPIC_IDS_FROM = 10

FetchedTopics = Iterable[tuple[str, Iterable[FetchedOffset]]]
GroupKey = tuple[str, str | None, int] | int
Entry = bytes | SharedBytes
"""An encoded entry of a group. A group that is requested twice has the same one."""

RequestedTopics = tuple[tuple[str, tuple[int, ...]], ...]


def handle(call: Call) -> Steps[None]:
    return _fetch_one(call) if call.version < GROUPS_FROM else _fetch_groups(call)


def _fetch_one(call: Call) -> Steps[None]:
    request = call.request
    requested = request.topics or ()
    error = authorize(call, DESCRIBE_GROUP, (request.group_id,)).error
    if error:
        call.encode_and_respond(lambda: _encode_one(_denied_topics(requested, error), call, Fetched(error)))
        return
    verdicts = yield from authorize_in_steps(call, DESCRIBE_TOPIC, (topic.name for topic in requested))
    denied: list[Any] = []
    for entries in pieces(requested):
        denied += (topic for topic in entries if not verdicts.allows(topic.name))
        yield
    topics = yield from _resolve_topics(call, verdicts, request)
    message = OffsetFetch(request.group_id, topics, getattr(request, "require_stable", False))
    call.ask_group(message, lambda call, answer: _encode_one(_denied_topics(denied, verdicts.code), call, answer))


def _denied_topics(topics: Iterable[Any], error: ErrorCode) -> FetchedTopics:
    """Yield requested topics with an error in each partition."""
    return (
        (topic.name, (FetchedOffset(index, -1, -1, "", error) for index in topic.partition_indexes)) for topic in topics
    )


def _fetch_groups(call: Call) -> Steps[None]:
    groups = call.request.groups
    verdicts = yield from authorize_in_steps(call, DESCRIBE_GROUP, (group.group_id for group in groups))
    topics = yield from authorize_in_steps(call, DESCRIBE_TOPIC, _topic_names(call))
    requested: list[Any] = []
    numbers: dict[GroupKey, int] = {}
    messages: list[OffsetFetch] = []
    for group in groups:
        if verdicts.allows(group.group_id) and _key(group) not in numbers:
            resolved = yield from _resolve_topics(call, topics, group)
            numbers[_key(group)] = len(messages)
            requested.append(group)
            messages.append(_message(call, group, resolved))
        yield
    ScatterGather(
        call,
        messages,
        lambda entries: _encode_groups(call, verdicts.code, numbers, entries),
        convert=lambda number, reply: write_in_steps(_group(call, topics, requested[number], reply)),
    ).send_next_batch()


def _message(call: Call, group: Any, topics: RequestedTopics | None) -> OffsetFetch:
    if call.version < MEMBER_FROM:
        return OffsetFetch(group.group_id, topics, call.request.require_stable)
    return OffsetFetch(group.group_id, topics, call.request.require_stable, group.member_id, group.member_epoch)


def _key(group: Any) -> GroupKey:
    """Entries with the same key have the same answer. Only all offsets of a group are worth finding once."""
    if group.topics is not None:
        return id(group)
    return group.group_id, getattr(group, "member_id", None), getattr(group, "member_epoch", -1)


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


def _resolve_topics(call: Call, verdicts: Verdicts, group: Any) -> Steps[RequestedTopics | None]:
    """Return the allowed topics with partitions. None requests all partitions that have an offset (v2+)."""
    if group.topics is None:
        return None
    resolved: list[tuple[str, tuple[int, ...]]] = []
    for entries in pieces(group.topics):
        topics = ((_topic_name(call, entry), entry.partition_indexes) for entry in entries)
        resolved += ((name, indexes) for name, indexes in topics if name is not None and verdicts.allows(name))
        yield
    return tuple(resolved)


def _shown_topics(call: Call, requested: Any, answer: Fetched) -> Steps[FetchedTopics]:
    """Return the topics of a reply; of all topics, those that the client may describe."""
    if requested is not None:
        return answer.topics
    verdicts = yield from authorize_in_steps(call, FILTERED_TOPIC, (name for name, _ in answer.topics))
    return (topic for topic in answer.topics if verdicts.allows(topic[0]))


def _encode_one(denied: FetchedTopics, call: Call, answer: Fetched) -> Body:
    return write_in_steps(
        call.make(
            "OffsetFetchResponse",
            throttle_time=NO_THROTTLE,
            topics=_topics_of_one(denied, call, answer),
            error_code=answer.error,
        )
    )


def _topics_of_one(denied: FetchedTopics, call: Call, answer: Fetched) -> Iterator[Any]:
    """Yield the topics. As in Kafka, the denied topics follow the others, except if the group has an error."""
    shown = yield from _shown_topics(call, call.request.topics, answer)
    has_top_level_error = answer.error and call.version >= TOP_LEVEL_ERROR_FROM
    for name, partitions in chain(shown, () if has_top_level_error else denied):
        entries = (_partition(call, "OffsetFetchResponsePartition", offset) for offset in partitions)
        yield call.make("OffsetFetchResponseTopic", name=name, partitions=entries)


def _encode_groups(call: Call, denial: ErrorCode, numbers: dict[GroupKey, int], entries: list[Entry]) -> Body:
    """Encode the response. ``entries``: the encoded groups, by their numbers. Other groups are denied."""
    groups = (
        entries[numbers[_key(group)]] if _key(group) in numbers else _group(call, ALL_ALLOWED, group, Fetched(denial))
        for group in call.request.groups
    )
    return write_in_steps(call.make("OffsetFetchResponse", throttle_time=NO_THROTTLE, groups=groups))


def _group(call: Call, verdicts: Verdicts, group: Any, answer: Fetched) -> Any:
    return call.make(
        "OffsetFetchResponseGroup",
        group_id=group.group_id,
        topics=_group_topics(call, verdicts, group, answer),
        error_code=answer.error,
    )


def _group_topics(call: Call, verdicts: Verdicts, group: Any, answer: Fetched) -> Iterator[Any]:
    has_ids = call.version >= TOPIC_IDS_FROM
    if has_ids and answer.error:
        return
    for name, partitions in (yield from _shown_topics(call, group.topics, answer)):
        topic = call.services.topics.get(name) if has_ids else None
        if topic is not None or not has_ids:  # the offsets of a deleted topic are left out: it has no id
            yield _group_topic(call, name, topic.topic_id if topic else None, partitions)
    if not answer.error:
        yield from _refused_topics(call, verdicts, group)


def _group_topic(call: Call, name: str, topic_id: Any, partitions: Iterable[FetchedOffset]) -> Any:
    entries = (_partition(call, "OffsetFetchResponsePartitions", offset) for offset in partitions)
    return call.make("OffsetFetchResponseTopics", name=name, topic_id=topic_id, partitions=entries)


def _refused_topics(call: Call, verdicts: Verdicts, group: Any) -> Iterator[Any]:
    """Yield entries for topics with an unknown id and denied topics. As in Kafka, they follow the others."""
    for number, requested in enumerate(group.topics or (), 1):
        if number % ITEMS_PER_STEP == 0:
            yield None
        name = _topic_name(call, requested)
        error = ErrorCode.UNKNOWN_TOPIC_ID if name is None else verdicts.error_of(name)
        if error:
            offsets = partial(FetchedOffset, offset=-1, leader_epoch=-1, metadata="", error=error)
            topic_id = getattr(requested, "topic_id", None)
            name = getattr(requested, "name", "")
            yield _group_topic(call, name, topic_id, map(offsets, requested.partition_indexes))


def _partition(call: Call, type_name: str, offset: FetchedOffset) -> Any:
    return call.make(
        type_name,
        partition_index=offset.partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=offset.error,
    )
