"""What assignors of ours put into a subscription's user data, and what they find there.

Two formats are Kafka's: that of ``sticky``, the partitions of the assignment before and its generation, and that of
``cooperative-sticky``, a generation. librdkafka writes the former for both. The third is ours, a weight.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ...client.assignment import read_topic_partitions
from .base import NO_GENERATION, NO_WEIGHT, Partition
from .wire import write_places

# A share of less than a billionth is none; and within these limits floats tell any two loads apart.
WEIGHT_MIN = 1e-9
WEIGHT_MAX = 1e9

_INT32 = struct.Struct(">i")
# kafka-python 3 writes a version in front, which Kafka's format does not have. There it would mean 65,536 topics.
_KAFKA_PYTHON = b"\0\1"
_WEIGHT = struct.Struct(">4sHd")  # our mark, a version, the weight; later versions may have more behind
_MARK = b"cbwt"
_VERSION = 0


class Claims(NamedTuple):
    """What a member holds, and since which generation."""

    partitions: tuple[Partition, ...] = ()
    generation: int = NO_GENERATION


def write_claims(claims: Claims) -> bytes:
    """Version 1 of StickyAssignorUserData."""
    return write_places(claims.partitions) + _INT32.pack(claims.generation)


def read_claims(data: bytes) -> Claims:
    """Versions 0 (without a generation) and 1. No claims for anything else: such a member begins anew."""
    try:
        partitions, position = read_topic_partitions(data, len(_KAFKA_PYTHON) if data.startswith(_KAFKA_PYTHON) else 0)
    except (struct.error, ValueError):
        return Claims()
    return Claims(tuple(partitions), _read_generation(data, position))


def write_generation(generation: int) -> bytes:
    return _INT32.pack(generation)


def read_generation(data: bytes) -> int:
    """Java's clients write four bytes; librdkafka writes claims, with the generation behind them. -1 for neither."""
    return _read_generation(data, 0) if len(data) == _INT32.size else read_claims(data).generation


def _read_generation(data: bytes, position: int) -> int:
    return int(_INT32.unpack_from(data, position)[0]) if position + _INT32.size <= len(data) else NO_GENERATION


def write_weight(weight: float) -> bytes:
    """Raises ValueError for what no share can be in proportion to."""
    if not is_weight(weight):
        raise ValueError(
            f"a weight of {weight!r}: expected {WEIGHT_MIN:g} to {WEIGHT_MAX:g}; a 2 has twice the share of a 1"
        )
    return _WEIGHT.pack(_MARK, _VERSION, weight)


def read_weight(data: bytes) -> float:
    """1 for user data of another kind, and for a weight that makes no sense."""
    if len(data) < _WEIGHT.size or not data.startswith(_MARK):
        return NO_WEIGHT
    weight = float(_WEIGHT.unpack_from(data)[2])
    return weight if is_weight(weight) else NO_WEIGHT


def is_weight(weight: object) -> bool:
    return isinstance(weight, int | float) and not isinstance(weight, bool) and WEIGHT_MIN <= weight <= WEIGHT_MAX
