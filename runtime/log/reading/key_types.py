"""Counts the records of a partition by the type of their key, with numpy a chunk at a time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from ...disk.disk import Disk
from ..format.batch import CONTROL_BIT
from ..format.errors import DamagedBatch
from ..manifest import log_files
from .backwards import BatchChunk, chunks_newest_first
from .chunk_columns import ChunkColumns, read_columns

KEY_TYPE_BYTES = 2


def count_key_types(folder: Path, disk: Disk, *, fast: bool | None = None) -> Counter[int]:
    """Numbers of records by key type; those in damaged and control batches are not counted.

    ``fast`` as in ``read_spans``. Raises OSError, ManifestError and UnsupportedCompression.
    """
    counts: Counter[int] = Counter()
    for chunk in chunks_newest_first(disk, log_files(disk, folder).files, lambda _damage: None):
        try:
            counts.update(_count(read_columns(chunk, fast)))
        except DamagedBatch:
            for start in chunk.starts:
                counts.update(_count_batch(chunk._replace(starts=[start]), fast))
    return counts


def _count_batch(batch: BatchChunk, fast: bool | None) -> dict[int, int]:
    try:
        return _count(read_columns(batch, fast))
    except DamagedBatch:
        return {}


def _count(columns: ChunkColumns) -> dict[int, int]:
    spans, data = columns.spans, columns.chunk.data
    if isinstance(spans.key_at, list):
        attributes = spans.headers.attributes
        rows = zip(spans.key_at, spans.key_size, spans.batch, strict=True)
        return Counter(
            int.from_bytes(data[at : at + KEY_TYPE_BYTES], signed=True)
            for at, size, batch in rows
            if size >= KEY_TYPE_BYTES and not attributes[batch] & CONTROL_BIT
        )
    import numpy as np

    is_counted = (spans.key_size >= KEY_TYPE_BYTES) & (spans.headers.attributes[spans.batch] & CONTROL_BIT == 0)
    at, buffer = spans.key_at[is_counted], np.frombuffer(data, np.uint8)
    key_types, counts = np.unique(
        (buffer[at].astype(np.int8).astype(np.int64) << 8) | buffer[at + 1], return_counts=True
    )
    return dict(zip(key_types.tolist(), counts.tolist(), strict=True))
