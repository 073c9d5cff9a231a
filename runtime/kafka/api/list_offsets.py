"""ListOffsets (2): the start and end of a partition, or its first record at or after a timestamp.

Negative timestamps are constants, each from some version on: -1 the end, -2 the start, -3 the record with the highest
timestamp (v7, KIP-734), -4 the start of the local log (v8, KIP-405), -5 and -6 the last offset that is, or will be, in
remote storage (v9, v11). There is no remote storage, so the last two return no offset, as in Kafka.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ....actors.errors import ErrorCode
from ...log.format.batch import LEADER_EPOCH
from ...topics.partition_log import PartitionLog, TimestampAndOffset
from ..authorize import authorize
from ..call import Call
from ..checks import DESCRIBE_TOPIC
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
    """Answer. As in Kafka, the denied topics follow the others."""
    verdicts = authorize(call, DESCRIBE_TOPIC, (topic.name for topic in call.request.topics))
    allowed = ((topic, answers(call, topic)) for topic in call.request.topics if verdicts.allows(topic.name))
    denied = (
        (topic, [answer(call, each.partition_index, verdicts.code, None) for each in topic.partitions])
        for topic in call.request.topics
        if not verdicts.allows(topic.name)
    )
    topics = tuple(
        call.make("ListOffsetsTopicResponse", name=topic.name, partitions=tuple(partitions))
        for topic, partitions in (*allowed, *denied)
    )
    call.respond(call.make("ListOffsetsResponse", throttle_time=NO_THROTTLE, topics=topics))


def answers(call: Call, request: Any) -> list[Any]:
    """Return a result for each partition. A partition that occurs twice in the request is refused, as in Kafka."""
    topic = call.services.topics.get(request.name)
    occurrences = Counter(partition.partition_index for partition in request.partitions)
    once = {partition.partition_index: partition for partition in request.partitions}
    committed_only = getattr(call.request, "isolation_level", 0) == READ_COMMITTED
    results = []
    for index, partition in once.items():
        log = topic.peek(index) if topic else None
        error = ErrorCode.INVALID_REQUEST if occurrences[index] > 1 else refusal(log, partition, call.version)
        location = None if error or log is None else locate(log, partition.timestamp, committed_only)
        results.append(answer(call, index, error, location))
    return results


def refusal(log: PartitionLog | None, partition: Any, version: int) -> ErrorCode:
    if log is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.timestamp < 0 and version < SINCE_VERSION.get(partition.timestamp, version + 1):
        return ErrorCode.UNSUPPORTED_VERSION
    return epoch_error(getattr(partition, "current_leader_epoch", NO_EPOCH))


def epoch_error(epoch: int) -> ErrorCode:
    """Compare the leader epoch of a client (-1: none) with the current one, which is always 0 (KIP-320)."""
    if epoch in (NO_EPOCH, LEADER_EPOCH):
        return ErrorCode.NONE
    return ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > LEADER_EPOCH else ErrorCode.FENCED_LEADER_EPOCH


def locate(log: PartitionLog, timestamp: int, committed_only: bool = False) -> TimestampAndOffset | None:
    """Return the requested timestamp and offset, or None if there is no such record. Start and end have no timestamp.

    ``committed_only``: for isolation level read_committed, the log ends before the first open transaction.
    """
    end_offset = log.last_stable_offset if committed_only else log.end_offset
    location = search(log, timestamp, end_offset)
    return location if location is None or location.offset <= end_offset else None


def search(log: PartitionLog, timestamp: int, end_offset: int) -> TimestampAndOffset | None:
    if timestamp == LATEST:
        return TimestampAndOffset(NO_TIMESTAMP, end_offset)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return TimestampAndOffset(NO_TIMESTAMP, log.start_offset)
    if timestamp == NEWEST:
        return log.find_newest()
    return log.find_first_since(timestamp) if timestamp >= 0 else None


def answer(call: Call, index: int, error: ErrorCode, location: TimestampAndOffset | None) -> Any:
    timestamp_ms, offset = location or (NO_TIMESTAMP, -1)
    return call.make(
        "ListOffsetsPartitionResponse",
        partition_index=index,
        error_code=kafka_error(error),
        timestamp=timestamp_ms,
        offset=offset,
        leader_epoch=LEADER_EPOCH if location else NO_EPOCH,
    )
