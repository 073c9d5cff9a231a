"""Fetch (1): batches from the topics in memory, at once or when there are enough.

A request that finds too little is added to ``waiters`` of its partitions and starts a timer. It is answered once, by
whichever comes first. There are no fetch sessions: every response has session id 0, so clients send full requests.
With isolation level read_committed, a response ends at the first open transaction and lists the aborted ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ....actors.errors import CoordinatorError, ErrorCode
from ...common.shared_bytes import SharedBytes
from ...log.format.batch import offsets_of
from ...topics.partition_log import NO_RECORDS, PartitionLog
from ...topics.topic import TOPIC_DELETED, Topic
from ..authorize import authorize
from ..call import Call
from ..checks import READ_TOPIC
from ..codec.codes import NO_THROTTLE, kafka_error
from .list_offsets import NO_EPOCH, READ_COMMITTED, epoch_error

MAX_BYTES = 57_671_680  # Kafka's default of fetch.max.bytes: the limit of a response, whatever is requested
FREE_PART = 2  # a response takes at most this part of the bytes that unsent responses may still have
TOPIC_ID_FROM = 13
NO_SESSION = 0
FULL_FETCH_EPOCHS = (0, -1)  # open a session, or use none
NO_OFFSET = -1


def handle(call: Call) -> None:
    if getattr(call.request, "session_epoch", -1) not in FULL_FETCH_EPOCHS:
        # An incremental fetch, for a session that an earlier server may have created.
        respond(call, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ())
    else:
        Fetch(call).start()


class PartitionRead(NamedTuple):
    """The result for one partition of the request. ``log`` is None if it cannot be read."""

    partition: int
    error: ErrorCode
    log: PartitionLog | None = None
    records: SharedBytes = NO_RECORDS
    offset: int = NO_OFFSET


class FetchBudget:
    """The bytes that may still be added to a response. The first batch may exceed the limits (KIP-74).

    ``free_bytes``: how many bytes unsent responses may still have. While clients read slowly, responses are small.
    """

    __slots__ = ("_is_empty", "_left_bytes", "_only_stable")

    def __init__(self, max_bytes: int, free_bytes: int, committed_only: bool) -> None:
        self._left_bytes = min(max(max_bytes, 0), MAX_BYTES, free_bytes // FREE_PART)
        self._only_stable = committed_only
        self._is_empty = True

    def fill(self, log: PartitionLog, offset: int, max_bytes: int) -> SharedBytes:
        """Read a partition. Raises CoordinatorError as ``PartitionLog.read`` does."""
        limit = min(max(max_bytes, 0), self._left_bytes)
        records = log.read(offset, limit, allow_oversized=self._is_empty, committed_only=self._only_stable)
        self._is_empty = self._is_empty and not records
        self._left_bytes -= len(records)
        return records


class Fetch:
    """A request until it is answered."""

    __slots__ = ("_call", "_logs", "_missing_bytes", "_timer", "_verdicts")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._logs: list[PartitionLog] = []
        self._missing_bytes = 0
        self._timer: Any = None
        self._verdicts = authorize(call, READ_TOPIC, self._topic_names())

    def _topic_names(self) -> Iterator[str]:
        """Yield the names of the requested topics, except those with an unknown id."""
        for request in self._call.request.topics:
            topic = self._find(request)
            if topic is not None:
                yield topic.name
            elif self._call.version < TOPIC_ID_FROM:
                yield request.topic

    def _find(self, request: Any) -> Topic | None:
        topics = self._call.services.topics
        return topics.by_id(request.topic_id) if self._call.version >= TOPIC_ID_FROM else topics.get(request.topic)

    def start(self) -> None:
        """Answer at once if there are enough bytes, an error, no partitions or no time to wait; else wait."""
        request = self._call.request
        topics = self.read()
        parts = [part for _, results in topics for part in results]
        self._missing_bytes = request.min_bytes - sum(len(part.records) for part in parts)
        max_wait_ms = round(request.max_wait.total_seconds() * 1000)
        if self._missing_bytes <= 0 or max_wait_ms <= 0 or not parts or any(part.error for part in parts):
            self.answer(topics)
        else:
            self.wait([part.log for part in parts if part.log], max_wait_ms)

    def wait(self, logs: list[PartitionLog], max_wait_ms: int) -> None:
        self._logs = logs
        for log in logs:
            log.waiters.add(self.appended)
        self._timer = self._call.services.later(max_wait_ms, self.finish)

    def appended(self, size_bytes: int) -> None:
        """Called when a batch of this size was appended to a partition, or the partition was deleted."""
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0 and not self._is_uncommitted(size_bytes):
            self.finish()

    def _is_uncommitted(self, size_bytes: int) -> bool:
        """Whether too few of the records are committed, for isolation level read_committed."""
        request = self._call.request
        if request.isolation_level != READ_COMMITTED or size_bytes == TOPIC_DELETED:
            return False
        readable_bytes = sum(len(part.records) for _, parts in self.read() for part in parts)
        return readable_bytes < int(request.min_bytes)

    def finish(self) -> None:
        """Answer. The timer and the waiters are removed first, so that this is not called twice."""
        self._timer.cancel()
        for log in self._logs:
            log.waiters.discard(self.appended)
        self.answer(self.read())

    def read(self) -> list[tuple[Any, list[PartitionRead]]]:
        """Read the partitions of each topic of the request, up to the limits."""
        request = self._call.request
        free_bytes = self._call.services.buffers.unsent.free_bytes
        budget = FetchBudget(request.max_bytes, free_bytes, committed_only=request.isolation_level == READ_COMMITTED)
        return [(topic, self.read_topic(topic, budget)) for topic in request.topics]

    def read_topic(self, request: Any, budget: FetchBudget) -> list[PartitionRead]:
        topic = self._find(request)
        denial = self._verdicts.error_of(topic.name if topic else getattr(request, "topic", ""))
        if denial:
            return [PartitionRead(partition.partition, denial) for partition in request.partitions]
        by_id = self._call.version >= TOPIC_ID_FROM
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id and not topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        parts = []
        for partition in request.partitions:
            log = topic.partition(partition.partition) if topic else None
            parts.append(read_log(log, partition, budget) if log else PartitionRead(partition.partition, unknown))
        return parts

    def answer(self, topics: list[tuple[Any, list[PartitionRead]]]) -> None:
        call = self._call
        responses = tuple(
            call.make(
                "FetchableTopicResponse",
                topic=getattr(topic, "topic", None),
                topic_id=getattr(topic, "topic_id", None),
                partitions=tuple(partition_data(call, part) for part in parts),
            )
            for topic, parts in topics
        )
        respond(call, ErrorCode.NONE, responses)


def read_log(log: PartitionLog, request: Any, budget: FetchBudget) -> PartitionRead:
    error = epoch_error(getattr(request, "current_leader_epoch", NO_EPOCH))
    if error:
        return PartitionRead(request.partition, error)
    try:
        records = budget.fill(log, request.fetch_offset, request.partition_max_bytes)
    except CoordinatorError as refusal:
        return PartitionRead(request.partition, refusal.code)
    return PartitionRead(request.partition, ErrorCode.NONE, log, records, request.fetch_offset)


def aborted_transactions(call: Call, part: PartitionRead) -> tuple[Any, ...] | None:
    """Return the aborted transactions in the returned records, for isolation level read_committed; else None."""
    if call.request.isolation_level != READ_COMMITTED:
        return None
    if part.log is None or not part.records:
        return ()
    return tuple(
        call.make("AbortedTransaction", producer_id=find_aborted.producer_id, first_offset=find_aborted.first_offset)
        for find_aborted in part.log.transactions.find_aborted(part.offset, end_offset_of(part.records))
    )


def end_offset_of(records: SharedBytes) -> int:
    """Return the offset after the last of complete batches."""
    return offsets_of(memoryview(records.parts[-1]))[1] + 1


def partition_data(call: Call, part: PartitionRead) -> Any:
    end_offset = part.log.end_offset if part.log else NO_OFFSET
    return call.make(
        "PartitionData",
        partition_index=part.partition,
        error_code=kafka_error(part.error),
        high_watermark=end_offset,
        last_stable_offset=part.log.last_stable_offset if part.log else NO_OFFSET,
        log_start_offset=part.log.start_offset if part.log else NO_OFFSET,
        aborted_transactions=aborted_transactions(call, part),
        records=part.records,  # as in Kafka, empty if there are none, never null
    )


def respond(call: Call, error: ErrorCode, responses: tuple[Any, ...]) -> None:
    response = call.make(
        "FetchResponse",
        throttle_time=NO_THROTTLE,
        error_code=kafka_error(error),
        session_id=NO_SESSION,
        responses=responses,
    )
    call.respond_with_bytes(call.schema.write_shared(response))
