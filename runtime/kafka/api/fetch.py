"""Fetch (1): batches from the topics in memory, at once or when enough have come.

A request that finds too little waits in ``waiters`` of its partitions and with a timer, and is answered by whichever
comes first, once. There are no fetch sessions: every answer says so with session id 0, and clients then ask in full.
Who reads committed records only is given none from the first open transaction on, and the list of aborted ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ....actors.errors import CoordinatorError, ErrorCode
from ...log.format.batch import offsets_of, read_size
from ...topics.partition_log import PartitionLog
from ...topics.topic import TOPIC_DELETED
from ..call import Call
from ..codec.codes import NO_THROTTLE, kafka_error
from .list_offsets import NO_EPOCH, READ_COMMITTED, epoch_error

MAX_BYTES = 57_671_680  # Kafka's fetch.max.bytes: what one answer carries at most, whatever is asked
BY_ID_SINCE = 13
NO_SESSION = 0
FULL_FETCH_EPOCHS = (0, -1)  # open a session, or do without one
NO_OFFSET = -1


def handle(call: Call) -> None:
    if getattr(call.request, "session_epoch", -1) not in FULL_FETCH_EPOCHS:
        # An increment to a session: the client thinks of one that a server before us gave it.
        reply(call, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ())
    else:
        Fetch(call).start()


class Part(NamedTuple):
    """What there is to say about one partition of the request. ``log`` is None where it cannot be read."""

    partition: int
    error: ErrorCode
    log: PartitionLog | None = None
    records: bytes = b""
    offset: int = NO_OFFSET


class Room:
    """What one answer may still carry. As long as it is empty, a batch larger than the limits goes in (KIP-74)."""

    __slots__ = ("_is_empty", "_left_bytes", "_only_stable")

    def __init__(self, max_bytes: int, committed_only: bool) -> None:
        self._left_bytes = min(max(max_bytes, 0), MAX_BYTES)
        self._only_stable = committed_only
        self._is_empty = True

    def fill(self, log: PartitionLog, offset: int, max_bytes: int) -> bytes:
        """Read a partition. Raises CoordinatorError as ``PartitionLog.read`` does."""
        limit = min(max(max_bytes, 0), self._left_bytes)
        records = log.read(offset, limit, allow_oversized=self._is_empty, committed_only=self._only_stable)
        self._is_empty = self._is_empty and not records
        self._left_bytes -= len(records)
        return records


class Fetch:
    """One request, until it is answered."""

    __slots__ = ("_call", "_logs", "_missing_bytes", "_timer")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._logs: list[PartitionLog] = []
        self._missing_bytes = 0
        self._timer: Any = None

    def start(self) -> None:
        """Answer at once if there is enough, an error, nothing to wait for or no time to; else wait."""
        request = self._call.request
        topics = self.read()
        parts = [part for _, found in topics for part in found]
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
        self._timer = self._call.node.later(max_wait_ms, self.finish)

    def appended(self, size_bytes: int) -> None:
        """A partition took a batch of this size, or is gone."""
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0 and not self._is_undecided(size_bytes):
            self.finish()

    def _is_undecided(self, size_bytes: int) -> bool:
        """Whether what came does not count yet, for who reads committed records only: a transaction is open."""
        request = self._call.request
        if request.isolation_level != READ_COMMITTED or size_bytes == TOPIC_DELETED:
            return False
        found = sum(len(part.records) for _, parts in self.read() for part in parts)
        return found < int(request.min_bytes)

    def finish(self) -> None:
        """The wait is over. Nobody calls again: the timer and the waiters are let go first."""
        self._timer.cancel()
        for log in self._logs:
            log.waiters.discard(self.appended)
        self.answer(self.read())

    def read(self) -> list[tuple[Any, list[Part]]]:
        """Each topic of the request with its partitions, read up to the limits."""
        request = self._call.request
        room = Room(request.max_bytes, committed_only=request.isolation_level == READ_COMMITTED)
        return [(asked, self.read_topic(asked, room)) for asked in request.topics]

    def read_topic(self, asked: Any, room: Room) -> list[Part]:
        topics = self._call.node.topics
        by_id = self._call.version >= BY_ID_SINCE
        topic = topics.by_id(asked.topic_id) if by_id else topics.get(asked.topic)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id and not topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        parts = []
        for wanted in asked.partitions:
            log = topic.partition(wanted.partition) if topic else None
            parts.append(read_log(log, wanted, room) if log else Part(wanted.partition, unknown))
        return parts

    def answer(self, topics: list[tuple[Any, list[Part]]]) -> None:
        call = self._call
        responses = tuple(
            call.make(
                "FetchableTopicResponse",
                topic=getattr(asked, "topic", None),
                topic_id=getattr(asked, "topic_id", None),
                partitions=tuple(partition_data(call, part) for part in parts),
            )
            for asked, parts in topics
        )
        reply(call, ErrorCode.NONE, responses)


def read_log(log: PartitionLog, wanted: Any, room: Room) -> Part:
    error = epoch_error(getattr(wanted, "current_leader_epoch", NO_EPOCH))
    if error:
        return Part(wanted.partition, error)
    try:
        records = room.fill(log, wanted.fetch_offset, wanted.partition_max_bytes)
    except CoordinatorError as refusal:
        return Part(wanted.partition, refusal.code)
    return Part(wanted.partition, ErrorCode.NONE, log, records, wanted.fetch_offset)


def aborted_transactions(call: Call, part: Part) -> tuple[Any, ...] | None:
    """For who reads committed records only: which of those that he is given were aborted."""
    if call.request.isolation_level != READ_COMMITTED:
        return None
    if part.log is None or not part.records:
        return ()
    return tuple(
        call.make("AbortedTransaction", producer_id=one.producer_id, first_offset=one.first_offset)
        for one in part.log.transactions.find_aborted(part.offset, end_of(part.records))
    )


def end_of(records: bytes) -> int:
    """The offset behind the last of whole batches."""
    at = end = 0
    while at < len(records):
        end = offsets_of(memoryview(records)[at:])[1] + 1
        at += read_size(records, at) or len(records)
    return end


def partition_data(call: Call, part: Part) -> Any:
    end_offset = part.log.end_offset if part.log else NO_OFFSET
    return call.make(
        "PartitionData",
        partition_index=part.partition,
        error_code=kafka_error(part.error),
        high_watermark=end_offset,
        last_stable_offset=part.log.last_stable_offset if part.log else NO_OFFSET,
        log_start_offset=part.log.start_offset if part.log else NO_OFFSET,
        aborted_transactions=aborted_transactions(call, part),
        records=part.records,  # no bytes where there is nothing, never null: so does Kafka
    )


def reply(call: Call, error: ErrorCode, responses: tuple[Any, ...]) -> None:
    call.reply(
        call.make(
            "FetchResponse",
            throttle_time=NO_THROTTLE,
            error_code=kafka_error(error),
            session_id=NO_SESSION,
            responses=responses,
        )
    )
