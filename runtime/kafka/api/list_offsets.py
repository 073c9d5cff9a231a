"""ListOffsets (2): the start and end of a partition, or its first record at or after a timestamp.

Negative timestamps are constants, each from some version on: -1 the end, -2 the start, -3 the record with the highest
timestamp (v7, KIP-734), -4 the start of the local log (v8, KIP-405), -5 and -6 the last offset that is, or will be, in
remote storage (v9, v11). There is no remote storage, so the last two return no offset, as in Kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

from ....actors.errors import ErrorCode
from ....actors.steps import Steps, pieces
from ...topics.partition_log import PartitionLog, TimestampAndOffset
from ...topics.topic import NOT_LED, Topic
from ..authorization.authorize import authorize_in_steps
from ..authorization.checks import DESCRIBE_TOPIC
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


def handle(call: Call) -> Steps[None]:
    """Answer. As in Kafka, the denied topics follow the others."""
    names = (topic.name for topic in call.request.topics)
    verdicts = yield from authorize_in_steps(call, DESCRIBE_TOPIC, names)
    allowed = ((topic, answers(call, topic)) for topic in call.request.topics if verdicts.allows(topic.name))
    denied = (
        (topic, denials(call, topic, verdicts.code)) for topic in call.request.topics if not verdicts.allows(topic.name)
    )
    topics = (
        call.make("ListOffsetsTopicResponse", name=topic.name, partitions=partitions)
        for topic, partitions in chain(allowed, denied if verdicts.denied else ())
    )
    yield from call.respond_in_steps(call.make("ListOffsetsResponse", throttle_time=NO_THROTTLE, topics=topics))


def denials(call: Call, request: Any, error: ErrorCode) -> Iterator[Any]:
    return (answer(call, each.partition_index, error, None, NO_EPOCH) for each in request.partitions)


def answers(call: Call, request: Any) -> Iterator[Any]:
    """Yield a result for each partition. A partition that occurs twice in the request is refused, as in Kafka."""
    topic = call.services.topics.get(request.name)
    occurrences: Counter[int] = Counter()
    once: dict[int, Any] = {}
    for partitions in pieces(request.partitions):
        occurrences.update(partition.partition_index for partition in partitions)
        once.update((partition.partition_index, partition) for partition in partitions)
        yield None
    committed_only = getattr(call.request, "isolation_level", 0) == READ_COMMITTED
    for index, partition in once.items():
        log = topic.peek(index) if topic else None
        error = ErrorCode.INVALID_REQUEST if occurrences[index] > 1 else refusal(call, topic, log, partition)
        found = None if error or log is None else (yield from locate(log, partition.timestamp, committed_only))
        yield answer(call, index, error, found, topic.leader_epoch if topic else NO_EPOCH)


def refusal(call: Call, topic: Topic | None, log: PartitionLog | None, partition: Any) -> ErrorCode:
    if topic is None or log is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.timestamp < 0 and call.version < SINCE_VERSION.get(partition.timestamp, call.version + 1):
        return ErrorCode.UNSUPPORTED_VERSION
    return leader_error(call, topic, getattr(partition, "current_leader_epoch", NO_EPOCH))


def leader_error(call: Call, topic: Topic, epoch: int = NO_EPOCH) -> ErrorCode:
    """Check that this node leads the topic, and that the client's leader epoch (-1: none) is the current one (KIP-320).

    The lease is checked after the request was received, so the answer is as new as any that the client has seen.
    """
    current = topic.leader_epoch
    if current == NOT_LED or not call.services.cluster.has_lease():
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if epoch in (NO_EPOCH, current):
        return ErrorCode.NONE
    return ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > current else ErrorCode.FENCED_LEADER_EPOCH


def locate(log: PartitionLog, timestamp: int, committed_only: bool = False) -> Steps[TimestampAndOffset | None]:
    """Return the requested timestamp and offset, or None if there is no such record. Start and end have no timestamp.

    ``committed_only``: for isolation level read_committed, the log ends before the first open transaction.
    """
    end_offset = log.last_stable_offset if committed_only else log.end_offset
    location = yield from search(log, timestamp, end_offset)
    return location if location is None or location.offset <= end_offset else None


def search(log: PartitionLog, timestamp: int, end_offset: int) -> Steps[TimestampAndOffset | None]:
    if timestamp == LATEST:
        return TimestampAndOffset(NO_TIMESTAMP, end_offset)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return TimestampAndOffset(NO_TIMESTAMP, log.start_offset)
    if timestamp == NEWEST:
        return (yield from log.find_newest())
    return (yield from log.find_first_since(timestamp)) if timestamp >= 0 else None


def answer(call: Call, index: int, error: ErrorCode, location: TimestampAndOffset | None, leader_epoch: int) -> Any:
    timestamp_ms, offset = location or (NO_TIMESTAMP, -1)
    return call.make(
        "ListOffsetsPartitionResponse",
        partition_index=index,
        error_code=kafka_error(error),
        timestamp=timestamp_ms,
        offset=offset,
        leader_epoch=leader_epoch if location else NO_EPOCH,
    )
