"""Fetch (1): batches from the topics in memory, at once or when there are enough.

A request that finds too little is added to ``waiters`` of its partitions and starts a timer. It is answered once, by
whichever comes first. There are no fetch sessions: every response has session id 0, so clients send full requests.
With isolation level read_committed, a response ends at the first open transaction and lists the aborted ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.steps import Steps, pieces
from ...common.shared_bytes import SharedBytes
from ...log.format.batch import offsets_of
from ...topics.partition_log import NO_RECORDS, PartitionLog
from ...topics.topic import TOPIC_DELETED, Topic
from ..authorization.authorize import ALL_ALLOWED, authorize_in_steps
from ..authorization.checks import READ_TOPIC
from ..call import Call, release_later
from ..codec.codes import NO_THROTTLE, kafka_error
from ..codec.step_writer import write_in_steps
from .list_offsets import NO_EPOCH, READ_COMMITTED, leader_error

MAX_BYTES = 57_671_680  # Kafka's default of fetch.max.bytes: the limit of a response, whatever is requested
FREE_PART = 2  # a response takes at most this part of the bytes that unsent responses may still have
TOPIC_ID_FROM = 13
NO_SESSION = 0
FULL_FETCH_EPOCHS = (0, -1)  # open a session, or use none
NO_OFFSET = -1
READS_PER_STEP = 16  # each takes about 5 us

CLIENT_CHECK_MS = 1_000
"""How often a request that waits for long checks whether its client is still connected."""

UNCOUNTED_PARTITIONS = 64
"""A waiting request for so many partitions is not worth counting."""

PARTITION_BYTES = 650
"""A partition of a waiting request, in the request and in what was made from it."""


def handle(call: Call) -> Steps[None] | None:
    if getattr(call.request, "session_epoch", -1) not in FULL_FETCH_EPOCHS:
        # An incremental fetch, for a session that an earlier server may have created.
        call.encode_and_respond(lambda: write_in_steps(response(call, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ())))
        return None
    return Fetch(call).start()


NOT_READ = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""The errors of partitions that were not read."""


class PartitionRead(NamedTuple):
    """The result for one partition of the request. ``log`` is None if it cannot be read."""

    topic: Any  # of the request
    partition: int
    error: ErrorCode
    log: PartitionLog | None = None
    records: SharedBytes = NO_RECORDS
    offset: int = NO_OFFSET
    end_offset: int = NO_OFFSET


class Reads(NamedTuple):
    """The results for all partitions of the request. ``size_bytes``: of all records."""

    parts: list[PartitionRead]
    size_bytes: int
    has_error: bool


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

    __slots__ = (
        *("_appends", "_call", "_is_checking", "_is_finished", "_logs", "_missing_bytes", "_requested", "_timer"),
        "_verdicts",
    )

    def __init__(self, call: Call) -> None:
        self._call = call
        self._verdicts = ALL_ALLOWED
        self._requested: dict[tuple[Any, int], tuple[Any, Any]] = {}
        self._logs: list[PartitionLog] = []
        self._missing_bytes = 0
        self._timer: Any = None
        self._appends = 0  # to the partitions, while the request waits
        self._is_checking = False
        self._is_finished = False

    def start(self) -> Steps[None]:
        """Answer at once if there are enough bytes, an error, no partitions or no time to wait; else wait."""
        request = self._call.request
        yield from self._collect()
        self._verdicts = yield from authorize_in_steps(self._call, READ_TOPIC, self._topic_names())
        reads = yield from self.read()
        self._missing_bytes = request.min_bytes - reads.size_bytes
        max_wait_ms = round(request.max_wait.total_seconds() * 1000)
        if self._missing_bytes <= 0 or max_wait_ms <= 0 or not reads.parts or reads.has_error:
            yield from self._call.respond_in_steps(self._response(reads.parts))
        else:
            yield from self._wait(reads.parts, max_wait_ms)
        release_later(self._call, reads.parts, self._requested if self._timer is None else ())

    def _collect(self) -> Steps[None]:
        """Collect the requested partitions. If one occurs more than once, the last entry counts, as in Kafka."""
        has_ids = self._call.version >= TOPIC_ID_FROM
        for topic in self._call.request.topics:
            key = topic.topic_id if has_ids else topic.topic
            for partitions in pieces(topic.partitions):
                self._requested.update(((key, each.partition), (topic, each)) for each in partitions)
                yield

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

    def _wait(self, parts: list[PartitionRead], max_wait_ms: int) -> Steps[None]:
        """Wait for appends. Those between the read and here count too."""
        has_new_records = False
        waiter = self.appended
        for piece in pieces(parts):
            for part in piece:
                assert part.log is not None, "a request with an error does not wait"
                part.log.waiters.add(waiter)
                self._logs.append(part.log)
                has_new_records = has_new_records or part.log.end_offset != part.end_offset
            yield
        self._set_timer(max_wait_ms)
        count = sum(len(topic.partitions) for topic in self._call.request.topics)
        if count > UNCOUNTED_PARTITIONS:
            self._call.services.buffers.fetches.set(self, count * PARTITION_BYTES)
        if has_new_records:
            self.finish()

    def _set_timer(self, left_ms: int) -> None:
        delay_ms = min(left_ms, CLIENT_CHECK_MS)
        self._timer = self._call.services.later(delay_ms, partial(self._check, left_ms - delay_ms))

    def _check(self, left_ms: int) -> None:
        """Answer when the time is over. If the client has disconnected, end early: a request may wait for weeks."""
        if left_ms and self._call.connection.is_open:
            self._set_timer(left_ms)
        else:
            self.finish()

    def appended(self, size_bytes: int) -> None:
        """Called when a batch of this size was appended to a partition, or the partition was deleted."""
        self._missing_bytes -= size_bytes
        self._appends += 1
        if self._missing_bytes > 0 or self._timer is None:
            return
        if self._call.request.isolation_level == READ_COMMITTED and size_bytes != TOPIC_DELETED:
            if not self._is_checking:
                self._is_checking = True
                self._call.services.slices.run(CommittedCheck(self))
        else:
            self.finish()

    @property
    def is_waiting(self) -> bool:
        return not self._is_finished and self._call.connection.is_open

    def has_enough_committed(self) -> Steps[bool]:
        """Whether enough of the records are committed, for isolation level read_committed."""
        checked_appends = -1
        while checked_appends != self._appends:
            checked_appends = self._appends
            reads = yield from self.read()
            release_later(self._call, reads.parts)
            if reads.size_bytes >= int(self._call.request.min_bytes):
                return True
        return False

    def end_check(self, has_enough: bool) -> None:
        self._is_checking = False
        if has_enough:
            self.finish()

    def finish(self) -> None:
        """Answer, once, also if there is too little. The timer and the waiters are removed first."""
        if self._is_finished:
            return
        self._is_finished = True
        self._timer.cancel()
        self._call.services.buffers.fetches.set(self, 0)
        waiter = self.appended
        for log in self._logs:
            log.waiters.discard(waiter)
        if self._call.connection.is_open:
            self._call.encode_and_respond(self._read_and_encode)
        else:
            self._call.respond_with_nothing()
            release_later(self._call, self._requested)

    def _read_and_encode(self) -> Steps[bytes | SharedBytes]:
        reads = yield from self.read()
        body = yield from write_in_steps(self._response(reads.parts))
        release_later(self._call, reads.parts, self._requested)
        return body

    def read(self) -> Steps[Reads]:
        """Read the requested partitions, up to the limits."""
        request = self._call.request
        free_bytes = self._call.services.buffers.unsent.free_bytes
        budget = FetchBudget(request.max_bytes, free_bytes, committed_only=request.isolation_level == READ_COMMITTED)
        parts: list[PartitionRead] = []
        size_bytes, has_error = 0, False
        for piece in pieces(list(self._requested.values()), READS_PER_STEP):
            read = [self._read_partition(topic, partition, budget) for topic, partition in piece]
            parts += read
            size_bytes += sum(len(part.records) for part in read)
            has_error = has_error or any(part.error for part in read)
            yield
        return Reads(parts, size_bytes, has_error)

    def _read_partition(self, request: Any, partition: Any, budget: FetchBudget) -> PartitionRead:
        topic = self._find(request)
        error = self._verdicts.error_of(topic.name if topic else getattr(request, "topic", ""))
        if not error:
            log = topic.partition(partition.partition) if topic else None
            if topic is not None and log is not None:
                error = leader_error(self._call, topic, getattr(partition, "current_leader_epoch", NO_EPOCH))
                return (
                    PartitionRead(request, partition.partition, error)
                    if error
                    else read_log(log, request, partition, budget)
                )
            by_id = self._call.version >= TOPIC_ID_FROM
            error = ErrorCode.UNKNOWN_TOPIC_ID if by_id and not topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return PartitionRead(request, partition.partition, error)

    def _response(self, parts: list[PartitionRead]) -> Any:
        """The response. As in Kafka, adjacent partitions of the same topic share an entry."""
        call = self._call
        responses = (
            call.make(
                "FetchableTopicResponse",
                topic=getattr(topic, "topic", None),
                topic_id=getattr(topic, "topic_id", None),
                partitions=(partition_data(call, part) for part in group),
            )
            for topic, group in groupby(parts, key=attrgetter("topic"))
        )
        return response(call, ErrorCode.NONE, responses)


class CommittedCheck:
    """Reads a waiting request's partitions after an append. Implements ``slices.Job``."""

    __slots__ = ("_fetch", "steps")

    is_answer = False

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self.steps = fetch.has_enough_committed()

    @property
    def is_wanted(self) -> bool:
        return self._fetch.is_waiting

    def finish(self, result: bool) -> None:
        self._fetch.end_check(result)

    def fail(self, error: Exception) -> None:
        """A bug: the answer reports it."""
        self._fetch.end_check(True)

    def drop(self) -> None:
        """The request was answered, or its client is gone."""


def read_log(log: PartitionLog, topic: Any, request: Any, budget: FetchBudget) -> PartitionRead:
    try:
        records = budget.fill(log, request.fetch_offset, request.partition_max_bytes)
    except CoordinatorError as refusal:
        return PartitionRead(topic, request.partition, refusal.code)
    return PartitionRead(topic, request.partition, ErrorCode.NONE, log, records, request.fetch_offset, log.end_offset)


def aborted_transactions(call: Call, part: PartitionRead) -> Iterable[Any] | None:
    """Return the aborted transactions in the returned records, for isolation level read_committed; else None.

    As in Kafka, a partition that was not read has none, at any isolation level.
    """
    if part.error in NOT_READ:
        return ()
    if call.request.isolation_level != READ_COMMITTED:
        return None
    if part.log is None or not part.records:
        return ()
    found = part.log.transactions.find_aborted(part.offset, end_offset_of(part.records))
    return (
        each and call.make("AbortedTransaction", producer_id=each.producer_id, first_offset=each.first_offset)
        for each in found
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


def response(call: Call, error: ErrorCode, responses: Iterable[Any]) -> Any:
    return call.make(
        "FetchResponse",
        throttle_time=NO_THROTTLE,
        error_code=kafka_error(error),
        session_id=NO_SESSION,
        responses=responses,
    )
