"""A round of the writer: the entries that came together, as one batch a partition and one frame for the journal.

Encoding happens on the caller's thread, and everything that the log's own thread needs is made ready here, so that
thread takes few steps and is seldom in the caller's way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ...actors.errors import ErrorCode
from ...actors.ports import Appended, Entry
from ...actors.records import MarkerRecord, PendingOffsetRecord, Record
from ..common.logs import get_logger
from .format.batch import HEADER_BYTES, LOG_OFFSET_MAX, Producer, encode_batch
from .format.encoder import RecordEncoder
from .format.errors import NeedsOwnBatch, UnwritableRecord
from .journal_frames import encode_frame

Done = Callable[[Sequence[Appended]], None]

log = get_logger("callboard.log")

_NONE = ErrorCode.NONE
_TOO_LARGE = Appended(ErrorCode.MESSAGE_TOO_LARGE, -1)
_UNWRITABLE = Appended(ErrorCode.UNKNOWN_SERVER_ERROR, -1)


class Round(NamedTuple):
    """``batches`` are (partition, bytes) pairs; ``outcomes`` is what ``done`` hears when they are durable.

    ``ends``: where each of its partitions ends with it. ``reset``: by which ``writer.Reset`` it was numbered.
    """

    frame: bytes
    batches: list[tuple[int, bytes]]
    outcomes: list[Appended]
    done: Done
    ends: dict[int, int]
    reset: int


def failed(outcomes: Sequence[Appended], error: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> list[Appended]:
    """The outcomes of a round that could not be stored; an entry that was refused before keeps its own reason."""
    refused = Appended(error, -1)
    return [refused if outcome.error is ErrorCode.NONE else outcome for outcome in outcomes]


class _Growing:
    """A batch that still takes entries. ``entries``: the indices in the round of those that it has taken."""

    __slots__ = ("base_offset", "entries", "records", "size")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.entries: list[int] = []
        self.records: list[bytes] = []
        self.size = HEADER_BYTES


class RoundEncoder:
    """Assigns offsets and encodes rounds. ``end_offsets`` (one a partition) is read and advanced in place."""

    def __init__(self, end_offsets: list[int], max_message_bytes: int, durability: str) -> None:
        """``durability`` is what the outcomes of rounds say, if they are stored."""
        self._durability = durability
        self._end_offsets = end_offsets
        self._max_message_bytes = max_message_bytes
        self._encoder = RecordEncoder()
        self._reset = 0

    def begin_anew(self, reset: int, ends: Mapping[int, int]) -> None:
        """Rounds that were encoded here have been refused: go on from ``ends``, unless that is known already."""
        if reset != self._reset:
            self._reset = reset
            self._end_offsets[:] = [ends.get(partition, 0) for partition in range(len(self._end_offsets))]

    def encode(self, entries: Sequence[Entry], timestamp_ms: int, done: Done) -> Round:
        """One round. An entry that cannot be written gets its error here and leaves no trace in the bytes."""
        return self._encode_plain(entries, timestamp_ms, done) or self._encode_each(entries, timestamp_ms, done)

    def _encode_plain(self, entries: Sequence[Entry], timestamp_ms: int, done: Done) -> Round | None:
        """The round if all can be written and each partition's fit into one batch: nearly always so."""
        try:
            return self._plain_round(entries, timestamp_ms, done)
        except (UnwritableRecord, NeedsOwnBatch):
            return None
        except Exception as error:  # that of one entry; the others can be written
            log.error("a round is encoded entry by entry", reason=repr(error))
            return None

    def _plain_round(self, entries: Sequence[Entry], timestamp_ms: int, done: Done) -> Round | None:
        end_offsets, frame, durability = self._end_offsets, self._encoder.frame, self._durability
        by_partition: dict[int, list[bytes]] = {}
        outcomes: list[Appended] = []
        for partition, records in entries:
            framed = by_partition.get(partition)
            if framed is None:
                framed = by_partition[partition] = []
            outcomes.append(Appended(_NONE, end_offsets[partition] + len(framed), durability))
            for record in records:
                framed.append(frame(record, len(framed)))
        room = self._max_message_bytes - HEADER_BYTES
        if any(sum(map(len, framed)) > room for framed in by_partition.values()):
            return None
        batches = [
            (partition, encode_batch(end_offsets[partition], timestamp_ms, timestamp_ms, framed))
            for partition, framed in by_partition.items()
            if framed
        ]
        ends = {partition: end_offsets[partition] + len(framed) for partition, framed in by_partition.items()}
        if max(ends.values(), default=0) > LOG_OFFSET_MAX:
            return None
        made = Round(encode_frame(batches), batches, outcomes, done, ends, self._reset)
        for partition, end in ends.items():  # last: a round that fails here leaves no gap in the offsets
            end_offsets[partition] = end
        return made

    def _encode_each(self, entries: Sequence[Entry], timestamp_ms: int, done: Done) -> Round:
        """The same entry by entry."""
        careful = _CarefulRound(self._end_offsets, self._encoder, self._max_message_bytes, timestamp_ms)
        for entry in entries:
            careful.add(entry)
        batches = careful.finish()
        outcomes = [
            one._replace(durability=self._durability) if one.error is _NONE else one for one in careful.outcomes
        ]
        return Round(encode_frame(batches), batches, outcomes, done, careful.ends, self._reset)


class _CarefulRound:
    """A round of which something does not fit, cannot be written, or belongs to a transaction.

    What does not fit begins another batch, what cannot be written is refused, a transaction has its batches for itself.
    A batch that cannot be encoded costs the entries in it, and no others.
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
        self._growing: dict[int, _Growing] = {}
        self._batches: list[tuple[int, bytes]] = []

    def add(self, entry: Entry) -> None:
        partition, records = entry
        self.outcomes.append(_UNWRITABLE)
        try:
            if records and isinstance(records[0], PendingOffsetRecord | MarkerRecord):
                outcome = self._add_alone(partition, records[0], records)
            else:
                outcome = self._add(partition, records)
        except Exception as error:  # a value that does not fit, or a bug: it costs this entry
            _tell_unwritable(partition, error)
        else:
            self.outcomes[-1] = outcome

    def finish(self) -> list[tuple[int, bytes]]:
        """The batches of the round, those of a partition in order."""
        for partition in list(self._growing):
            self._finish(partition)
        return self._batches

    def _add(self, partition: int, records: Sequence[Record]) -> Appended:
        batch = self._growing.get(partition) or self._begin(partition)
        framed = self._frame(records, len(batch.records))
        size = sum(map(len, framed))
        if batch.size + size > self._max_message_bytes and batch.records:
            self._finish(partition)
            batch = self._begin(partition)
            framed = self._frame(records, 0)
            size = sum(map(len, framed))
        if batch.size + size > self._max_message_bytes:
            return _TOO_LARGE
        base_offset = batch.base_offset + len(batch.records)
        _refuse_large(base_offset + len(records))
        batch.entries.append(len(self.outcomes) - 1)
        batch.records += framed
        batch.size += size
        return Appended(ErrorCode.NONE, base_offset)

    def _add_alone(
        self, partition: int, first: PendingOffsetRecord | MarkerRecord, records: Sequence[Record]
    ) -> Appended:
        frame = self._encoder.frame_in_transaction
        framed = [frame(record, delta) for delta, record in enumerate(records) if isinstance(record, type(first))]
        if HEADER_BYTES + sum(map(len, framed)) > self._max_message_bytes:
            return _TOO_LARGE
        self._finish(partition)
        base_offset = self._end_offsets[partition]
        _refuse_large(base_offset + len(framed))
        producer = Producer(first.producer_id, first.producer_epoch, isinstance(first, MarkerRecord))
        self._write(partition, base_offset, framed, producer)
        return Appended(ErrorCode.NONE, base_offset)

    def _frame(self, records: Sequence[Record], offset_delta: int) -> list[bytes]:
        frame = self._encoder.frame
        return [frame(record, delta) for delta, record in enumerate(records, offset_delta)]

    def _begin(self, partition: int) -> _Growing:
        batch = self._growing[partition] = _Growing(self._end_offsets[partition])
        return batch

    def _finish(self, partition: int) -> None:
        batch = self._growing.pop(partition, None)
        if batch is None or not batch.records:
            return
        try:
            self._write(partition, batch.base_offset, batch.records, None)
        except Exception as error:  # its offsets are free again
            _tell_unwritable(partition, error)
            for index in batch.entries:
                self.outcomes[index] = _UNWRITABLE

    def _write(self, partition: int, base_offset: int, framed: list[bytes], producer: Producer | None) -> None:
        data = encode_batch(base_offset, self._timestamp_ms, self._timestamp_ms, framed, producer)
        self._batches.append((partition, data))
        self._end_offsets[partition] += len(framed)
        self.ends[partition] = self._end_offsets[partition]


def _refuse_large(end_offset: int) -> None:
    if end_offset > LOG_OFFSET_MAX:
        raise UnwritableRecord(f"it would end at offset {end_offset}, expected at most {LOG_OFFSET_MAX}")


def _tell_unwritable(partition: int, error: Exception) -> None:
    log.error("record cannot be written", partition=partition, reason=str(error) or repr(error))
