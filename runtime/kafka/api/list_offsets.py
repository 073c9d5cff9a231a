"""ListOffsets (2): where a partition begins and ends, and which record was the first since a time.

Negative timestamps have a meaning each, from a version on: -1 the end, -2 the beginning, -3 the record with the highest
timestamp (v7, KIP-734), -4 the beginning of what is on local disk (v8, KIP-405), -5 and -6 the last of what is or is to
be on remote storage (v9, v11). There is no remote storage, so Kafka and we know no offset for the last two.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ....actors.errors import ErrorCode
from ...log.format.batch import LEADER_EPOCH
from ...topics.partition_log import PartitionLog, TimestampAndOffset
from ..call import Call
from ..codec.codes import NO_THROTTLE, kafka_error

LATEST = -1
EARLIEST = -2
NEWEST = -3
EARLIEST_LOCAL = -4
SINCE_VERSION = {LATEST: 0, EARLIEST: 0, NEWEST: 7, EARLIEST_LOCAL: 8, -5: 9, -6: 11}
NO_EPOCH = -1
NO_TIMESTAMP = -1
READ_COMMITTED = 1


def handle(call: Call) -> None:
    topics = tuple(
        call.make(
            "ListOffsetsTopicResponse",
            name=topic.name,
            partitions=tuple(answers(call, topic)),
        )
        for topic in call.request.topics
    )
    call.reply(call.make("ListOffsetsResponse", throttle_time=NO_THROTTLE, topics=topics))


def answers(call: Call, asked: Any) -> list[Any]:
    """One answer for each partition; one that is asked for twice is refused, as by Kafka."""
    topic = call.node.topics.get(asked.name)
    times = Counter(partition.partition_index for partition in asked.partitions)
    once = {partition.partition_index: partition for partition in asked.partitions}
    committed_only = getattr(call.request, "isolation_level", 0) == READ_COMMITTED
    found = []
    for index, partition in once.items():
        log = topic.peek(index) if topic else None
        error = ErrorCode.INVALID_REQUEST if times[index] > 1 else refusal(log, partition, call.version)
        place = None if error or log is None else locate(log, partition.timestamp, committed_only)
        found.append(answer(call, index, error, place))
    return found


def refusal(log: PartitionLog | None, partition: Any, version: int) -> ErrorCode:
    if log is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.timestamp < 0 and version < SINCE_VERSION.get(partition.timestamp, version + 1):
        return ErrorCode.UNSUPPORTED_VERSION
    return epoch_error(getattr(partition, "current_leader_epoch", NO_EPOCH))


def epoch_error(epoch: int) -> ErrorCode:
    """Compare the leader epoch that a client believes in (-1: none) with ours, which is always 0 (KIP-320)."""
    if epoch in (NO_EPOCH, LEADER_EPOCH):
        return ErrorCode.NONE
    return ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > LEADER_EPOCH else ErrorCode.FENCED_LEADER_EPOCH


def locate(log: PartitionLog, timestamp: int, committed_only: bool = False) -> TimestampAndOffset | None:
    """The place that is asked for. Beginning and end are places without a time; None when there is no such place.

    ``committed_only``: for who reads committed records only the log ends before the first open transaction.
    """
    end_offset = log.last_stable_offset if committed_only else log.end_offset
    found = search(log, timestamp, end_offset)
    return found if found is None or found.offset <= end_offset else None


def search(log: PartitionLog, timestamp: int, end_offset: int) -> TimestampAndOffset | None:
    if timestamp == LATEST:
        return TimestampAndOffset(NO_TIMESTAMP, end_offset)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return TimestampAndOffset(NO_TIMESTAMP, log.start_offset)
    if timestamp == NEWEST:
        return log.find_newest()
    return log.find_first_since(timestamp) if timestamp >= 0 else None


def answer(call: Call, index: int, error: ErrorCode, place: TimestampAndOffset | None) -> Any:
    timestamp_ms, offset = place or (NO_TIMESTAMP, -1)
    return call.make(
        "ListOffsetsPartitionResponse",
        partition_index=index,
        error_code=kafka_error(error),
        timestamp=timestamp_ms,
        offset=offset,
        leader_epoch=LEADER_EPOCH if place else NO_EPOCH,
    )
