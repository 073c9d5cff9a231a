"""A chunk of batches with the positions of its records' keys and values."""

from __future__ import annotations

from typing import NamedTuple

from ..format.batch import CONTROL_BIT, TRANSACTIONAL_BIT, inflate_buffer
from ..format.errors import UnsupportedCompression
from ..format.varint import decode_signed
from .backwards import BatchChunk
from .columns import Column, RecordSpans, as_list
from .spans import read_spans

TRANSACTION_BITS = TRANSACTIONAL_BIT | CONTROL_BIT


class ChunkColumns(NamedTuple):
    """A chunk with the bounds of its keys, as lists, and the ends of its records."""

    chunk: BatchChunk
    spans: RecordSpans
    key_starts: list[int]
    key_ends: list[int]
    ends: Column

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
    key_bounds = as_list(spans.key_at), as_list(spans.key_end)
    return ChunkColumns(BatchChunk(data, starts, path, position), spans, *key_bounds, spans.end)
