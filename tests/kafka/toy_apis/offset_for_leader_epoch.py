"""OffsetForLeaderEpoch (23), as a toy: the end of each partition, whatever the epoch. See ``test_toy_api``."""

from __future__ import annotations

from typing import Any

from callboard.actors.errors import ErrorCode
from callboard.runtime.kafka.authorization.authorize import authorize
from callboard.runtime.kafka.authorization.checks import DESCRIBE_TOPIC
from callboard.runtime.kafka.call import Call
from callboard.runtime.kafka.codec.codes import NO_THROTTLE, kafka_error


def handle(call: Call) -> None:
    verdicts = authorize(call, DESCRIBE_TOPIC, (topic.topic for topic in call.request.topics))
    topics = tuple(
        call.make(
            "OffsetForLeaderTopicResult",
            topic=topic.topic,
            partitions=tuple(
                end_offset(call, topic.topic, each.partition, verdicts.error_of(topic.topic))
                for each in topic.partitions
            ),
        )
        for topic in call.request.topics
    )
    call.respond(call.make("OffsetForLeaderEpochResponse", throttle_time=NO_THROTTLE, topics=topics))


def end_offset(call: Call, name: str, partition: int, denial: ErrorCode) -> Any:
    topic = None if denial else call.services.topics.get(name)
    log = topic.peek(partition) if topic else None
    if log is None:
        error = denial or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return call.make("EpochEndOffset", partition=partition, error_code=kafka_error(error))
    return call.make(
        "EpochEndOffset",
        partition=partition,
        error_code=kafka_error(ErrorCode.NONE),
        leader_epoch=0,
        end_offset=log.end_offset,
    )
