"""Segments: batches of a partition as one value of the store."""

from __future__ import annotations

from collections.abc import Sequence

from ...actors.callboard_error import CallboardError
from ..disk.crc import crc32c
from ..log.format.batch import offsets_of
from .keys import segment_key
from .manifest import Segment
from .store import Store


class SegmentDamaged(CallboardError):
    """A segment that a manifest names is missing, or has other bytes than were written."""


async def write_segment(store: Store, partition: int, version: int, batches: Sequence[bytes], token: bytes) -> Segment:
    """``version``: that of the manifest that will name it. ``batches`` are complete and follow each other."""
    data = b"".join(batches)
    key = segment_key(partition, version, token.hex())
    await store.put(key, data)
    return Segment(key, offsets_of(batches[0])[0], offsets_of(batches[-1])[1] + 1, len(data), crc32c(data))


async def read_segment(store: Store, segment: Segment) -> bytes:
    """Raises SegmentDamaged."""
    [data] = await store.get([segment.key])
    if data is None:
        raise SegmentDamaged(f"{segment.key} is missing in the store")
    if len(data) != segment.size or crc32c(data) != segment.crc:
        raise SegmentDamaged(f"{segment.key} has {len(data)} bytes, expected {segment.size} with CRC {segment.crc}")
    return data
