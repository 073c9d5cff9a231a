"""Parser of the subscriptions of consumer groups. Pure.

Every version of the consumer protocol's subscription begins with the fields of version 0: version, topics, user data.
Only these are parsed, as in Kafka, so newer clients need no change here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from ..steps import ITEMS_PER_STEP, NAMES_PER_STEP, Steps, pieces, run_steps
from .members import GroupMember

CONSUMER_PROTOCOL_TYPE = "consumer"
"""The protocol type whose subscriptions can be parsed; those of Kafka Connect and Schema Registry cannot."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The union of the topics; None if one of the subscriptions is invalid."""
    return run_steps(read_topics(subscriptions))


def read_topics(subscriptions: Iterable[bytes]) -> Steps[frozenset[str] | None]:
    """The same in steps: a subscription may have tens of thousands of topics."""
    topics: set[str] = set()
    known: set[bytes] = set()
    try:
        for subscription in subscriptions:
            if subscription not in known:
                known.add(subscription)
                beginning = yield from beginning_in_steps(subscription)
                for piece in pieces(beginning[0], NAMES_PER_STEP):
                    topics.update(piece)
                    yield
    except (struct.error, ValueError):
        return None
    return frozenset(topics)


def read_beginning(subscription: bytes) -> tuple[list[str], bytes | None, int]:
    """Topics, user data, and the position of the fields of later versions.

    Raises struct.error or ValueError if the bytes are not a subscription.
    """
    return run_steps(beginning_in_steps(subscription))


def beginning_in_steps(subscription: bytes) -> Steps[tuple[list[str], bytes | None, int]]:
    (count,) = _INT32.unpack_from(subscription, _INT16.size)
    position = _INT16.size + _INT32.size
    if not 0 <= count <= len(subscription):
        raise ValueError(f"{count} topics in {len(subscription)} bytes")
    topics = []
    for number in range(count):
        if number % ITEMS_PER_STEP == 0:
            yield
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


class EveryTopic:
    """Contains every topic."""

    def __contains__(self, _topic: object) -> bool:
        return True


class Subscriptions:
    """The subscriptions of a generation. They are parsed on demand, which is rare."""

    __slots__ = ("_encoded", "_topics")

    def __init__(self) -> None:
        self._encoded: tuple[bytes, ...] | None = None  # until they are parsed
        self._topics: frozenset[str] | None = None

    def store(self, protocol_type: str | None, protocol: str | None, members: Iterable[GroupMember]) -> Steps[None]:
        """Store the subscriptions of the members for a protocol. Only those of consumers can be parsed."""
        self._encoded = self._topics = None
        if protocol_type == CONSUMER_PROTOCOL_TYPE:
            encoded: list[bytes] = []
            for piece in pieces(members):
                encoded += [member.metadata(protocol) for member in piece]
                yield
            self._encoded = tuple(encoded)

    def topics(self) -> Steps[frozenset[str] | None]:
        """The topics; None if unknown: no consumer group, no generation, or invalid bytes."""
        if self._encoded is not None:
            self._topics = yield from read_topics(self._encoded)
            self._encoded = None
        return self._topics
