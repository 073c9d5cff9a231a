"""Kafka's consumer protocol: the subscriptions of members and the assignments of their leader, in Kafka's exact bytes.

Version 0 of a subscription has topics and user data, 1 adds owned partitions (KIP-429), 2 their generation (KIP-792), 3
a rack (KIP-881). Assignments have the same format in all four. Both are decoded as in Kafka: a newer version as the
newest one here, fields that an older version lacks as empty; bytes after the last field are ignored.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from ..group.subscription import beginning_in_steps
from ..steps import Steps, run_steps
from .assignment import InvalidLength, topic_partitions_in_steps
from .base import NO_GENERATION, TopicPartition

VERSION_MAX = 3
"""The newest version of both messages, which clients write."""

STRING_BYTES_MAX = 32_767  # a string's length is an int16

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class Subscription(NamedTuple):
    """A member's subscription in JoinGroup. ``user_data``: the data of its assignor; None is Kafka's null."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    rack_id: str | None = None


class MemberAssignment(NamedTuple):
    """A member's assignment in SyncGroup."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


def write_subscription(subscription: Subscription, version: int = VERSION_MAX) -> bytes:
    """Topics and partitions are sorted, as in Java's clients. Raises ValueError for a version not in 0..3."""
    _check_version(version)
    parts = [_INT16.pack(version), _INT32.pack(len(subscription.topics))]
    parts += (_string(topic) for topic in sorted(subscription.topics))
    parts.append(_bytes(subscription.user_data))
    if version >= 1:
        parts.append(write_topic_partitions(subscription.owned))
    if version >= 2:
        parts.append(_INT32.pack(subscription.generation))
    if version >= 3:
        parts.append(_INT16.pack(-1) if subscription.rack_id is None else _string(subscription.rack_id))
    return b"".join(parts)


def read_subscription(data: bytes) -> Subscription | None:
    """None if it cannot be decoded."""
    return run_steps(subscription_in_steps(data))


def subscription_in_steps(data: bytes) -> Steps[Subscription | None]:
    """The same in steps: a member may subscribe to tens of thousands of topics, and own many more partitions."""
    try:
        return (yield from _read_subscription(data))
    except (struct.error, ValueError):
        return None


def _read_subscription(data: bytes) -> Steps[Subscription]:
    version = _read_version(data)
    topics, user_data, position = yield from beginning_in_steps(data)
    owned: list[TopicPartition] = []
    generation, rack_id = NO_GENERATION, None
    if version >= 1:
        owned, position = yield from topic_partitions_in_steps(data, position)
    if version >= 2:
        (generation,) = _INT32.unpack_from(data, position)
    if version >= 3:
        rack_id = _read_string(data, position + _INT32.size)
    return Subscription(tuple(topics), user_data, tuple(owned), generation, rack_id)


def write_assignment(assigned: MemberAssignment, version: int = VERSION_MAX) -> bytes:
    """Not empty even without partitions, as Java's client requires. Raises ValueError for a version not in 0..3."""
    _check_version(version)
    return _INT16.pack(version) + write_topic_partitions(assigned.partitions) + _bytes(assigned.user_data)


def read_assignment(data: bytes) -> MemberAssignment | None:
    """None if it cannot be decoded. No bytes, which a leader may leave for a member, are an empty assignment."""
    try:
        return run_steps(assignment_in_steps(data))
    except (struct.error, ValueError):
        return None


def assignment_in_steps(data: bytes) -> Steps[MemberAssignment]:
    """As ``read_assignment``, but raises InvalidLength, or another ValueError or struct.error for other faults."""
    if not data:
        return MemberAssignment(())
    _read_version(data)
    partitions, position = yield from topic_partitions_in_steps(data, _INT16.size)
    return MemberAssignment(tuple(partitions), _read_bytes(data, position))


def write_topic_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode partitions by topic, sorted."""
    topics = [(topic, [number for _, number in rows]) for topic, rows in groupby(sorted(partitions), itemgetter(0))]
    parts = [_INT32.pack(len(topics))]
    for topic, numbers in topics:
        parts += _string(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return b"".join(parts)


def _check_version(version: int) -> None:
    if not 0 <= version <= VERSION_MAX:
        raise ValueError(f"version {version} of the consumer protocol: expected 0 to {VERSION_MAX}")


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
        raise InvalidLength(f"a field of {size} bytes, but only {len(data) - start} are left")
    return None if size < 0 else data[start : start + size]
