"""What the members of a consumer group subscribe to, read from the bytes that they send. Pure.

Every version of the consumer protocol's subscription begins as version 0 does: a version, the topics, user data. So
the beginning is all that is read, and later versions of clients change nothing here (Kafka does the same).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

CONSUMER = "consumer"
"""The protocol type whose subscriptions can be read. Kafka Connect's and Schema Registry's cannot."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all the subscriptions together; None if one of them cannot be read."""
    topics: set[str] = set()
    try:
        for subscription in set(subscriptions):
            topics.update(read_beginning(subscription)[0])
    except (struct.error, ValueError):
        return None
    return frozenset(topics)


def read_beginning(subscription: bytes) -> tuple[list[str], bytes | None, int]:
    """Topics, user data, and where what later versions have begins: what all versions have in common.

    Raises struct.error or ValueError for what is no subscription.
    """
    (count,) = _INT32.unpack_from(subscription, _INT16.size)
    position = _INT16.size + _INT32.size
    if not 0 <= count <= len(subscription):
        raise ValueError(f"{count} topics in {len(subscription)} bytes")
    topics = []
    for _ in range(count):
        (size,) = _INT16.unpack_from(subscription, position)
        start, position = position + _INT16.size, position + _INT16.size + size
        if size < 0:
            raise ValueError(f"a topic of {size} bytes")
        topics.append(subscription[start:position].decode("utf-8"))
    (size,) = _INT32.unpack_from(subscription, position)
    start, position = position + _INT32.size, position + _INT32.size + max(size, 0)
    if position > len(subscription):
        raise ValueError("the user data are cut off")
    return topics, None if size < 0 else subscription[start:position], position
