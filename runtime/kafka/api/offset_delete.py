"""OffsetDelete (key 47): delete single offsets of a group. Answered when the tombstones are durable."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ....actors.errors import ErrorCode
from ....actors.messages import OffsetDelete, OffsetsDeleted
from ..authorize import authorize
from ..call import Call
from ..checks import DELETE_GROUP, READ_TOPIC
from ..codec.codes import NO_THROTTLE
from ..partition_results import PartitionError

ResultsByTopic = dict[str, list[PartitionError]]
"""For each topic its partitions with their errors."""


def handle(call: Call) -> None:
    request, refused, existing = call.request, ResultsByTopic(), []
    denial = authorize(call, DELETE_GROUP, (request.group_id,)).error
    if denial:
        call.respond_with_bytes(_body(call, denial, ()))
        return
    if not request.group_id:
        call.respond_with_bytes(_body(call, ErrorCode.INVALID_GROUP_ID, ()))
        return
    verdicts = authorize(call, READ_TOPIC, (topic.name for topic in request.topics))
    for requested in request.topics:
        topic = call.services.topics.get(requested.name)
        error = verdicts.error_of(requested.name)
        count = len(topic.partitions) if topic is not None and not error else 0
        indexes = [partition.partition_index for partition in requested.partitions]
        for index in indexes:
            if not 0 <= index < count:
                refused.setdefault(requested.name, []).append((index, error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if not (count or indexes):
            refused.setdefault(requested.name, [])
        existing_indexes = tuple(index for index in indexes if 0 <= index < count)
        if existing_indexes:
            existing.append((requested.name, existing_indexes))
    call.ask_group(OffsetDelete(request.group_id, tuple(existing)), partial(_encode, refused, tuple(existing)))


def _encode(
    refused: ResultsByTopic, existing: tuple[tuple[str, tuple[int, ...]], ...], call: Call, answer: OffsetsDeleted
) -> bytes:
    """Encode the results in Kafka's order (see ``partition_results``), or only the error of the group."""
    if answer.error:
        return _body(call, answer.error, ())
    results = [
        (topic, [(partition, error) for partition in partitions])
        for (topic, partitions), error in zip(existing, answer.topics, strict=True)
    ]
    if not refused:
        return _body(call, ErrorCode.NONE, results)
    for topic, partitions in results:
        refused.setdefault(topic, []).extend(partitions)
    return _body(call, ErrorCode.NONE, refused.items())


def _body(call: Call, error: ErrorCode, results: Iterable[tuple[str, list[PartitionError]]]) -> bytes:
    topics = tuple(
        call.make(
            "OffsetDeleteResponseTopic",
            name=name,
            partitions=tuple(
                call.make("OffsetDeleteResponsePartition", partition_index=index, error_code=code)
                for index, code in partitions
            ),
        )
        for name, partitions in results
    )
    response = call.make("OffsetDeleteResponse", error_code=error, throttle_time=NO_THROTTLE, topics=topics)
    return call.schema.write(response)
