"""What members of a consumer group tell each other through the coordinator: subscriptions and assignments.

Every version of Kafka's consumer protocol begins as version 0 does, which is all that is read. Other protocols (Kafka
Connect's, Schema Registry's) have bytes of their own: those are given as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..runtime.log.format.errors import DamagedRecord
from ..runtime.log.format.fields import I16, I32, Reader

Found = TypeVar("Found")

CONSUMER = "consumer"
"""The protocol type of groups whose members' bytes can be read."""


def topics_of(subscription: bytes) -> list[str] | None:
    """The topics that a member subscribes to; None for what is no subscription."""
    return _read("subscription", subscription, lambda reader: [reader.string() for _ in range(reader.count())])


def assigned_by(assignment: bytes) -> list[dict[str, Any]] | None:
    """The partitions that a member was given; None for what is no assignment. No bytes are no partitions."""
    return _read("assignment", assignment, _assigned) if assignment else []


def _assigned(reader: Reader) -> list[dict[str, Any]]:
    found = []
    for _ in range(reader.count()):
        topic = reader.string()
        found += [{"topic": topic, "partition": reader.number(I32)} for _ in range(reader.count())]
    return found


def _read(what: str, data: bytes, read: Callable[[Reader], Found]) -> Found | None:
    reader = Reader(what, data)
    try:
        reader.number(I16)  # the version
        return read(reader)
    except DamagedRecord:
        return None
