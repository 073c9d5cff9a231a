"""A chunk of batches with the positions of its records' keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from ..format.batch import CONTROL_BIT, TRANSACTIONAL_BIT, inflate_buffer
from ..format.errors import UnsupportedCompression
from ..format.varint import decode_signed
from .backwards import BatchChunk
from .columns import Column, RecordSpans, as_list
from .spans import read_spans

Bounds = list[int] | Mapping[int, int]
TRANSACTION_BITS = TRANSACTIONAL_BIT | CONTROL_BIT


class ChunkColumns:
    """A chunk with the columns of its records.

    The records that are looked at one by one need their bounds as plain numbers. These are made for all records on
    first use, or by ``select`` for some only.
    """

    def __init__(self, chunk: BatchChunk, spans: RecordSpans) -> None:
        self.chunk = chunk
        self.spans = spans

    @cached_property
    def key_starts(self) -> Bounds:
        """Where each record's key begins, by the record's index."""
        return as_list(self.spans.key_at)

    @cached_property
    def key_ends(self) -> Bounds:
        return as_list(self.spans.key_end)

    @cached_property
    def ends(self) -> Bounds:
        """Where each record ends."""
        return as_list(self.spans.end)

    def select(self, indexes: Column) -> ChunkColumns:
        """The same chunk and columns, with the bounds of the records at ``indexes`` only. For columns of numpy."""
        selected = ChunkColumns(self.chunk, self.spans)
        positions, spans = indexes.tolist(), self.spans
        selected.key_starts = dict(zip(positions, spans.key_at[indexes].tolist(), strict=True))
        selected.key_ends = dict(zip(positions, spans.key_end[indexes].tolist(), strict=True))
        selected.ends = dict(zip(positions, spans.end[indexes].tolist(), strict=True))
        return selected

    def key(self, index: int) -> bytes:
        return self.chunk.data[self.key_starts[index] : self.key_ends[index]]

    def value(self, index: int) -> bytes | None:
        """A record's value. ValueError if it exceeds the record."""
        data = self.chunk.data
        size, at = decode_signed(data, self.key_ends[index])
        if size == -1:
            return None
        if size < -1 or at + size > self.ends[index]:
            raise ValueError(f"a value of {size} bytes, {self.ends[index] - at} left")
        return data[at : at + size]

    def offset(self, index: int) -> int:
        return int(self.spans.offset[index])


def read_columns(chunk: BatchChunk, fast: bool | None) -> ChunkColumns:
    """The columns of a chunk, decompressed if necessary. ``fast`` as in ``read_spans``. Raises DamagedBatch."""
    data, starts, path, position = chunk
    try:
        spans = read_spans(data, starts, fast=fast, source=str(path), position=position)
    except UnsupportedCompression:
        data, starts = inflate_buffer(data, starts, str(path), position)
        spans = read_spans(data, starts, fast=fast, source=str(path), position=position)
    if any(bits & TRANSACTION_BITS for bits in as_list(spans.headers.attributes)):
        _ = spans.lazy  # computed here: an error for a bad value can still be limited to its batch
    return ChunkColumns(BatchChunk(data, starts, path, position), spans)
