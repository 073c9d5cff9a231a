"""Parses the subscriptions and assignments that consumers exchange through the coordinator.

Every version of Kafka's consumer protocol begins with the fields of version 0; only those are read. Other protocol
types (Kafka Connect, Schema Registry) have formats of their own, which are returned as raw bytes elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..runtime.log.format.errors import DamagedRecord
from ..runtime.log.format.fields import I16, I32, Reader

T = TypeVar("T")

CONSUMER = "consumer"
"""The protocol type of the groups whose members' bytes can be parsed."""


def parse_subscription(subscription: bytes) -> list[str] | None:
    """The topics that a member subscribes to; None if the bytes are not a subscription."""
    return _parse("subscription", subscription, lambda reader: [reader.string() for _ in range(reader.count())])


def parse_assignment(assignment: bytes) -> list[dict[str, Any]] | None:
    """The partitions assigned to a member; None if the bytes are not an assignment. Empty bytes: no partitions."""
    return _parse("assignment", assignment, _parse_partitions) if assignment else []


def _parse_partitions(reader: Reader) -> list[dict[str, Any]]:
    partitions = []
    for _ in range(reader.count()):
        topic = reader.string()
        partitions += [{"topic": topic, "partition": reader.number(I32)} for _ in range(reader.count())]
    return partitions


def _parse(name: str, data: bytes, parse_fields: Callable[[Reader], T]) -> T | None:
    reader = Reader(name, data)
    try:
        reader.number(I16)  # the version
        return parse_fields(reader)
    except DamagedRecord:
        return None
