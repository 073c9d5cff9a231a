"""Decodes a chunk of the log to one Arrow batch: plain offset records by columns, all other records one by one.

Nearly every record is an offset in one of four simple layouts; these are read with vectorized arithmetic. Group
records, markers and unusual records go through the log's own decoder. Strings are cut out of the chunk by Arrow: an
array's bounds alternate between the wanted strings and the bytes between them, and every other element is taken.
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
from .rows import damage_row, record_row

Array = Any  # a numpy array

# A key has type, group, topic, partition; a value has version, offset, (leader epoch,) metadata, timestamps.
_KEY_MIN, _TOPIC_AT, _PARTITION_AT = 10, 4, 6
_VALUE_MIN, _OFFSET_AT, _EPOCH_AT = 20, 2, 10
_NEWEST_PLAIN_VERSION = 3


class RecordChunk:
    """Complete, verified batches in one buffer, with numpy columns; ``position``: where they begin in ``source``."""

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
        """The batch that contains a record."""
        at = int(self.headers.at[self.batch[index]])
        return read_batch(memoryview(self.data), at, self.position + at, self.source)

    def _bytes(self, at: int, size: int) -> bytes | None:
        return None if size < 0 else self.data[at : at + size]


class PlainOffsets(NamedTuple):
    """Offset records with a simple layout: their indexes in the chunk, and the positions of their fields."""

    indexes: Array
    key_at: Array
    group_size: Array
    topic_size: Array
    value_at: Array
    version: Array
    metadata_size: Array
    is_alive: Array


class Decoder:
    """Makes the Arrow batches of one log partition, with the columns and records that the options select."""

    def __init__(self, log_partition: int, options: Options) -> None:
        self.log_partition = log_partition
        self._options = options
        self._schema = arrow_schema(options.columns)

    def decode(self, chunk: RecordChunk, indexes: Array) -> Iterator[pa.RecordBatch]:
        """The records at ``indexes`` (indexes in the chunk), in log order. Yields at most two batches.

        Raises DamagedBatch for a record that cannot be decoded, unless the options permit damage.
        """
        if self._options.since_ms is not None:
            indexes = indexes[chunk.timestamp_ms[indexes] >= self._options.since_ms]
        if not len(indexes):
            return
        offsets, other_indexes = split_plain_offsets(chunk, indexes)
        if "offset" not in self._options.kinds:
            offsets = _only(offsets, np.zeros(len(offsets.indexes), dtype=bool))
        columns = _OffsetColumns(chunk, offsets, self.log_partition)
        try:
            if self._options.groups is not None:
                is_selected = pc.is_in(columns.group(), value_set=pa.array(sorted(self._options.groups), pa.string()))
                offsets = _only(offsets, is_selected.to_numpy(zero_copy_only=False))
                columns = _OffsetColumns(chunk, offsets, self.log_partition)
            plain = self._plain(columns)
        except pa.ArrowInvalid:  # a string that is not UTF-8: decode all records one by one
            offsets, other_indexes = _only(offsets, np.zeros(len(offsets.indexes), dtype=bool)), indexes
            plain = self._plain(_OffsetColumns(chunk, offsets, self.log_partition))
        rows = list(self._rows(chunk, other_indexes))
        if not rows:  # the usual case: with small files, merging an empty batch would be a fifth of the work
            if plain.num_rows:
                yield plain
            return
        yield from _merged(plain, offsets.indexes, self.batch([row for _, row in rows]), [index for index, _ in rows])

    def batch(self, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
        """Rows as a batch; columns that they do not name are null."""
        return pa.RecordBatch.from_pylist(list(rows), schema=self._schema)

    def _plain(self, columns: _OffsetColumns) -> pa.RecordBatch:
        arrays = [columns.make(name, kind) for name, kind in zip(self._schema.names, self._schema.types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _rows(self, chunk: RecordChunk, indexes: Array) -> Iterator[tuple[int, dict[str, Any]]]:
        last, batch = -1, None
        for index in indexes.tolist():
            if batch is None or chunk.batch[index] != last:
                last, batch = int(chunk.batch[index]), chunk.read_batch(index)
            row = self._row(chunk, batch, index)
            if row is not None and self._is_selected(row):
                yield index, row

    def _row(self, chunk: RecordChunk, batch: Batch, index: int) -> dict[str, Any] | None:
        offset, time_ms = int(chunk.offset[index]), int(chunk.timestamp_ms[index])
        key, value = chunk.key(index), chunk.value(index)
        try:
            record = decode_record(batch, key, value) if key is not None else None
        except DamagedRecord as damage:
            error = DamagedBatch(batch.position, f"record at offset {offset}: {damage}", chunk.source)
            if not self._options.is_permissive:
                raise error from None
            return damage_row(self.log_partition, offset, str(error))
        return record_row(self.log_partition, batch, offset, time_ms, (key, value), record)

    def _is_selected(self, row: dict[str, Any]) -> bool:
        """Markers belong to no group but are needed to interpret the offsets of every group."""
        groups = self._options.groups
        is_of_group = groups is None or row["kind"] in ("marker", "damage") or row.get("group") in groups
        return is_of_group and row["kind"] in self._options.kinds


def split_plain_offsets(chunk: RecordChunk, indexes: Array) -> tuple[PlainOffsets, Array]:
    """Split records into the offsets with a simple layout and the indexes of all others."""
    key_at, key_size = chunk.key_at[indexes], chunk.key_size[indexes]
    is_plain = (key_size >= _KEY_MIN) & (chunk.attributes[indexes] & CONTROL_BIT == 0)
    key_at = np.where(is_plain, key_at, 0)
    is_plain &= (gather(chunk.data, key_at, ">i2") >> 1) == 0  # types 0 and 1
    group_size, is_plain = _size(chunk.data, key_at + 2, key_size - _KEY_MIN, is_plain)
    topic_at = np.where(is_plain, key_at + _TOPIC_AT + group_size, 0)
    topic_size, is_plain = _size(chunk.data, topic_at, key_size - _KEY_MIN - group_size, is_plain)

    value_at, value_size = chunk.value_at[indexes], chunk.value_size[indexes]
    is_alive = value_size >= 0
    is_long = is_plain & (value_size >= _VALUE_MIN)
    value_at = np.where(is_long, value_at, 0)
    version = gather(chunk.data, value_at, ">i2")
    is_long &= (version >= 0) & (version <= _NEWEST_PLAIN_VERSION)
    remaining = value_size - _VALUE_MIN - 4 * (version == 3) - 8 * (version == 1)
    metadata_at = np.where(is_long & (remaining >= 0), value_at + _metadata_at(version), 0)
    metadata_size, is_long = _size(chunk.data, metadata_at, remaining, is_long & (remaining >= 0))
    is_plain &= is_long | ~is_alive
    columns = indexes, key_at, group_size, topic_size, value_at, version, metadata_size, is_alive
    return PlainOffsets(*(column[is_plain] for column in columns)), indexes[~is_plain]


def _size(data: bytes, at: Array, max_size: Array, is_plain: Array) -> tuple[Array, Array]:
    """The lengths of strings (0 where one does not fit), and a mask of those that fit."""
    size = gather(data, at, ">i2")
    fits = is_plain & (size >= 0) & (size <= max_size)
    return np.where(fits, size, 0), fits


def _metadata_at(version: Array) -> Array:
    return np.where(version == 3, _EPOCH_AT + 4, _EPOCH_AT)


def _only(offsets: PlainOffsets, is_selected: Array) -> PlainOffsets:
    return PlainOffsets(*(column[is_selected] for column in offsets))


class _OffsetColumns:
    """Arrow columns of plain offsets, each computed on request."""

    def __init__(self, chunk: RecordChunk, offsets: PlainOffsets, log_partition: int) -> None:
        self._chunk = chunk
        self._offsets = offsets
        self._log_partition = log_partition
        self._makers: dict[str, Callable[[], pa.Array]] = {
            "log_partition": lambda: pa.repeat(pa.scalar(log_partition, pa.int32()), len(offsets.indexes)),
            "log_offset": lambda: pa.array(chunk.offset[offsets.indexes]),
            "timestamp": lambda: _times(chunk.timestamp_ms[offsets.indexes]),
            "kind": lambda: pa.repeat(pa.scalar("offset"), len(offsets.indexes)),
            "tombstone": lambda: pa.array(~offsets.is_alive),
            "transactional": lambda: pa.array(chunk.attributes[offsets.indexes] & TRANSACTIONAL_BIT != 0),
            "producer_id": lambda: _null_if_minus_one(self._of_batch("producer_id")),
            "producer_epoch": lambda: _null_if_minus_one(self._of_batch("producer_epoch"), pa.int32()),
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
        return maker() if maker else pa.nulls(len(self._offsets.indexes), kind)

    def group(self) -> pa.Array:
        return self._string(self._offsets.key_at + _TOPIC_AT, self._offsets.group_size)

    def _of_batch(self, name: str) -> Array:
        return _array(getattr(self._chunk.headers, name))[self._chunk.batch[self._offsets.indexes]]

    def _key_partition(self) -> Array:
        offsets = self._offsets
        partition_at = offsets.key_at + _PARTITION_AT + offsets.group_size + offsets.topic_size
        return gather(self._chunk.data, partition_at, ">i4")

    def _leader_epoch(self) -> pa.Array:
        has_epoch = self._offsets.is_alive & (self._offsets.version == 3)
        epochs = np.where(has_epoch, gather(self._chunk.data, self._offsets.value_at + _EPOCH_AT, ">i4"), -1)
        return _null_if_minus_one(epochs, pa.int32())

    def _metadata(self) -> pa.Array:
        offsets = self._offsets
        metadata_at = offsets.value_at + _metadata_at(offsets.version) + 2
        return self._string(metadata_at, offsets.metadata_size, offsets.is_alive)

    def _time(self, delta: int) -> Array:
        """The commit timestamps, or the field ``delta`` bytes after them; 0 where a record has no such field."""
        offsets = self._offsets
        commit_time_at = offsets.value_at + _metadata_at(offsets.version) + 2 + offsets.metadata_size
        has_field = offsets.is_alive & ((offsets.version == 1) | (delta == 0))
        return gather(self._chunk.data, np.where(has_field, commit_time_at + delta, 0), ">i8")

    def _number(self, delta: int, form: str, is_present: Array, kind: pa.DataType) -> pa.Array:
        return pa.array(gather(self._chunk.data, self._offsets.value_at + delta, form), kind, mask=~is_present)

    def _string(self, at: Array, size: Array, is_present: Array | None = None) -> pa.Array:
        """Substrings of the chunk, in its order. Raises ArrowInvalid if one is not UTF-8."""
        count = len(at)
        if is_present is not None:
            at = np.maximum.accumulate(np.where(is_present, at + size, 0)) - np.where(is_present, size, 0)
        bounds = np.empty(2 * count + 1, dtype=np.int32)
        bounds[0:-1:2], bounds[1::2] = at, at + size
        bounds[-1] = bounds[-2] if count else 0
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self._chunk.data)]
        pieces = pa.Array.from_buffers(pa.binary(), 2 * count, buffers)
        even_indexes = pa.array(np.arange(0, 2 * count, 2), mask=None if is_present is None else ~is_present)
        return pieces.take(even_indexes).cast(pa.string())


def _times(time_ms: Array, is_present: Array | None = None) -> pa.Array:
    fits = (time_ms >= 0) & (time_ms <= MAX_TIME_MS)
    if is_present is not None:
        fits &= is_present
    return pa.array(np.where(fits, time_ms, 0) * 1000, pa.timestamp("us", "UTC"), mask=~fits)


def _null_if_minus_one(numbers: Array, kind: pa.DataType | None = None) -> pa.Array:
    return pa.array(numbers, kind or pa.int64(), mask=numbers == -1)


def _merged(
    plain: pa.RecordBatch, plain_indexes: Array, others: pa.RecordBatch, other_indexes: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Both batches in log order."""
    if not plain.num_rows:
        yield others
        return
    order = np.argsort(np.concatenate([plain_indexes, np.asarray(other_indexes, dtype=np.int64)]), kind="stable")
    combined = pa.Table.from_batches([plain, others]).combine_chunks().take(pa.array(order))
    yield from combined.combine_chunks().to_batches()


def _array(column: Any) -> Array:
    return np.asarray(column, dtype=np.int64)
