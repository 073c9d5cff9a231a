"""Records that are decoded one by one, as rows: a dictionary by the names of columns, where what is missing is null."""

from __future__ import annotations

from typing import Any

from ..runtime.log.format.batch import Batch
from ..runtime.log.reading.partition_reader import (
    GroupRecord,
    GroupValue,
    MarkerRecord,
    MemberValue,
    OffsetRecord,
    PendingOffsetRecord,
    Record,
)
from .columns import micros
from .protocol import CONSUMER, assigned_by, topics_of

Row = dict[str, Any]

_KEY_TYPE_BYTES = 2


def row_of(
    log_partition: int,
    batch: Batch,
    offset: int,
    time_ms: int,
    raw: tuple[bytes | None, bytes | None],
    record: Record | None,
) -> Row:
    """One record's row. ``raw``: its key and value, given for records that nothing here knows; ``None`` is one."""
    row = {
        "log_partition": log_partition,
        "log_offset": offset,
        "timestamp": micros(time_ms),
        "tombstone": raw[1] is None,
        "transactional": batch.is_transactional,
        "producer_id": _unless_none(batch.producer_id),
        "producer_epoch": _unless_none(batch.producer_epoch),
    }
    if isinstance(record, OffsetRecord | PendingOffsetRecord):
        return row | _offset(record)
    if isinstance(record, GroupRecord):
        return row | {"kind": "group", "group": record.group_id} | (_group(record.value) if record.value else {})
    if isinstance(record, MarkerRecord):
        return row | {"kind": "marker", "committed": record.committed}
    key, value = raw
    key_type = int.from_bytes(key[:_KEY_TYPE_BYTES], "big", signed=True) if key else None
    return row | {"kind": "unknown", "key_type": key_type, "key": key, "value": value}


def damage_row(log_partition: int, offset: int, notice: str) -> Row:
    """What could not be read. ``offset``: the first that is missing."""
    return {"log_partition": log_partition, "log_offset": offset, "kind": "damage", "notice": notice}


def gap_row(log_partition: int, offset: int, notice: str) -> Row:
    """What is not there any more."""
    return {"log_partition": log_partition, "log_offset": offset, "kind": "gap", "notice": notice}


def _offset(record: OffsetRecord | PendingOffsetRecord) -> Row:
    place = {"kind": "offset", "group": record.group_id, "topic": record.topic, "partition": record.partition}
    if (value := record.value) is None:
        return place
    return place | {
        "offset": value.offset,
        "leader_epoch": _unless_none(value.leader_epoch),
        "metadata": value.metadata,
        "commit_timestamp": micros(value.commit_timestamp_ms),
        "expire_timestamp": micros(value.expire_timestamp_ms),
    }


def _group(value: GroupValue) -> Row:
    is_consumer = value.protocol_type == CONSUMER
    return {
        "generation": value.generation,
        "protocol_type": value.protocol_type,
        "protocol": value.protocol,
        "leader": value.leader,
        "current_state_timestamp": micros(value.current_state_timestamp_ms),
        "members": [_member(member, is_consumer) for member in value.members],
    }


def _member(member: MemberValue, is_consumer: bool) -> Row:
    return member._asdict() | {
        "topics": topics_of(member.subscription) if is_consumer else None,
        "assigned": assigned_by(member.assignment) if is_consumer else None,
    }


def _unless_none(number: int) -> int | None:
    return None if number == -1 else number
