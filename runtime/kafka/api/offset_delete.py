"""OffsetDelete (key 47): delete single offsets of a group. Answered when the tombstones are durable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, repeat
from typing import Any

from ....actors.errors import ErrorCode
from ....actors.messages import OffsetDelete, OffsetsDeleted
from ....actors.steps import Steps, pieces
from ..authorization.authorize import authorize, authorize_in_steps
from ..authorization.checks import DELETE_GROUP, READ_TOPIC
from ..call import Body, Call
from ..codec.codes import NO_THROTTLE
from ..codec.step_writer import write_in_steps
from ..partition_results import PartitionError, TopicErrors

ResultsByTopic = dict[str, list[PartitionError]]
"""For each topic its partitions with their errors."""


def handle(call: Call) -> Steps[None]:
    request, refused, existing = call.request, ResultsByTopic(), []
    denial = authorize(call, DELETE_GROUP, (request.group_id,)).error
    if denial or not request.group_id:
        call.encode_and_respond(lambda: _body(call, denial or ErrorCode.INVALID_GROUP_ID, ()))
        return
    verdicts = yield from authorize_in_steps(call, READ_TOPIC, (topic.name for topic in request.topics))
    for requested in request.topics:
        topic = call.services.topics.get(requested.name)
        error = verdicts.error_of(requested.name)
        count = len(topic.partitions) if topic is not None and not error else 0
        indexes: list[int] = []
        for partitions in pieces(requested.partitions):
            for partition in partitions:
                index = partition.partition_index
                if 0 <= index < count:
                    indexes.append(index)
                else:
                    unknown = error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    refused.setdefault(requested.name, []).append((index, unknown))
            yield
        if not (count or requested.partitions):
            refused.setdefault(requested.name, [])
        if indexes:
            existing.append((requested.name, tuple(indexes)))
    call.ask_group(OffsetDelete(request.group_id, tuple(existing)), partial(_encode, refused, tuple(existing)))


def _encode(
    refused: ResultsByTopic, existing: tuple[tuple[str, tuple[int, ...]], ...], call: Call, answer: OffsetsDeleted
) -> Body:
    """Encode the results in Kafka's order (see ``partition_results``), or only the error of the group."""
    if answer.error:
        return _body(call, answer.error, ())
    results = (
        (topic, zip(partitions, repeat(error)))
        for (topic, partitions), error in zip(existing, answer.topics, strict=True)
    )
    return _body(call, ErrorCode.NONE, _merged(refused, results) if refused else results)


def _merged(refused: ResultsByTopic, results: Iterable[TopicErrors[str]]) -> Iterator[TopicErrors[str] | None]:
    """Yield each topic once, the refused partitions first; None after each piece of work."""
    deleted: dict[str, list[Iterable[PartitionError]]] = {}
    for piece in pieces(results):
        for topic, partitions in piece:
            deleted.setdefault(topic, []).append(partitions)
        yield None
    for topic in dict.fromkeys(chain(refused, deleted)):
        yield topic, chain(refused.get(topic, ()), *deleted.get(topic, ()))


def _body(call: Call, error: ErrorCode, results: Iterable[TopicErrors[str] | None]) -> Body:
    topics = (None if result is None else _topic(call, *result) for result in results)
    response = call.make("OffsetDeleteResponse", error_code=error, throttle_time=NO_THROTTLE, topics=topics)
    return write_in_steps(response)


def _topic(call: Call, name: str, partitions: Iterable[PartitionError]) -> Any:
    entries = (
        call.make("OffsetDeleteResponsePartition", partition_index=index, error_code=code) for index, code in partitions
    )
    return call.make("OffsetDeleteResponseTopic", name=name, partitions=entries)
