"""The hash by which a group notices that a topic was created, has grown, was deleted, or was created again.

It is Kafka's, bit by bit (KIP-1101, Kafka 4.3.1). So a group that comes from a Kafka, or goes back to one, keeps its
epoch. Racks of replicas are part of Kafka's hash; topics here have none.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct

from xxhash import xxh3_64_intdigest

from ..ports import TopicsView
from ..steps import Steps, pieces, sorted_in_steps

CACHED_TOPICS = 16_384

_MAGIC = b"\0"  # the version of the hash of a topic
_INT = Struct("<I")
_LONG = Struct("<Q")
_BIG_LONGS = Struct(">QQ")
_SIGN = 1 << 63


def metadata_hash(topics: TopicsView, names: Iterable[str]) -> Steps[int]:
    """A signed 64-bit number; 0 if none of these topics exists."""
    known: list[str] = []
    for piece in pieces(names):
        known += (name for name in piece if topics.partition_count(name) is not None)
        yield
    hashes: list[bytes] = []
    for piece in pieces((yield from sorted_in_steps(known))):  # topic names are ASCII
        for name in piece:
            topic_id, count = topics.topic_id(name), topics.partition_count(name)
            if topic_id is not None and count is not None:
                hashes.append(topic_hash(topic_id, name, count))
        yield
    digest = xxh3_64_intdigest(b"".join(hashes)) if hashes else 0
    return digest - 2 * _SIGN if digest & _SIGN else digest


@lru_cache(CACHED_TOPICS)
def topic_hash(topic_id: bytes, name: str, partition_count: int) -> bytes:
    """That of one topic, as it goes into the hash of a group."""
    high, low = _BIG_LONGS.unpack(topic_id)
    text = name.encode("utf-16-le")
    numbers = Struct(f"<{partition_count + 1}I").pack(partition_count, *range(partition_count))
    data = b"".join((_MAGIC, _LONG.pack(high), _LONG.pack(low), text, _INT.pack(len(text) // 2), numbers))
    return _LONG.pack(xxh3_64_intdigest(data))
