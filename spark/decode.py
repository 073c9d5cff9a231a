"""Records of a chunk of the log as one Arrow batch: columns at once for plain offsets, one by one for all else.

Nearly every record is an offset in one of four simple layouts, so those are read by arithmetic on whole columns. Group
records, markers and whatever is unusual go through the log's own decoder. Strings are cut out of the chunk by Arrow:
its offsets are made to alternate between what is wanted and what lies between, and every other one is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..runtime.log.format.batch import CONTROL_BIT, TRANSACTIONAL_BIT, Batch, read_batch
from ..runtime.log.format.errors import DamagedBatch, DamagedRecord
from ..runtime.log.format.transaction_records import decode_record
from ..runtime.log.reading.columns import RecordSpans
from ..runtime.log.reading.spans_fast import gather
from .columns import MAX_TIME_MS, arrow_schema
from .options import Options
from .rows import damage_row, row_of

Array = Any  # numpy's

# Of a key: type, group, topic, partition. Of a value: version, offset, (leader epoch,) metadata, times.
_KEY_MIN, _TOPIC_AT, _PARTITION_AT = 10, 4, 6
_VALUE_MIN, _OFFSET_AT, _EPOCH_AT = 20, 2, 10
_NEWEST_PLAIN_VERSION = 3


class Chunk:
    """Whole, checked batches in one buffer, with numpy's columns; ``position`` is where they begin in ``source``."""

    def __init__(self, data: bytes, spans: RecordSpans, source: str, position: int) -> None:
        self.data = data
        self.source = source
        self.position = position
        self.headers = spans.headers
        self.key_at, self.key_size = _array(spans.key_at), _array(spans.key_size)
        self.value_at, self.value_size = _array(spans.value_at), _array(spans.value_size)
        self.offset, self.timestamp_ms = _array(spans.offset), _array(spans.timestamp_ms)
        self.batch = _array(spans.batch)
        self.attributes = _array(spans.headers.attributes)[self.batch] if len(self.batch) else self.batch

    def __len__(self) -> int:
        return len(self.offset)

    def key(self, index: int) -> bytes | None:
        return self._bytes(int(self.key_at[index]), int(self.key_size[index]))

    def value(self, index: int) -> bytes | None:
        return self._bytes(int(self.value_at[index]), int(self.value_size[index]))

    def read_batch(self, index: int) -> Batch:
        """The batch of a record."""
        at = int(self.headers.at[self.batch[index]])
        return read_batch(memoryview(self.data), at, self.position + at, self.source)

    def _bytes(self, at: int, size: int) -> bytes | None:
        return None if size < 0 else self.data[at : at + size]


class Offsets(NamedTuple):
    """Offset records that are laid out simply: their places in the chunk, and where their fields are."""

    which: Array
    key_at: Array
    group_size: Array
    topic_size: Array
    value_at: Array
    version: Array
    metadata_size: Array
    is_alive: Array


class Decoder:
    """Makes the batches of one log partition, with the columns and the records that are asked for."""

    def __init__(self, log_partition: int, options: Options) -> None:
        self.log_partition = log_partition
        self._options = options
        self._schema = arrow_schema(options.columns)

    def decode(self, chunk: Chunk, which: Array) -> Iterator[pa.RecordBatch]:
        """The records ``which``, by their places in the chunk and in its order; none, one, or two at the most.

        DamagedBatch for a record whose bytes make no sense, unless the options are patient.
        """
        if self._options.since_ms is not None:
            which = which[chunk.timestamp_ms[which] >= self._options.since_ms]
        if not len(which):
            return
        offsets, others = plain_offsets(chunk, which)
        if "offset" not in self._options.kinds:
            offsets = _only(offsets, np.zeros(len(offsets.which), dtype=bool))
        columns = _OffsetColumns(chunk, offsets, self.log_partition)
        try:
            if self._options.groups is not None:
                wanted = pc.is_in(columns.group(), value_set=pa.array(sorted(self._options.groups), pa.string()))
                offsets = _only(offsets, wanted.to_numpy(zero_copy_only=False))
                columns = _OffsetColumns(chunk, offsets, self.log_partition)
            plain = self._plain(columns)
        except pa.ArrowInvalid:  # a string that is no UTF-8
            offsets, others = _only(offsets, np.zeros(len(offsets.which), dtype=bool)), which
            plain = self._plain(_OffsetColumns(chunk, offsets, self.log_partition))
        rows = list(self._rows(chunk, others))
        if not rows:  # nearly always; where files are small, an empty batch would be a fifth of the work
            if plain.num_rows:
                yield plain
            return
        yield from _merged(plain, offsets.which, self.batch([row for _, row in rows]), [index for index, _ in rows])

    def batch(self, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
        """Rows as a batch; what they do not name is null."""
        return pa.RecordBatch.from_pylist(list(rows), schema=self._schema)

    def _plain(self, columns: _OffsetColumns) -> pa.RecordBatch:
        arrays = [columns.make(name, kind) for name, kind in zip(self._schema.names, self._schema.types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _rows(self, chunk: Chunk, which: Array) -> Iterator[tuple[int, dict[str, Any]]]:
        last, batch = -1, None
        for index in which.tolist():
            if batch is None or chunk.batch[index] != last:
                last, batch = int(chunk.batch[index]), chunk.read_batch(index)
            row = self._row(chunk, batch, index)
            if row is not None and self._is_wanted(row):
                yield index, row

    def _row(self, chunk: Chunk, batch: Batch, index: int) -> dict[str, Any] | None:
        offset, time_ms = int(chunk.offset[index]), int(chunk.timestamp_ms[index])
        key, value = chunk.key(index), chunk.value(index)
        try:
            record = decode_record(batch, key, value) if key is not None else None
        except DamagedRecord as damage:
            found = DamagedBatch(batch.position, f"record at offset {offset}: {damage}", chunk.source)
            if not self._options.is_patient:
                raise found from None
            return damage_row(self.log_partition, offset, str(found))
        return row_of(self.log_partition, batch, offset, time_ms, (key, value), record)

    def _is_wanted(self, row: dict[str, Any]) -> bool:
        """Markers have no group, and say what became of the offsets of one."""
        groups = self._options.groups
        is_ours = groups is None or row["kind"] in ("marker", "damage") or row.get("group") in groups
        return is_ours and row["kind"] in self._options.kinds


def plain_offsets(chunk: Chunk, which: Array) -> tuple[Offsets, Array]:
    """Those of some records that are offsets in a simple layout, and the rest of them."""
    key_at, key_size = chunk.key_at[which], chunk.key_size[which]
    is_plain = (key_size >= _KEY_MIN) & (chunk.attributes[which] & CONTROL_BIT == 0)
    key_at = np.where(is_plain, key_at, 0)
    is_plain &= (gather(chunk.data, key_at, ">i2") >> 1) == 0  # types 0 and 1
    group_size, is_plain = _size(chunk.data, key_at + 2, key_size - _KEY_MIN, is_plain)
    topic_at = np.where(is_plain, key_at + _TOPIC_AT + group_size, 0)
    topic_size, is_plain = _size(chunk.data, topic_at, key_size - _KEY_MIN - group_size, is_plain)

    value_at, value_size = chunk.value_at[which], chunk.value_size[which]
    is_alive = value_size >= 0
    is_long = is_plain & (value_size >= _VALUE_MIN)
    value_at = np.where(is_long, value_at, 0)
    version = gather(chunk.data, value_at, ">i2")
    is_long &= (version >= 0) & (version <= _NEWEST_PLAIN_VERSION)
    left = value_size - _VALUE_MIN - 4 * (version == 3) - 8 * (version == 1)
    metadata_at = np.where(is_long & (left >= 0), value_at + _metadata_at(version), 0)
    metadata_size, is_long = _size(chunk.data, metadata_at, left, is_long & (left >= 0))
    is_plain &= is_long | ~is_alive
    columns = which, key_at, group_size, topic_size, value_at, version, metadata_size, is_alive
    return Offsets(*(column[is_plain] for column in columns)), which[~is_plain]


def _size(data: bytes, at: Array, most: Array, is_plain: Array) -> tuple[Array, Array]:
    """A string's length where it fits, 0 elsewhere; and where it fits."""
    size = gather(data, at, ">i2")
    fits = is_plain & (size >= 0) & (size <= most)
    return np.where(fits, size, 0), fits


def _metadata_at(version: Array) -> Array:
    return np.where(version == 3, _EPOCH_AT + 4, _EPOCH_AT)


def _only(offsets: Offsets, wanted: Array) -> Offsets:
    return Offsets(*(column[wanted] for column in offsets))


class _OffsetColumns:
    """Arrow's columns of plain offsets, each made when it is asked for."""

    def __init__(self, chunk: Chunk, offsets: Offsets, log_partition: int) -> None:
        self._chunk = chunk
        self._at = offsets
        self._log_partition = log_partition
        self._makers: dict[str, Callable[[], pa.Array]] = {
            "log_partition": lambda: pa.repeat(pa.scalar(log_partition, pa.int32()), len(offsets.which)),
            "log_offset": lambda: pa.array(chunk.offset[offsets.which]),
            "timestamp": lambda: _times(chunk.timestamp_ms[offsets.which]),
            "kind": lambda: pa.repeat(pa.scalar("offset"), len(offsets.which)),
            "tombstone": lambda: pa.array(~offsets.is_alive),
            "transactional": lambda: pa.array(chunk.attributes[offsets.which] & TRANSACTIONAL_BIT != 0),
            "producer_id": lambda: _unless_none(self._of_batch("producer_id")),
            "producer_epoch": lambda: _unless_none(self._of_batch("producer_epoch"), pa.int32()),
            "group": self.group,
            "topic": lambda: self._string(offsets.key_at + _PARTITION_AT + offsets.group_size, offsets.topic_size),
            "partition": lambda: pa.array(self._key_partition().astype(np.int32)),
            "offset": lambda: self._number(_OFFSET_AT, ">i8", offsets.is_alive, pa.int64()),
            "leader_epoch": self._leader_epoch,
            "metadata": self._metadata,
            "commit_timestamp": lambda: _times(self._time(0), offsets.is_alive),
            "expire_timestamp": lambda: _times(self._time(8), offsets.is_alive & (offsets.version == 1)),
        }

    def make(self, name: str, kind: pa.DataType) -> pa.Array:
        maker = self._makers.get(name)
        return maker() if maker else pa.nulls(len(self._at.which), kind)

    def group(self) -> pa.Array:
        return self._string(self._at.key_at + _TOPIC_AT, self._at.group_size)

    def _of_batch(self, name: str) -> Array:
        return _array(getattr(self._chunk.headers, name))[self._chunk.batch[self._at.which]]

    def _key_partition(self) -> Array:
        at = self._at
        return gather(self._chunk.data, at.key_at + _PARTITION_AT + at.group_size + at.topic_size, ">i4")

    def _leader_epoch(self) -> pa.Array:
        has_one = self._at.is_alive & (self._at.version == 3)
        found = np.where(has_one, gather(self._chunk.data, self._at.value_at + _EPOCH_AT, ">i4"), -1)
        return _unless_none(found, pa.int32())

    def _metadata(self) -> pa.Array:
        at = self._at
        return self._string(at.value_at + _metadata_at(at.version) + 2, at.metadata_size, at.is_alive)

    def _time(self, behind: int) -> Array:
        """The commit's time, or the one that lies so many bytes behind it; of what has a value only."""
        at = self._at
        place = at.value_at + _metadata_at(at.version) + 2 + at.metadata_size
        has_one = at.is_alive & ((at.version == 1) | (behind == 0))
        return gather(self._chunk.data, np.where(has_one, place + behind, 0), ">i8")

    def _number(self, behind: int, form: str, is_there: Array, kind: pa.DataType) -> pa.Array:
        return pa.array(gather(self._chunk.data, self._at.value_at + behind, form), kind, mask=~is_there)

    def _string(self, at: Array, size: Array, is_there: Array | None = None) -> pa.Array:
        """Pieces of the chunk, which lie in its order. ArrowInvalid for what is no UTF-8."""
        count = len(at)
        if is_there is not None:
            at = np.maximum.accumulate(np.where(is_there, at + size, 0)) - np.where(is_there, size, 0)
        bounds = np.empty(2 * count + 1, dtype=np.int32)
        bounds[0:-1:2], bounds[1::2] = at, at + size
        bounds[-1] = bounds[-2] if count else 0
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self._chunk.data)]
        pieces = pa.Array.from_buffers(pa.binary(), 2 * count, buffers)
        places = pa.array(np.arange(0, 2 * count, 2), mask=None if is_there is None else ~is_there)
        return pieces.take(places).cast(pa.string())


def _times(time_ms: Array, is_there: Array | None = None) -> pa.Array:
    fits = (time_ms >= 0) & (time_ms <= MAX_TIME_MS)
    if is_there is not None:
        fits &= is_there
    return pa.array(np.where(fits, time_ms, 0) * 1000, pa.timestamp("us", "UTC"), mask=~fits)


def _unless_none(numbers: Array, kind: pa.DataType | None = None) -> pa.Array:
    return pa.array(numbers, kind or pa.int64(), mask=numbers == -1)


def _merged(
    plain: pa.RecordBatch, plain_at: Array, others: pa.RecordBatch, others_at: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Both in the order of the log."""
    if not plain.num_rows:
        yield others
        return
    order = np.argsort(np.concatenate([plain_at, np.asarray(others_at, dtype=np.int64)]), kind="stable")
    both = pa.Table.from_batches([plain, others]).combine_chunks().take(pa.array(order))
    yield from both.combine_chunks().to_batches()


def _array(column: Any) -> Array:
    return np.asarray(column, dtype=np.int64)
