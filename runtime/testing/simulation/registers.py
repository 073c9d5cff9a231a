"""Checks that committed offsets are linearizable registers: no acknowledged commit is lost, no read is stale.

For each (group, topic, partition) the commits and fetches of a run must be linearizable: there is an order of all of
them in which each takes effect between its arrival and its answer, and each fetch returns the commit before it. This
also holds across crashes and power losses. A commit with an unknown outcome may take effect at any time after its
arrival, or never. If all commits have different values, the check is short (Gibbons and Korach, "Testing Shared
Memories", SIAM J. Comput. 26(4), 1997): a commit and the fetches that found it form a zone, from the first answer among
them to the last arrival. Forward zones must not overlap, and no backward zone may lie within a forward one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

from ....actors.errors import ErrorCode
from ....actors.group.offsets import GroupData
from ....actors.group.reset_messages import ResetOffsets
from ....actors.messages import (
    Committed,
    DeleteGroup,
    Fetched,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetsDeleted,
    TxnOffsetCommit,
)
from ....actors.transactions.messages import EndTransaction
from .history import Exchange, Listener

Register = tuple[str, str, int]
Value = tuple[int, str] | None
"""Offset and metadata; None where nothing is committed."""

REFUSED = frozenset(
    {
        *(ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID),
        *(ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        *(ErrorCode.INVALID_GROUP_ID, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        *(ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
        *(ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE),
        *(ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNSTABLE_OFFSET_COMMIT),
        *(ErrorCode.PRODUCER_FENCED, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.CONCURRENT_TRANSACTIONS),
    }
)
"""Errors after which a commit has certainly not happened. After any other error its outcome is unknown."""


class Write:
    """A commit to one register. ``done_at``: infinity while its outcome is unknown."""

    __slots__ = ("done_at", "is_refused", "last_at", "text", "time_s", "value", "written_at")

    def __init__(self, value: Value, written_at: float, text: str, time_s: float = 0.0) -> None:
        self.value = value
        self.written_at = written_at
        self.time_s = time_s
        self.done_at = inf
        self.last_at: float | None = None  # for a write without an answer, which must not undo later writes
        self.is_refused = False
        self.text = text


class Read(NamedTuple):
    value: Value
    asked_at: float
    answered_at: float
    text: str
    time_s: float


class Zone(NamedTuple):
    """The period of a value: from the first answer that shows it to the last request that read it."""

    value: Value
    first: float
    last: float


Producer = tuple[str, int, int]


class RegisterChecker(Listener):
    """Collects commits and fetches; ``find_violation`` judges them when the run is over.

    ``retention_s``: the shortest age at which an offset may expire.
    """

    def __init__(self) -> None:
        self.retention_s = inf
        self._initial_values: dict[Register, Value] = {}  # all registers with a commit, and their initial values
        self._writes: dict[Register, list[Write]] = defaultdict(list)
        self._reads: dict[Register, list[Read]] = defaultdict(list)
        self._writes_of_exchange: dict[Exchange, list[Write]] = {}
        self._open_transactions: dict[Producer, list[Write]] = defaultdict(
            list
        )  # acknowledged writes of open transactions
        self._ending_transactions: dict[Exchange, list[Write]] = {}

    # Listener --------------------------------------------------------------------------------------------------------

    def arrived(self, exchange: Exchange) -> None:
        message = exchange.message
        if isinstance(message, OffsetCommit | TxnOffsetCommit):
            self._writes_of_exchange[exchange] = [
                self._write(
                    (message.group_id, commit.topic, commit.partition),
                    (commit.offset, commit.metadata) if commit.offset >= 0 else None,
                    exchange,
                )
                for commit in message.commits
            ]
        elif isinstance(message, OffsetDelete):
            registers = [(message.group_id, topic, number) for topic, numbers in message.topics for number in numbers]
            self._writes_of_exchange[exchange] = [self._write(register, None, exchange) for register in registers]
        elif isinstance(message, ResetOffsets):
            self._writes_of_exchange[exchange] = [
                self._write((message.group_id, topic, partition), None if offset is None else (offset, ""), exchange)
                for topic, partition, offset in message.offsets
            ]
        elif isinstance(message, DeleteGroup):
            registers = [register for register in self._writes if register[0] == message.group_id]
            self._writes_of_exchange[exchange] = [self._write(register, None, exchange) for register in registers]
        elif isinstance(message, EndTransaction):
            self._ending_transactions[exchange] = self._open_transactions.pop(_producer(message), [])

    def _write(self, register: Register, value: Value, exchange: Exchange) -> Write:
        now_s = exchange.arrived_s or 0.0
        write = Write(value, exchange.arrived_at, f"{exchange.client} #{exchange.number}", now_s)
        self._writes[register].append(write)
        self._initial_values.setdefault(register)
        return write

    def answered(self, exchange: Exchange) -> None:
        message = exchange.message
        if isinstance(message, OffsetFetch):
            self._fetched(exchange, exchange.answer)
        elif isinstance(message, OffsetCommit):
            self._committed(exchange, exchange.answer)
        elif isinstance(message, TxnOffsetCommit):
            self._committed_in_transaction(exchange, exchange.answer)
        elif isinstance(message, EndTransaction):
            self._ended(exchange, message)
        elif isinstance(message, OffsetDelete):
            self._deleted(exchange, message, exchange.answer)
        elif isinstance(message, ResetOffsets):
            self._settle_all(exchange, exchange.answer.error)
        elif isinstance(message, DeleteGroup):
            self._settle_all(exchange, exchange.answer)

    def _deleted(self, exchange: Exchange, message: OffsetDelete, answer: OffsetsDeleted) -> None:
        if answer.error is not ErrorCode.NONE:
            self._settle_all(exchange, answer.error)
            return
        writes = iter(self._writes_of_exchange.pop(exchange))
        for (_, numbers), error in zip(message.topics, answer.topics, strict=True):
            for _ in numbers:
                _settle(next(writes), error, exchange.answered_at)

    def _settle_all(self, exchange: Exchange, error: ErrorCode) -> None:
        for write in self._writes_of_exchange.pop(exchange):
            _settle(write, error, exchange.answered_at)

    def _fetched(self, exchange: Exchange, answer: Fetched) -> None:
        for topic, partitions in answer.topics if answer.error is ErrorCode.NONE else ():
            for partition in partitions:
                if partition.error is ErrorCode.NONE:
                    value = (partition.offset, partition.metadata) if partition.offset >= 0 else None
                    text = f"{exchange.client} #{exchange.number}"
                    read = Read(value, exchange.arrived_at, exchange.answered_at, text, exchange.answered_s or 0.0)
                    self._reads[exchange.message.group_id, topic, partition.partition].append(read)

    def topic_deleted(self, topic: str, event: int) -> None:
        """The offsets of a topic are deleted soon. Offsets committed from now on stay."""
        for register in [candidate for candidate in self._writes if candidate[1] == topic]:
            write = Write(None, event, "a deleted topic")
            write.last_at = event
            self._writes[register].append(write)

    def reset(self, groups: Mapping[str, GroupData]) -> str | None:
        """Restart from ``groups`` after a permitted loss. Returns the violation before it, or None."""
        violation = self.find_violation()
        held_values = {
            (group_id, topic, partition): (value.offset, value.metadata)
            for group_id, data in groups.items()
            for topic, partition, value in data.offsets
        }
        self._initial_values = {register: held_values.get(register) for register in self._initial_values}
        for table in (
            self._writes,
            self._reads,
            self._writes_of_exchange,
            self._open_transactions,
            self._ending_transactions,
        ):
            table.clear()
        return violation

    def _committed(self, exchange: Exchange, answer: Committed) -> None:
        for write, error in zip(self._writes_of_exchange.pop(exchange), answer.errors, strict=True):
            _settle(write, error, exchange.answered_at)

    def _committed_in_transaction(self, exchange: Exchange, answer: Committed) -> None:
        message: TxnOffsetCommit = exchange.message
        for write, error in zip(self._writes_of_exchange.pop(exchange), answer.errors, strict=True):
            write.is_refused = error in REFUSED
            if error is ErrorCode.NONE:
                self._open_transactions[message.transactional_id, message.producer_id, message.producer_epoch].append(
                    write
                )

    def _ended(self, exchange: Exchange, message: EndTransaction) -> None:
        """Only commits acknowledged before the end was requested certainly belong to the transaction."""
        writes = self._ending_transactions.pop(exchange)
        for write in writes if exchange.answer.error is ErrorCode.NONE else ():
            if message.committed:
                write.done_at = exchange.answered_at
            else:
                write.is_refused = True

    # Checks ----------------------------------------------------------------------------------------------------------

    def find_violation(self) -> str | None:
        """A description of the first violation; None if there is none."""
        return next((violation for register in self._reads for violation in self._violations_in(register)), None)

    def _violations_in(self, register: Register) -> Iterator[str]:
        reads: dict[Value, list[Read]] = defaultdict(list)
        for read in self._reads[register]:
            reads[read.value].append(read)
        writes: dict[Value, list[Write]] = defaultdict(list)
        first = _initial_write(self._initial_values.get(register))
        writes[first.value].append(first)
        for write in self._writes[register]:
            writes[write.value].append(write)
        yield from (f"{name_of(register)}: {text}" for text in _never_written(reads, writes))
        yield from (f"{name_of(register)}: {text}" for text in _overwritten(reads, writes, self.retention_s))
        yield from (f"{name_of(register)}: {text}" for text in _reappeared(reads, writes))
        written_values = [
            value for value in writes if value is not None or self.retention_s == inf
        ]  # deletions by retention are no writes
        zones = [zone for value in written_values if (zone := _zone(value, writes[value], reads[value]))]
        yield from (f"{name_of(register)}: {text}" for text in _contradictions(zones, writes, reads))

    def written_offsets(self) -> dict[str, tuple[tuple[str, tuple[int, ...]], ...]]:
        """All partitions with commits, by group, as arguments of a fetch."""
        partitions_by_group: dict[str, dict[str, list[int]]] = {}
        for group_id, topic, number in self._initial_values:
            partitions_by_group.setdefault(group_id, {}).setdefault(topic, []).append(number)
        return {
            group_id: tuple((topic, tuple(numbers)) for topic, numbers in topics.items())
            for group_id, topics in partitions_by_group.items()
        }


def _never_written(reads: dict[Value, list[Read]], writes: dict[Value, list[Write]]) -> Iterator[str]:
    for value, value_reads in reads.items():
        possible = [write for write in writes.get(value, ()) if not write.is_refused]
        first = min((write.written_at for write in possible), default=inf)
        for read in value_reads:
            if read.answered_at < first:
                refused = ", ".join(write.text for write in writes.get(value, ()) if write.is_refused)
                why = f"its commit was refused or taken back ({refused})" if refused else "no client had committed it"
                yield f"{read.text} found {value}, but {why}"


def _overwritten(reads: dict[Value, list[Read]], writes: dict[Value, list[Write]], retention_s: float) -> Iterator[str]:
    """Fetches that found a value although another was certainly committed after it and before the fetch.

    The zones imply this for values that were committed once; this check covers all. Old offsets may have expired.
    """
    certain = [write for value_writes in writes.values() for write in value_writes if write.done_at < inf]
    for value, value_reads in reads.items():
        last = max((_last_at(write) for write in writes.get(value, ()) if not write.is_refused), default=inf)
        later = [write for write in certain if write.written_at > last and write.value != value]
        for read in value_reads if later else ():
            youngest_s = read.time_s - retention_s if value is None else -inf
            overwriting = next(
                (
                    later_write
                    for later_write in later
                    if read.asked_at > later_write.done_at and later_write.time_s > youngest_s
                ),
                None,
            )
            if overwriting is not None:
                yield f"{read.text} found {value}, but {overwriting.text} had committed {overwriting.value} after it"


def _reappeared(reads: dict[Value, list[Read]], writes: dict[Value, list[Write]]) -> Iterator[str]:
    """Fetches that found a value again after a fetch had found none, if it was committed only once."""
    empty_reads = reads.get(None, ())
    for value, value_reads in reads.items() if empty_reads else ():
        possible = [write for write in writes.get(value, ()) if not write.is_refused]
        if value is None or len(possible) != 1:
            continue
        first = min(possible[0].done_at, min(read.answered_at for read in value_reads))
        first_empty_read = min(
            (read for read in empty_reads if read.asked_at > first), key=lambda read: read.answered_at, default=None
        )
        for read in value_reads:
            if first_empty_read is not None and read.asked_at > first_empty_read.answered_at:
                yield f"{read.text} found {value} again, but {first_empty_read.text} had found nothing there"


def _last_at(write: Write) -> float:
    return write.done_at if write.last_at is None else write.last_at


def _settle(write: Write, error: ErrorCode, answered_at: float) -> None:
    if error is ErrorCode.NONE:
        write.done_at = answered_at
    write.is_refused = error in REFUSED


def _zone(value: Value, writes: list[Write], reads: list[Read]) -> Zone | None:
    """The zone of a value, if it was written once and has certainly taken effect; else None."""
    possible = [write for write in writes if not write.is_refused]
    if len(possible) != 1 or (possible[0].done_at == inf and not reads):
        return None
    [write] = possible
    first = min(write.done_at, *(read.answered_at for read in reads), inf)
    return Zone(value, first, max(write.written_at, *(read.asked_at for read in reads), -inf))


def _contradictions(
    zones: list[Zone], writes: dict[Value, list[Write]], reads: dict[Value, list[Read]]
) -> Iterator[str]:
    forward = sorted((zone for zone in zones if zone.first < zone.last), key=lambda zone: zone.first)
    backward = [zone for zone in zones if zone.first >= zone.last]
    for earlier, later in pairwise(forward):
        if later.first < earlier.last:
            yield _describe_contradiction(earlier, later, writes, reads)
    for zone in forward:
        for within in backward:
            if zone.first < within.last and within.first < zone.last:
                yield _describe_contradiction(zone, within, writes, reads)


def _describe_contradiction(
    first: Zone, second: Zone, writes: dict[Value, list[Write]], reads: dict[Value, list[Read]]
) -> str:
    writers = ", ".join(write.text for write in writes[second.value])
    readers = ", ".join(read.text for read in reads[first.value] if read.asked_at == first.last) or "its commit"
    return (
        f"{first.value} was there at event {first.first:g} and again at event {first.last:g} ({readers}), but "
        f"{second.value}, committed by {writers}, was there in between: "
        f"an acknowledged commit is lost, or a fetch went back in time"
    )


def _initial_write(value: Value) -> Write:
    write = Write(value, -1, "the beginning")
    write.done_at = 0
    return write


def _producer(message: Any) -> Producer:
    return message.transactional_id, message.producer_id, message.producer_epoch


def name_of(register: Register) -> str:
    group_id, topic, partition = register
    return f"group {group_id!r}, {topic}-{partition}"
