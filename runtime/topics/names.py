"""Kafka's rules for topic names (``org.apache.kafka.common.internals.Topic``), and the names of internal topics."""

from __future__ import annotations

from ...actors.errors import CoordinatorError, ErrorCode
from ..settings.table import OFFSETS_TOPIC, TOPIC_NAME, TOPIC_NAME_MAX, TRANSACTIONS_TOPIC

INTERNAL_TOPICS = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC))
METADATA_TOPIC = "__cluster_metadata"  # Kafka's controller log; the name is reserved


def check_name(name: str) -> None:
    """Raise CoordinatorError (INVALID_TOPIC_EXCEPTION) unless ``name`` is a valid topic name in Kafka."""
    if name in (".", "..") or not TOPIC_NAME.fullmatch(name):
        raise CoordinatorError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"bad topic name {name!r}: expected 1 to {TOPIC_NAME_MAX} of the characters "
            "a-z A-Z 0-9 . _ - (and not . or ..)",
        )


def is_internal(name: str) -> bool:
    """Whether the topic is internal: clients may not produce to it."""
    return name in INTERNAL_TOPICS


def metric_name(name: str) -> str:
    """The name in Kafka's metrics, with underscores for dots. Kafka refuses a topic whose metric name exists."""
    return name.replace(".", "_")
