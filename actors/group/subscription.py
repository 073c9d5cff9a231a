"""Parser of the subscriptions of consumer groups. Pure.

Every version of the consumer protocol's subscription begins with the fields of version 0: version, topics, user data.
Only these are parsed, as in Kafka, so newer clients need no change here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

CONSUMER = "consumer"
"""The protocol type whose subscriptions can be parsed; those of Kafka Connect and Schema Registry cannot."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The union of the topics; None if one of the subscriptions is invalid."""
    topics: set[str] = set()
    try:
        for subscription in set(subscriptions):
            topics.update(read_beginning(subscription)[0])
    except (struct.error, ValueError):
        return None
    return frozenset(topics)


def read_beginning(subscription: bytes) -> tuple[list[str], bytes | None, int]:
    """Topics, user data, and the position of the fields of later versions.

    Raises struct.error or ValueError if the bytes are not a subscription.
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
