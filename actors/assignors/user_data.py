"""The user data of subscriptions, by which an assignor informs the leader.

There are three formats. ``sticky`` writes the previous assignment's partitions and generation, ``cooperative-sticky`` a
generation; both are Kafka's formats, and librdkafka writes the former for both. The third is Callboard's: a weight.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from .assignment import read_topic_partitions
from .base import NO_GENERATION, NO_WEIGHT, TopicPartition
from .consumer_protocol import write_topic_partitions

WEIGHT_MIN = 1e-9
WEIGHT_MAX = 1e9
"""Within these limits floats can distinguish any two costs."""

_INT32 = struct.Struct(">i")
_KAFKA_PYTHON_VERSION = b"\0\1"
"""kafka-python 3 writes a version first. In Kafka's format, which has none, these bytes would mean 65,536 topics."""

_WEIGHT = struct.Struct(">4sHd")  # the mark, a version, the weight; later versions may append fields
_MARK = b"cbwt"
_VERSION = 0


class OwnedPartitions(NamedTuple):
    """The partitions that a member owns, and the generation in which it got them."""

    partitions: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


def write_owned_partitions(owned: OwnedPartitions) -> bytes:
    """Version 1 of StickyAssignorUserData."""
    return write_topic_partitions(owned.partitions) + _INT32.pack(owned.generation)


def read_owned_partitions(data: bytes) -> OwnedPartitions:
    """Read version 0 (without a generation) or 1. Other data mean no owned partitions."""
    try:
        start = len(_KAFKA_PYTHON_VERSION) if data.startswith(_KAFKA_PYTHON_VERSION) else 0
        partitions, position = read_topic_partitions(data, start)
    except (struct.error, ValueError):
        return OwnedPartitions()
    return OwnedPartitions(tuple(partitions), _read_generation(data, position))


def write_generation(generation: int) -> bytes:
    return _INT32.pack(generation)


def read_generation(data: bytes) -> int:
    """Java's clients write four bytes; librdkafka writes owned partitions and the generation. -1 for other data."""
    return _read_generation(data, 0) if len(data) == _INT32.size else read_owned_partitions(data).generation


def _read_generation(data: bytes, position: int) -> int:
    return int(_INT32.unpack_from(data, position)[0]) if position + _INT32.size <= len(data) else NO_GENERATION


def write_weight(weight: float) -> bytes:
    """Raises ValueError if it is no number or out of range."""
    if not is_weight(weight):
        raise ValueError(
            f"weight {weight!r}: expected {WEIGHT_MIN:g} to {WEIGHT_MAX:g}; weight 2 gets twice as much as weight 1"
        )
    return _WEIGHT.pack(_MARK, _VERSION, weight)


def read_weight(data: bytes) -> float:
    """1 for user data of another format, and for an invalid weight."""
    if len(data) < _WEIGHT.size or not data.startswith(_MARK):
        return NO_WEIGHT
    weight = float(_WEIGHT.unpack_from(data)[2])
    return weight if is_weight(weight) else NO_WEIGHT


def is_weight(weight: object) -> bool:
    return isinstance(weight, int | float) and not isinstance(weight, bool) and WEIGHT_MIN <= weight <= WEIGHT_MAX
