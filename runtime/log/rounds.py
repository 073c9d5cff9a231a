"""A round: the entries of one ``append``, as one batch per partition and one journal frame.

Encoding happens on the caller's thread. It prepares everything, so that the log writes a round in few steps: if that
runs in the log's thread, it competes with the event loop for the GIL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ...actors.errors import ErrorCode
from ...actors.new_tuple import new_tuple
from ...actors.ports import Appended, Entry, are_long
from ...actors.records import MarkerRecord, OffsetRecord, PendingOffsetRecord, Record, item_count
from ...actors.steps import Steps, pieces, run_steps
from ..common.logs import get_logger
from .format.batch import HEADER_BYTES, LOG_OFFSET_MAX, Producer, encode_batch
from .format.encoder import RecordEncoder
from .format.errors import NeedsOwnBatch, UnwritableRecord
from .journal_frames import encode_frame

DoneCallback = Callable[[Sequence[Appended]], None]

log = get_logger("callboard.log")

_NONE = ErrorCode.NONE
_TOO_LARGE = Appended(ErrorCode.MESSAGE_TOO_LARGE, -1)
_UNWRITABLE = Appended(ErrorCode.UNKNOWN_SERVER_ERROR, -1)


class Round(NamedTuple):
    """``batches`` are (partition, bytes) pairs; ``done`` is called with ``outcomes`` when they are durable.

    ``ends``: the end offsets after this round, by partition. ``reset``: the number of the ``writer.OffsetReset`` that
    its offsets are based on.
    """

    frame: bytes
    batches: list[tuple[int, bytes]]
    outcomes: list[Appended]
    done: DoneCallback
    ends: dict[int, int]
    reset: int


def failed_outcomes(outcomes: Sequence[Appended], error: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> list[Appended]:
    """The outcomes of a round that could not be stored; an entry that was refused before keeps its own error."""
    refused = Appended(error, -1)
    return [refused if outcome.error is ErrorCode.NONE else outcome for outcome in outcomes]


class _OpenBatch:
    """A batch to which entries can be added. ``entries``: the indices, in the round, of the entries in it."""

    __slots__ = ("base_offset", "entries", "records", "size")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.entries: list[int] = []
        self.records: list[bytes] = []
        self.size = HEADER_BYTES


class _FramedRound:
    """The framed records of a round, by partition, and the outcomes of its entries if all of them can be stored."""

    __slots__ = ("_durability", "_end_offsets", "by_partition", "outcomes")

    def __init__(self, end_offsets: list[int], durability: str) -> None:
        self._end_offsets = end_offsets
        self._durability = durability
        self.by_partition: dict[int, list[bytes]] = {}
        self.outcomes: list[Appended] = []

    def add(self, entries: Sequence[Entry], frame: Callable[[Record, int], bytes]) -> None:
        """Raises what ``frame`` raises for a record that cannot be written, or not in this batch."""
        by_partition, end_offsets, durability = self.by_partition, self._end_offsets, self._durability
        for partition, records in entries:
            framed = by_partition.get(partition)
            if framed is None:
                framed = by_partition[partition] = []
            self.outcomes.append(new_tuple(Appended, (_NONE, end_offsets[partition] + len(framed), durability)))
            for record in records:
                framed.append(frame(record, len(framed)))

    def add_in_steps(self, entries: Sequence[Entry], encoder: RecordEncoder) -> Steps[None]:
        """Short entries are added many at a time: a pause after each would take as long as its record."""
        for piece in pieces(entries):
            if are_long(piece):
                for entry in piece:
                    yield from self._add_entry_in_steps(entry, encoder)
            else:
                self.add(piece, encoder.frame)
                yield

    def _add_entry_in_steps(self, entry: Entry, encoder: RecordEncoder) -> Steps[None]:
        self.add([Entry(entry.partition, ())], encoder.frame)
        yield from _frame_in_steps(encoder, entry.records, self.by_partition[entry.partition])


def _frame_in_steps(
    encoder: RecordEncoder, records: Sequence[Record], framed: list[bytes], first_delta: int = 0
) -> Steps[None]:
    """Append the bytes of each record to ``framed``. ``first_delta``: the offset delta of the first in ``framed``."""
    for piece in pieces(records):
        for record in piece:
            delta = first_delta + len(framed)
            if type(record) is OffsetRecord or not item_count(record):
                framed.append(encoder.frame(record, delta))
            else:
                framed.append((yield from encoder.frame_in_steps(record, delta)))
        yield


class RoundEncoder:
    """Assigns offsets and encodes rounds. ``end_offsets`` (one per partition) is read and advanced in place."""

    def __init__(self, end_offsets: list[int], max_message_bytes: int, durability: str) -> None:
        """``durability``: that of the outcomes of stored rounds."""
        self._durability = durability
        self._end_offsets = end_offsets
        self._max_message_bytes = max_message_bytes
        self._encoder = RecordEncoder()
        self._reset = 0

    def restart_at(self, reset: int, ends: Mapping[int, int]) -> None:
        """Continue from ``ends``, because encoded rounds were refused. Does nothing if ``reset`` is the current one."""
        if reset != self._reset:
            self._reset = reset
            self._end_offsets[:] = [ends.get(partition, 0) for partition in range(len(self._end_offsets))]

    def encode(self, entries: Sequence[Entry], timestamp_ms: int, done: DoneCallback) -> Round:
        """Encode one round. An entry that cannot be written gets its error here and is not part of the bytes."""
        try:
            framed = _FramedRound(self._end_offsets, self._durability)
            framed.add(entries, self._encoder.frame)
            plain_round = self._plain_round(framed, timestamp_ms, done)
        except Exception as error:
            _log_unexpected(error)
            plain_round = None
        return plain_round or run_steps(self._encode_each(entries, timestamp_ms, done))

    def encode_in_steps(self, entries: Sequence[Entry], timestamp_ms: int, done: DoneCallback) -> Steps[Round]:
        """The same for many records. No other round is encoded before its end."""
        try:
            framed = _FramedRound(self._end_offsets, self._durability)
            yield from framed.add_in_steps(entries, self._encoder)
            plain_round = self._plain_round(framed, timestamp_ms, done)
        except Exception as error:
            _log_unexpected(error)
            plain_round = None
        return plain_round or (yield from self._encode_each(entries, timestamp_ms, done))

    def _plain_round(self, framed_round: _FramedRound, timestamp_ms: int, done: DoneCallback) -> Round | None:
        """The round if the entries of each partition fit into one batch, as usual; else None."""
        end_offsets, by_partition = self._end_offsets, framed_round.by_partition
        records_bytes_max = self._max_message_bytes - HEADER_BYTES
        if any(sum(map(len, framed)) > records_bytes_max for framed in by_partition.values()):
            return None
        batches = [
            (partition, encode_batch(end_offsets[partition], timestamp_ms, timestamp_ms, framed))
            for partition, framed in by_partition.items()
            if framed
        ]
        ends = {partition: end_offsets[partition] + len(framed) for partition, framed in by_partition.items()}
        if max(ends.values(), default=0) > LOG_OFFSET_MAX:
            return None
        encoded_round = Round(encode_frame(batches), batches, framed_round.outcomes, done, ends, self._reset)
        for partition, end in ends.items():  # last, so that a failure above leaves no gap in the offsets
            end_offsets[partition] = end
        return encoded_round

    def _encode_each(self, entries: Sequence[Entry], timestamp_ms: int, done: DoneCallback) -> Steps[Round]:
        """The slow path: each entry by itself."""
        encoder = _EntryByEntryEncoder(self._end_offsets, self._encoder, self._max_message_bytes, timestamp_ms)
        for entry in entries:
            yield from encoder.add(entry)
        batches = encoder.finish()
        outcomes = [
            outcome._replace(durability=self._durability) if outcome.error is _NONE else outcome
            for outcome in encoder.outcomes
        ]
        return Round(encode_frame(batches), batches, outcomes, done, encoder.ends, self._reset)


class _EntryByEntryEncoder:
    """Encodes a round in which an entry does not fit, cannot be written, or belongs to a transaction.

    An entry that does not fit begins another batch, one that cannot be written is refused, and a transaction gets
    batches of its own. If a batch cannot be encoded, only the entries in it are refused.
    """

    def __init__(
        self, end_offsets: list[int], encoder: RecordEncoder, max_message_bytes: int, timestamp_ms: int
    ) -> None:
        self._end_offsets = end_offsets
        self._encoder = encoder
        self._max_message_bytes = max_message_bytes
        self._timestamp_ms = timestamp_ms
        self.outcomes: list[Appended] = []
        self.ends: dict[int, int] = {}
        self._open_batches: dict[int, _OpenBatch] = {}
        self._batches: list[tuple[int, bytes]] = []

    def add(self, entry: Entry) -> Steps[None]:
        partition, records = entry
        self.outcomes.append(_UNWRITABLE)
        try:
            if records and isinstance(records[0], PendingOffsetRecord | MarkerRecord):
                outcome = yield from self._add_own_batch(partition, records[0], records)
            else:
                outcome = yield from self._add(partition, records)
        except Exception as error:  # a value that does not fit, or a bug: only this entry is refused
            _log_unwritable(partition, error)
        else:
            self.outcomes[-1] = outcome

    def finish(self) -> list[tuple[int, bytes]]:
        """The batches of the round; those of one partition are in order."""
        for partition in list(self._open_batches):
            self._finish_batch(partition)
        return self._batches

    def _add(self, partition: int, records: Sequence[Record]) -> Steps[Appended]:
        batch = self._open_batches.get(partition) or self._open_batch(partition)
        framed = yield from self._frame(records, len(batch.records))
        size = sum(map(len, framed))
        if batch.size + size > self._max_message_bytes and batch.records:
            self._finish_batch(partition)
            batch = self._open_batch(partition)
            framed = yield from self._frame(records, 0)
            size = sum(map(len, framed))
        if batch.size + size > self._max_message_bytes:
            return _TOO_LARGE
        base_offset = batch.base_offset + len(batch.records)
        _refuse_large_offset(base_offset + len(records))
        batch.entries.append(len(self.outcomes) - 1)
        batch.records += framed
        batch.size += size
        return Appended(ErrorCode.NONE, base_offset)

    def _add_own_batch(
        self, partition: int, first: PendingOffsetRecord | MarkerRecord, records: Sequence[Record]
    ) -> Steps[Appended]:
        frame, framed = self._encoder.frame_in_transaction, list[bytes]()
        for piece in pieces(records):
            framed += [
                frame(record, delta)
                for delta, record in enumerate(piece, len(framed))
                if isinstance(record, type(first))
            ]
            yield
        if HEADER_BYTES + sum(map(len, framed)) > self._max_message_bytes:
            return _TOO_LARGE
        self._finish_batch(partition)
        base_offset = self._end_offsets[partition]
        _refuse_large_offset(base_offset + len(framed))
        producer = Producer(first.producer_id, first.producer_epoch, isinstance(first, MarkerRecord))
        self._append_batch(partition, base_offset, framed, producer)
        return Appended(ErrorCode.NONE, base_offset)

    def _frame(self, records: Sequence[Record], offset_delta: int) -> Steps[list[bytes]]:
        framed: list[bytes] = []
        yield from _frame_in_steps(self._encoder, records, framed, offset_delta)
        return framed

    def _open_batch(self, partition: int) -> _OpenBatch:
        batch = self._open_batches[partition] = _OpenBatch(self._end_offsets[partition])
        return batch

    def _finish_batch(self, partition: int) -> None:
        batch = self._open_batches.pop(partition, None)
        if batch is None or not batch.records:
            return
        try:
            self._append_batch(partition, batch.base_offset, batch.records, None)
        except Exception as error:  # its offsets can be assigned again
            _log_unwritable(partition, error)
            for index in batch.entries:
                self.outcomes[index] = _UNWRITABLE

    def _append_batch(self, partition: int, base_offset: int, framed: list[bytes], producer: Producer | None) -> None:
        data = encode_batch(base_offset, self._timestamp_ms, self._timestamp_ms, framed, producer)
        self._batches.append((partition, data))
        self._end_offsets[partition] += len(framed)
        self.ends[partition] = self._end_offsets[partition]


def _refuse_large_offset(end_offset: int) -> None:
    if end_offset > LOG_OFFSET_MAX:
        raise UnwritableRecord(f"it would end at offset {end_offset}, expected at most {LOG_OFFSET_MAX}")


def _log_unexpected(error: Exception) -> None:
    """Log an error that one entry has caused; the others can be written."""
    if not isinstance(error, UnwritableRecord | NeedsOwnBatch):
        log.error("round encoded entry by entry", reason=repr(error))


def _log_unwritable(partition: int, error: Exception) -> None:
    log.error("record cannot be written", partition=partition, reason=str(error) or repr(error))
