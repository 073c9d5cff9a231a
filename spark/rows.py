"""Converts records that are decoded one by one to rows: dictionaries by column name. Missing columns are null."""

from __future__ import annotations

from typing import Any

from ..runtime.log.format.batch import Batch
from ..runtime.log.format.consumer_records import CONSUMER as CONSUMER_GROUP
from ..runtime.log.reading.partition_reader import (
    GroupRecord,
    GroupValue,
    MarkerRecord,
    MemberValue,
    OffsetRecord,
    PendingOffsetRecord,
    Record,
    group_id_of,
)
from .columns import timestamp_us
from .consumer_columns import consumer_fields
from .protocol import CONSUMER, parse_assignment, parse_subscription

Row = dict[str, Any]

_KEY_TYPE_BYTES = 2


def record_row(
    log_partition: int,
    batch: Batch,
    offset: int,
    time_ms: int,
    raw: tuple[bytes | None, bytes | None],
    record: Record | None,
) -> Row:
    """The row of one record. ``raw``: its key and value, used if ``record`` is None (a record of unknown type)."""
    row: Row = {
        "log_partition": log_partition,
        "log_offset": offset,
        "timestamp": timestamp_us(time_ms),
        "tombstone": raw[1] is None,
        "transactional": batch.is_transactional,
        "producer_id": _null_if_minus_one(batch.producer_id),
        "producer_epoch": _null_if_minus_one(batch.producer_epoch),
    }
    if isinstance(record, OffsetRecord | PendingOffsetRecord):
        return row | _offset_columns(record)
    if isinstance(record, GroupRecord):
        columns = _group_columns(record.value) if record.value else {}
        return row | {"kind": "group", "group": record.group_id} | columns
    if isinstance(record, MarkerRecord):
        return row | {"kind": "marker", "committed": record.committed}
    key, value = raw
    row = {**row, "key_type": _key_type(key), "key": key, "value": value}
    if getattr(record, "group_type", None) == CONSUMER_GROUP:
        return row | {"kind": "consumer", "group": group_id_of(record), "consumer": consumer_fields(record)}
    return row | {"kind": "unknown", "group": group_id_of(record)}


def _key_type(key: bytes | None) -> int | None:
    return int.from_bytes(key[:_KEY_TYPE_BYTES], "big", signed=True) if key else None


def damage_row(log_partition: int, offset: int, notice: str) -> Row:
    """A row for records that could not be read. ``offset``: the first missing offset."""
    return {"log_partition": log_partition, "log_offset": offset, "kind": "damage", "notice": notice}


def gap_row(log_partition: int, offset: int, notice: str) -> Row:
    """A row for records that compaction has removed. ``offset``: the first offset of the range that was read."""
    return {"log_partition": log_partition, "log_offset": offset, "kind": "gap", "notice": notice}


def _offset_columns(record: OffsetRecord | PendingOffsetRecord) -> Row:
    key = {"kind": "offset", "group": record.group_id, "topic": record.topic, "partition": record.partition}
    if (value := record.value) is None:
        return key
    return key | {
        "offset": value.offset,
        "leader_epoch": _null_if_minus_one(value.leader_epoch),
        "metadata": value.metadata,
        "commit_timestamp": timestamp_us(value.commit_timestamp_ms),
        "expire_timestamp": timestamp_us(value.expire_timestamp_ms),
    }


def _group_columns(value: GroupValue) -> Row:
    is_consumer = value.protocol_type == CONSUMER
    return {
        "generation": value.generation,
        "protocol_type": value.protocol_type,
        "protocol": value.protocol,
        "leader": value.leader,
        "current_state_timestamp": timestamp_us(value.current_state_timestamp_ms),
        "members": [_member(member, is_consumer) for member in value.members],
    }


def _member(member: MemberValue, is_consumer: bool) -> Row:
    return member._asdict() | {
        "topics": parse_subscription(member.subscription) if is_consumer else None,
        "assigned": parse_assignment(member.assignment) if is_consumer else None,
    }


def _null_if_minus_one(number: int) -> int | None:
    return None if number == -1 else number
