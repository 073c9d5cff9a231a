"""The iteration order of Java's HashMap and HashSet, which decides which member Kafka's assignors serve first.

A table iterates by bucket, and within a bucket in the order of insertion. The number of buckets depends on how the
table was made, so the functions here are named after that. Sizes are those of Java 17. Not reproduced: buckets with
more than eight keys in a table of 64 or more, which become trees.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from struct import Struct
from typing import TypeVar

from ...javahash import cached_java_hash

K = TypeVar("K")

DEFAULT_CAPACITY = 16

_BUCKET_MAX = 8
_TREES_FROM_CAPACITY = 64
_INT_BITS = 0xFFFFFFFF
_LONG_BITS = 0xFFFFFFFFFFFFFFFF
_FIBONACCI = 0x9E3779B97F4A7C15
_FOUR_INTS = Struct(">4I")


def uuid_hash(topic_id: bytes) -> int:
    """The hash code of a ``java.util.UUID`` and of Kafka's ``Uuid``, unsigned: its four ints, combined by xor."""
    first, second, third, fourth = _FOUR_INTS.unpack(topic_id)
    code: int = first ^ second ^ third ^ fourth
    return code


def grown_map_order(keys: Iterable[K], hash_code: Callable[[K], int]) -> list[K]:
    """The keys of a map that began empty with the default capacity, inserted in this order."""
    return _in_order(list(keys), hash_code, DEFAULT_CAPACITY)


def copied_set_order(keys: Iterable[K], hash_code: Callable[[K], int], size: int | None = None) -> list[K]:
    """The keys of ``new HashSet<>(collection)``. ``size``: of the collection, if it reports more than it contains."""
    inserted = list(keys)
    return _in_order(inserted, hash_code, copied_set_capacity(len(inserted) if size is None else size))


def copied_map_order(keys: Iterable[K], hash_code: Callable[[K], int]) -> list[K]:
    """The keys of ``new HashMap<>(map)``."""
    inserted = list(keys)
    return _in_order(inserted, hash_code, 1 << (len(inserted) * 4 // 3).bit_length())


def copied_set_capacity(size: int) -> int:
    """The number of buckets of a ``new HashSet<>(collection)`` with a collection of this size."""
    return 1 << (max(size * 4 // 3 + 1, DEFAULT_CAPACITY) - 1).bit_length()


def member_order(member_ids: Iterable[str]) -> list[str]:
    return grown_map_order(member_ids, cached_java_hash)


def member_order_of(some: Iterable[str], member_ids: Collection[str]) -> list[str]:
    """Some members in the order that they have among all. ``some`` are in the order of ``member_ids``."""
    first_hashes = [_spread(cached_java_hash(member_id)) for member_id in islice(member_ids, _TREES_FROM_CAPACITY)]
    mask = _final_capacity(first_hashes, DEFAULT_CAPACITY, len(member_ids)) - 1
    return sorted(some, key=lambda member_id: _spread(cached_java_hash(member_id)) & mask)


def timeline_order(member_ids: Iterable[str], size_max: int) -> list[str]:
    """The keys of a Kafka ``TimelineHashMap`` that has had ``size_max`` entries, inserted in this order.

    The slot is a multiplicative hash. A slot with several keys is iterated from its end.
    """
    bits = timeline_bits(size_max)
    last_first = list(member_ids)
    last_first.reverse()
    return sorted(last_first, key=lambda member_id: _timeline_slot(cached_java_hash(member_id), bits))


def timeline_bits(size_max: int) -> int:
    """The logarithm of the number of slots of a ``TimelineHashMap`` that has had so many entries."""
    bits = 1
    while (size_max + 1) * 3 > 4 << bits:
        bits += 1
    return bits


def _timeline_slot(hash_code: int, bits: int) -> int:
    return (hash_code * _FIBONACCI & _LONG_BITS) >> 64 - bits


def topic_order(topic_ids: Iterable[bytes]) -> list[bytes]:
    return grown_map_order(topic_ids, uuid_hash)


def partition_order(numbers: Sequence[int]) -> list[int]:
    return copied_set_order(numbers, _int_hash)


def _int_hash(number: int) -> int:
    return number


def _in_order(keys: list[K], hash_code: Callable[[K], int], capacity: int) -> list[K]:
    if len(keys) < 2:  # the partitions of most members
        return keys
    hashes = {key: _spread(hash_code(key)) for key in keys}
    first_hashes = list(islice(hashes.values(), _TREES_FROM_CAPACITY))
    mask = _final_capacity(first_hashes, capacity, len(hashes)) - 1
    return sorted(hashes, key=lambda key: hashes[key] & mask)


def _spread(hash_code: int) -> int:
    return (hash_code & _INT_BITS) ^ ((hash_code & _INT_BITS) >> 16)


def _final_capacity(first_hashes: list[int], capacity: int, key_count: int) -> int:
    """The number of buckets after ``key_count`` keys were inserted, of which the first 64 have these hashes.

    A table of less than 64 buckets also grows if a bucket is too full. A larger one grows by the number of keys only.
    """
    counts = [0] * capacity
    for size, value in enumerate(first_hashes, 1):
        if capacity >= _TREES_FROM_CAPACITY:
            break
        counts[value & (capacity - 1)] += 1
        grows = counts[value & (capacity - 1)] > _BUCKET_MAX
        for is_needed in (grows, size > (capacity * 2 if grows else capacity) * 3 // 4):
            if is_needed:
                capacity *= 2
                counts = _bucket_sizes(first_hashes[:size], capacity)
    while key_count > capacity * 3 // 4:
        capacity *= 2
    return capacity


def _bucket_sizes(hashes: list[int], capacity: int) -> list[int]:
    counts = [0] * capacity
    for value in hashes:
        counts[value & (capacity - 1)] += 1
    return counts
