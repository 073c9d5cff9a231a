"""Java's String.hashCode, with which clients and tools compute the partition of a group."""

from __future__ import annotations

import sys
from functools import lru_cache
from operator import mul

_INT_BITS = 0xFFFFFFFF
_UTF_16 = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"

_CHUNK = 256
"""Units that are added up at once: a group id may have 32,767 characters, and a request 50,000 groups."""

CACHED_HASHES = 32_768
"""Hashes that are kept, about 150 bytes each."""

CACHED_CHARS_MAX = 64
"""Clients make ids of 22 to 60 characters."""

_POWERS = tuple(pow(31, exponent, 1 << 32) for exponent in reversed(range(_CHUNK)))
_CHUNK_POWER = pow(31, _CHUNK, 1 << 32)


def java_hash(text: str) -> int:
    """Java's ``String.hashCode`` over UTF-16 code units, as a signed 32-bit integer.

    >>> java_hash("my-group")
    -1906497762
    """
    units: bytes | memoryview = (
        text.encode() if text.isascii() else memoryview(text.encode(_UTF_16, "surrogatepass")).cast("H")
    )
    rest = len(units) % _CHUNK
    value: int = sum(map(mul, units[:rest], _POWERS[_CHUNK - rest :])) & _INT_BITS
    for start in range(rest, len(units), _CHUNK):
        value = (value * _CHUNK_POWER + sum(map(mul, units[start : start + _CHUNK], _POWERS))) & _INT_BITS
    return value - (1 << 32) if value >> 31 else value


def cached_java_hash(text: str) -> int:
    """The same for the ids of members, which a group needs again and again."""
    return _short_hash(text) if len(text) <= CACHED_CHARS_MAX else java_hash(text)


@lru_cache(CACHED_HASHES)
def _short_hash(text: str) -> int:
    return java_hash(text)


def offsets_partition(group_id: str, partitions: int) -> int:
    """The partition of ``__consumer_offsets`` that a group belongs to.

    As in Kafka's ``Utils.abs``, the smallest int maps to 0.

    >>> offsets_partition("polygenelubricants", 50)
    0
    """
    value = java_hash(group_id)
    return 0 if value == -(1 << 31) else abs(value) % partitions


def hash_map_index(key: str, capacity: int = 16) -> int:
    """The bucket of a key in a Java HashMap of this capacity."""
    value = java_hash(key) & _INT_BITS
    return (value ^ (value >> 16)) & (capacity - 1)


def first_in_hash_map(keys: list[str], entries: int) -> str:
    """The key that an iteration over a Java HashMap with ``entries`` entries returns first."""
    capacity = 16
    while entries > capacity * 3 // 4:
        capacity *= 2
    return min(keys, key=lambda key: hash_map_index(key, capacity))
