"""Kafka's consumer protocol: what members tell their leader, and what it tells them, byte for byte as Kafka writes it.

Version 0 of a subscription has topics and user data, 1 adds owned partitions (KIP-429), 2 the generation of these
(KIP-792), 3 a rack (KIP-881). Assignments look the same in all four. Both are read as Kafka does: newer versions as the
newest that is known, older ones with what they lack left empty, and what follows is passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from ....actors.group.subscription import read_beginning
from ...client.assignment import read_topic_partitions
from .base import NO_GENERATION, Partition

NEWEST = 3
"""The newest version of both messages, which clients write."""

STRING_BYTES_MAX = 32_767  # a string's length is an int16

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class Subscription(NamedTuple):
    """What a member says when it joins. ``user_data`` is its assignor's; None is Kafka's null."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[Partition, ...] = ()
    generation: int = NO_GENERATION
    rack_id: str | None = None


class Assigned(NamedTuple):
    """What a leader says to a member."""

    partitions: tuple[Partition, ...]
    user_data: bytes | None = None


def write_subscription(subscription: Subscription, version: int = NEWEST) -> bytes:
    """Topics and partitions come sorted, as Java's clients write them. Raises ValueError for a version not in 0..3."""
    _check(version)
    parts = [_INT16.pack(version), _INT32.pack(len(subscription.topics))]
    parts += (_string(topic) for topic in sorted(subscription.topics))
    parts.append(_bytes(subscription.user_data))
    if version >= 1:
        parts.append(write_places(subscription.owned))
    if version >= 2:
        parts.append(_INT32.pack(subscription.generation))
    if version >= 3:
        parts.append(_INT16.pack(-1) if subscription.rack_id is None else _string(subscription.rack_id))
    return b"".join(parts)


def read_subscription(data: bytes) -> Subscription | None:
    """None for bytes that make no sense."""
    try:
        return _read_subscription(data)
    except (struct.error, ValueError):
        return None


def _read_subscription(data: bytes) -> Subscription:
    version = _read_version(data)
    topics, user_data, position = read_beginning(data)
    owned: list[Partition] = []
    generation, rack_id = NO_GENERATION, None
    if version >= 1:
        owned, position = read_topic_partitions(data, position)
    if version >= 2:
        (generation,) = _INT32.unpack_from(data, position)
    if version >= 3:
        rack_id = _read_string(data, position + _INT32.size)
    return Subscription(tuple(topics), user_data, tuple(owned), generation, rack_id)


def write_assignment(assigned: Assigned, version: int = NEWEST) -> bytes:
    """Raises ValueError for a version not in 0..3. Also for no partitions this has bytes: Java's client needs them."""
    _check(version)
    return _INT16.pack(version) + write_places(assigned.partitions) + _bytes(assigned.user_data)


def read_assignment(data: bytes) -> Assigned | None:
    """None for bytes that make no sense; nothing assigned for no bytes, which is what a leader's silence looks like."""
    if not data:
        return Assigned(())
    try:
        _read_version(data)
        partitions, position = read_topic_partitions(data, _INT16.size)
        return Assigned(tuple(partitions), _read_bytes(data, position))
    except (struct.error, ValueError):
        return None


def write_places(partitions: Iterable[Partition]) -> bytes:
    """Partitions by topic, sorted."""
    topics = [(topic, [number for _, number in rows]) for topic, rows in groupby(sorted(partitions), itemgetter(0))]
    parts = [_INT32.pack(len(topics))]
    for topic, numbers in topics:
        parts += _string(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return b"".join(parts)


def _check(version: int) -> None:
    if not 0 <= version <= NEWEST:
        raise ValueError(f"version {version} of the consumer protocol cannot be written; it has 0 to {NEWEST}")


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) > STRING_BYTES_MAX:
        raise ValueError(f"{text[:60]!r}... has {len(data)} bytes; Kafka's strings have at most {STRING_BYTES_MAX}")
    return _INT16.pack(len(data)) + data


def _bytes(data: bytes | None) -> bytes:
    return _INT32.pack(-1) if data is None else _INT32.pack(len(data)) + data


def _read_version(data: bytes) -> int:
    (version,) = _INT16.unpack_from(data)
    if version < 0:
        raise ValueError(f"version {version}")
    return int(version)


def _read_string(data: bytes, position: int) -> str | None:
    (size,) = _INT16.unpack_from(data, position)
    field = _field(data, position + _INT16.size, size)
    return None if field is None else field.decode()


def _read_bytes(data: bytes, position: int) -> bytes | None:
    (size,) = _INT32.unpack_from(data, position)
    return _field(data, position + _INT32.size, size)


def _field(data: bytes, start: int, size: int) -> bytes | None:
    if start + size > len(data):
        raise ValueError(f"{size} bytes announced, {len(data) - start} there")
    return None if size < 0 else data[start : start + size]
