"""OffsetDelete (key 47): a group forgets single offsets. Answered when the tombstones are durable."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ....actors.errors import ErrorCode
from ....actors.messages import OffsetDelete, OffsetsDeleted
from ..call import Call
from ..codec.codes import NO_THROTTLE
from ..places import Answered

Places = dict[str, list[Answered]]
"""For each topic its partitions, each with its answer."""


def handle(call: Call) -> None:
    request, refused, asked = call.request, Places(), []
    if not request.group_id:
        call.reply_bytes(_body(call, ErrorCode.INVALID_GROUP_ID, ()))
        return
    for wanted in request.topics:
        topic = call.node.topics.get(wanted.name)
        count = len(topic.partitions) if topic is not None else 0
        indexes = [one.partition_index for one in wanted.partitions]
        for index in indexes:
            if not 0 <= index < count:
                refused.setdefault(wanted.name, []).append((index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if not (count or indexes):
            refused.setdefault(wanted.name, [])
        known = tuple(index for index in indexes if 0 <= index < count)
        if known:
            asked.append((wanted.name, known))
    call.ask(OffsetDelete(request.group_id, tuple(asked)), partial(_encode, refused, tuple(asked)))


def _encode(
    refused: Places, asked: tuple[tuple[str, tuple[int, ...]], ...], call: Call, answer: OffsetsDeleted
) -> bytes:
    """As Kafka lays it out (see ``places``); a group's refusal stands alone."""
    if answer.error:
        return _body(call, answer.error, ())
    found = [
        (topic, [(partition, error) for partition in partitions])
        for (topic, partitions), error in zip(asked, answer.topics, strict=True)
    ]
    if not refused:
        return _body(call, ErrorCode.NONE, found)
    for topic, partitions in found:
        refused.setdefault(topic, []).extend(partitions)
    return _body(call, ErrorCode.NONE, refused.items())


def _body(call: Call, error: ErrorCode, places: Iterable[tuple[str, list[Answered]]]) -> bytes:
    topics = tuple(
        call.make(
            "OffsetDeleteResponseTopic",
            name=name,
            partitions=tuple(
                call.make("OffsetDeleteResponsePartition", partition_index=index, error_code=code)
                for index, code in answers
            ),
        )
        for name, answers in places
    )
    response = call.make("OffsetDeleteResponse", error_code=error, throttle_time=NO_THROTTLE, topics=topics)
    return call.schema.write(response)
