"""Decoding of the assignments that group leaders send to consumers (Kafka's consumer protocol).

Every version begins like version 0: a version, then topics with their partitions. The rest is specific to the assignor.
"""

from __future__ import annotations

import struct

from ..steps import ITEMS_PER_STEP, NAMES_PER_STEP, Steps, pieces, run_steps

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class InvalidLength(ValueError):
    """A length that is negative or greater than the number of bytes that follow."""


def read_assignment(data: bytes) -> tuple[tuple[str, int], ...] | None:
    """Return the sorted topic partitions; none for no bytes (not assigned yet), None for invalid bytes."""
    if not data:
        return ()
    try:
        return tuple(sorted(read_topic_partitions(data, _INT16.size)[0]))
    except (struct.error, ValueError):
        return None


def read_topic_partitions(data: bytes, position: int) -> tuple[list[tuple[str, int]], int]:
    """Decode an array of topics with partitions, which several messages of Kafka have; return it and its end.

    Raises InvalidLength, struct.error if the bytes end within a number, and ValueError for text that is not UTF-8.
    """
    return run_steps(topic_partitions_in_steps(data, position))


def topic_partitions_in_steps(data: bytes, position: int) -> Steps[tuple[list[tuple[str, int]], int]]:
    """The same in steps: a member may own hundreds of thousands of partitions."""
    topic_partitions: list[tuple[str, int]] = []
    topics, position = _count(data, position)
    for topic_number in range(topics):
        if topic_number % ITEMS_PER_STEP == 0:
            yield
        (size,) = _INT16.unpack_from(data, position)
        start, position = position + _INT16.size, position + _INT16.size + size
        if size < 0 or position > len(data):
            raise InvalidLength(f"a topic of {size} bytes")
        topic = data[start:position].decode("utf-8")
        partitions, position = _count(data, position)
        for piece in pieces(struct.unpack_from(f">{partitions}i", data, position), NAMES_PER_STEP):
            topic_partitions += [(topic, number) for number in piece]
            if len(piece) == NAMES_PER_STEP:
                yield
        position += partitions * _INT32.size
    return topic_partitions, position


def _count(data: bytes, position: int) -> tuple[int, int]:
    (count,) = _INT32.unpack_from(data, position)
    position += _INT32.size
    if not 0 <= count <= len(data) - position:
        raise InvalidLength(f"{count} items in {len(data) - position} bytes")
    return count, position
