"""The column ``consumer``: the fields of records of groups of the consumer protocol (KIP-848).

The records of all types share one structure; fields that a type does not have are null.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..runtime.log.format.consumer_records import (
    CurrentRecord,
    GroupEpochRecord,
    MemberRecord,
    Partition,
    RegexRecord,
    TargetEpochRecord,
    TargetRecord,
    TopicMetadataRecord,
)
from .columns import CONSUMER_FIELDS, timestamp_us

Fields = dict[str, Any]


def consumer_fields(record: Any) -> Fields | None:
    """The structure of a record; None for a tombstone of a record whose key is the group alone."""
    key = {name: value for name in ("member_id", "regex") if (value := getattr(record, name, None)) is not None}
    values = {} if record.value is None else _VALUES[type(record)](record.value)
    return {**dict.fromkeys(CONSUMER_FIELDS), **key, **values} if key or values else None


def _group_epoch(value: Any) -> Fields:
    return {"epoch": value.epoch, "metadata_hash": value.metadata_hash}


def _topic_metadata(value: Any) -> Fields:
    return {"topics": [topic.name for topic in value]}


def _member(value: Any) -> Fields:
    names = ("instance_id", "rack_id", "client_id", "client_host", "regex", "rebalance_timeout_ms", "server_assignor")
    session = None if value.classic is None else value.classic.session_timeout_ms
    return {
        **{name: getattr(value, name) for name in names},
        "topics": list(value.topics),
        "session_timeout_ms": session,
    }


def _target_epoch(value: Any) -> Fields:
    return {"epoch": value.epoch, "timestamp": timestamp_us(value.timestamp_ms or -1)}


def _target(value: Any) -> Fields:
    return {"partitions": [_partition(partition, None) for partition in value]}


def _current(value: Any) -> Fields:
    return {
        "epoch": value.member_epoch,
        "previous_epoch": value.previous_member_epoch,
        "state": value.state.name,
        "partitions": _with_epochs(value.assigned.items()),
        "pending_revocation": _with_epochs(value.pending_revocation.items()),
    }


def _regex(value: Any) -> Fields:
    return {"topics": list(value.topics), "timestamp": timestamp_us(value.timestamp_ms)}


def _with_epochs(epochs: Iterable[tuple[Partition, int]]) -> list[Fields]:
    return [_partition(partition, epoch) for partition, epoch in epochs]


def _partition(partition: Partition, epoch: int | None) -> Fields:
    topic_id, number = partition
    text = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
    return {"topic_id": text, "partition": number, "epoch": epoch}


_VALUES: Mapping[type, Callable[[Any], Fields]] = {
    GroupEpochRecord: _group_epoch,
    TopicMetadataRecord: _topic_metadata,
    MemberRecord: _member,
    TargetEpochRecord: _target_epoch,
    TargetRecord: _target,
    CurrentRecord: _current,
    RegexRecord: _regex,
}
