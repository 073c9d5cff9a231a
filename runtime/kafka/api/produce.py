"""Produce (0): a producer's batches go into the topics in memory.

The answer comes when the new end offset outlives the process (see ``topics.ends``); the records do not, whatever acks
says. Kafka advertises v0-v2 for the sake of librdkafka and cannot read them, and neither can we.
"""

from __future__ import annotations

from typing import Any

from ....actors.errors import CoordinatorError, ErrorCode
from ..call import Call
from ..codes import NO_THROTTLE, kafka_error
from ..topics.topic import Topic

NO_ANSWER = 0
ACKS = (-1, NO_ANSWER, 1)
NO_OFFSET = -1
BY_ID_SINCE = 13


def handle(call: Call) -> None:
    responses = tuple(store(call, sent) for sent in call.request.topic_data)
    if call.request.acks != NO_ANSWER:
        call.reply(call.make("ProduceResponse", responses=responses, throttle_time=NO_THROTTLE))
        return
    if any(partition.error_code for topic in responses for partition in topic.partition_responses):
        # As Kafka does: the only way to tell a producer that listens to no answer.
        call.connection.close()
    call.reply_nothing()


def store(call: Call, sent: Any) -> Any:
    """Store what was sent for one topic, each partition for itself."""
    topic_id = getattr(sent, "topic_id", None)
    topics = call.node.topics
    topic = topics.by_id(topic_id) if call.version >= BY_ID_SINCE else topics.get(sent.name)
    return call.make(
        "TopicProduceResponse",
        name=getattr(sent, "name", None),
        topic_id=topic_id,
        partition_responses=tuple(append(call, topic, partition) for partition in sent.partition_data),
    )


def append(call: Call, topic: Topic | None, sent: Any) -> Any:
    try:
        writable = check(call, topic, sent.index)
        base_offset = writable.append(sent.index, sent.records)
        start_offset = writable.partitions[sent.index].start_offset
        return answer(call, sent.index, base_offset=base_offset, log_start_offset=start_offset)
    except CoordinatorError as refusal:
        return answer(call, sent.index, refusal.code, error_message=str(refusal))


def check(call: Call, topic: Topic | None, index: int) -> Topic:
    """The topic, if a client may append to this partition of it. Raises CoordinatorError with Kafka's code."""
    if call.request.acks not in ACKS:
        raise CoordinatorError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks {call.request.acks}: expected one of {ACKS}")
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID if call.version >= BY_ID_SINCE else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise CoordinatorError(code, "there is no such topic")
    if topic.is_internal:
        raise CoordinatorError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {topic.name!r} is the coordinator's own")
    if topic.partition(index) is None:
        raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r} has no partition {index}")
    return topic


def answer(
    call: Call,
    index: int,
    error: ErrorCode = ErrorCode.NONE,
    base_offset: int = NO_OFFSET,
    log_start_offset: int = NO_OFFSET,
    error_message: str | None = None,
) -> Any:
    return call.make(
        "PartitionProduceResponse",
        index=index,
        error_code=kafka_error(error),
        base_offset=base_offset,
        log_append_time=None,  # the record keeps its producer's time
        log_start_offset=log_start_offset,
        record_errors=(),
        error_message=error_message,
    )
