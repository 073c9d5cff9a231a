"""Generates topic ids as Kafka does."""

from __future__ import annotations

from itertools import count
from uuid import NAMESPACE_OID, UUID, uuid5

from ...actors.ports import Random
from ..settings.table import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from .store import id_text


def new_topic_id(random: Random) -> UUID:
    while not _is_valid_in_kafka(topic_id := UUID(random.uuid())):
        pass
    return topic_id


def transactions_topic_id(offsets_topic_id: UUID) -> UUID:
    """The id of the transactions topic, derived from that of the offsets topic, which is the one that is stored."""
    return _derived_id(offsets_topic_id, TRANSACTIONS_TOPIC)


def shared_offsets_topic_id(cluster_id: str) -> UUID:
    """The id of the offsets topic on all nodes of a cluster."""
    return _derived_id(NAMESPACE_OID, f"{cluster_id}-{OFFSETS_TOPIC}")


def _derived_id(namespace: UUID, name: str) -> UUID:
    ids = (uuid5(namespace, f"{name}-{number}") for number in count())
    return next(topic_id for topic_id in ids if _is_valid_in_kafka(topic_id))


def _is_valid_in_kafka(topic_id: UUID) -> bool:
    """Kafka's ids never begin with "-", so tools cannot mistake them for options."""
    return not id_text(topic_id).startswith("-")
