"""What a consumer was assigned, read from the bytes that its group's leader has sent (Kafka's consumer protocol).

Every version begins as version 0 does: a version, then topics with their partitions. The rest is the assignor's.
"""

from __future__ import annotations

import struct

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def read_assignment(data: bytes) -> tuple[tuple[str, int], ...] | None:
    """Topics and partitions, sorted; nothing for no bytes (not assigned yet), None for bytes that make no sense."""
    if not data:
        return ()
    try:
        return tuple(sorted(read_places(data, _INT16.size)[0]))
    except (struct.error, ValueError):
        return None


def read_places(data: bytes, position: int) -> tuple[list[tuple[str, int]], int]:
    """Topics with their partitions, as they stand in several of Kafka's messages, and where they end.

    Raises struct.error or ValueError for bytes that are nothing of the kind.
    """
    places: list[tuple[str, int]] = []
    topics, position = _count(data, position)
    for _ in range(topics):
        (size,) = _INT16.unpack_from(data, position)
        start, position = position + _INT16.size, position + _INT16.size + size
        if size < 0 or position > len(data):
            raise ValueError(f"a topic of {size} bytes")
        topic = data[start:position].decode("utf-8")
        partitions, position = _count(data, position)
        for _ in range(partitions):
            places.append((topic, _INT32.unpack_from(data, position)[0]))
            position += _INT32.size
    return places, position


def _count(data: bytes, position: int) -> tuple[int, int]:
    (count,) = _INT32.unpack_from(data, position)
    if not 0 <= count <= len(data):
        raise ValueError(f"{count} items in {len(data)} bytes")
    return count, position + _INT32.size
