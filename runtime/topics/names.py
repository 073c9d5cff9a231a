"""Which topic names Kafka refuses (``org.apache.kafka.common.internals.Topic``), and which are its own."""

from __future__ import annotations

from ...actors.errors import CoordinatorError, ErrorCode
from ..settings.table import OFFSETS_TOPIC, TOPIC_NAME, TOPIC_NAME_MAX, TRANSACTIONS_TOPIC

INTERNAL_TOPICS = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC))
METADATA_TOPIC = "__cluster_metadata"  # Kafka's controller log; no topic may be made in its name


def check_name(name: str) -> None:
    """Raise CoordinatorError (INVALID_TOPIC_EXCEPTION) unless Kafka would take ``name`` for a topic."""
    if name in (".", "..") or not TOPIC_NAME.fullmatch(name):
        raise CoordinatorError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"bad topic name {name!r}: expected 1 to {TOPIC_NAME_MAX} of the characters "
            "a-z A-Z 0-9 . _ - (and not . or ..)",
        )


def is_internal(name: str) -> bool:
    """Whether clients may not produce to it, and listings mark it."""
    return name in INTERNAL_TOPICS


def metric_name(name: str) -> str:
    """Names that are equal here collide: Kafka's metrics write a dot as an underscore, so it refuses the second."""
    return name.replace(".", "_")
