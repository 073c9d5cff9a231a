"""Formats each record as a line of text or a JSON object. Records are not collected, because a log may be large.

A JSON object has ``log`` (offsets or transactions), ``log_partition``, ``log_offset``, ``timestamp_ms``, ``time``,
``kind`` and ``tombstone``, then the fields of its kind under the names of Kafka's schemas. Subscriptions and
assignments are lists of topics or partitions if they can be decoded, else base64.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from ....actors.assignors.assignment import read_assignment
from ....actors.group.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from ....actors.records import (
    GroupRecord,
    GroupStateRecord,
    GroupValue,
    MarkerRecord,
    MemberValue,
    OffsetRecord,
    PendingOffsetRecord,
    Record,
    TransactionRecord,
    UnknownRecord,
)
from ....actors.transactions.rules import TransactionState
from ...log.format.records import RECORD_TYPES
from ...log.partition import TOPIC
from .consumer_fields import CONSUMER_FIELDS, CONSUMER_FORMATTERS
from .scan import LoggedRecord

HEADER = ("time", "log", "partition", "offset", "kind", "what")


def kind_of(record: Record | None) -> str:
    """The name of the kind of record."""
    match record:
        case None:
            return "control"
        case MarkerRecord():
            return "marker"
        case TransactionRecord():
            return "transaction"
        case UnknownRecord():
            return "unknown"
        case PendingOffsetRecord():
            return "pending offset"
    return RECORD_TYPES[record.key_type].name


def as_json(item: LoggedRecord) -> dict[str, Any]:
    """The object for a line of JSON."""
    record = item.record
    location = {
        "log": "offsets" if item.partition.topic == TOPIC else "transactions",
        "log_partition": item.partition.number,
        "log_offset": item.offset,
        "timestamp_ms": item.timestamp_ms,
        "time": format_time(item.timestamp_ms),
    }
    if record is None:
        return {**location, "kind": "control", "tombstone": False}
    is_tombstone = not isinstance(record, MarkerRecord) and record.value is None
    make_fields: Callable[[Any], dict[str, Any]] = _FIELDS.get(type(record), _state_fields)
    return {**location, "kind": kind_of(record), "tombstone": is_tombstone, **make_fields(record)}


def format_line(item: LoggedRecord) -> str:
    """A line of text, in columns."""
    record = item.record
    kind = kind_of(record)
    make_text: Callable[[Any], str] = _FORMATTERS.get(type(record), _format_state)
    text = "" if record is None else make_text(record)
    log = "offsets" if item.partition.topic == TOPIC else "transactions"
    return format_columns(format_time(item.timestamp_ms) or "-", log, item.partition.number, item.offset, kind, text)


def format_columns(when: str, log: str, partition: int | str, offset: int | str, kind: str, text: str) -> str:
    return f"{when:24}  {log:12}  {partition:>9}  {offset:>12}  {kind:14}  {text}".rstrip()


def format_time(timestamp_ms: int) -> str | None:
    """A time in UTC, to the millisecond; None if it is out of range."""
    try:
        time = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return None if timestamp_ms < 0 else f"{time:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03}Z"


# Fields --------------------------------------------------------------------------------------------------------------


def _offset_fields(record: OffsetRecord | PendingOffsetRecord) -> dict[str, Any]:
    fields: dict[str, Any] = {"group": record.group_id, "topic": record.topic, "partition": record.partition}
    if record.value is not None:
        fields |= record.value._asdict()
    if isinstance(record, PendingOffsetRecord):
        fields |= {"producer_id": record.producer_id, "producer_epoch": record.producer_epoch}
    return fields


def _state_fields(record: GroupStateRecord) -> dict[str, Any]:
    """The fields of a record of a kind of group that has no columns of its own here."""
    fields: dict[str, Any] = {"group": record.group_id}
    return fields if record.value is None else fields | record.value._asdict()


def _group_fields(record: GroupRecord) -> dict[str, Any]:
    value = record.value
    if value is None:
        return {"group": record.group_id}
    members = [_member_fields(member, value) for member in value.members]
    return {"group": record.group_id, **value._asdict(), "members": members}


def _member_fields(member: MemberValue, group: GroupValue) -> dict[str, Any]:
    fields = member._asdict()
    assigned = topics = None
    if group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        topics, assigned = subscribed_topics([member.subscription]), read_assignment(member.assignment)
    fields["subscription"] = _base64(member.subscription) if topics is None else sorted(topics)
    fields["assignment"] = (
        _base64(member.assignment) if assigned is None else [f"{topic}-{number}" for topic, number in assigned]
    )
    return fields


def _marker_fields(record: MarkerRecord) -> dict[str, Any]:
    return record._asdict()


def _transaction_fields(record: TransactionRecord) -> dict[str, Any]:
    value = record.value
    if value is None:
        return {"transactional_id": record.transactional_id}
    partitions = [f"{topic}-{number}" for topic, number in sorted(value.partitions)]
    state = {"state": _state_name(value.state), "partitions": partitions}
    return {"transactional_id": record.transactional_id, **value._asdict(), **state}


def _unknown_fields(record: UnknownRecord) -> dict[str, Any]:
    value = None if record.value is None else _base64(record.value)
    return {"key_type": record.key_type, "key": _base64(record.key), "value": value}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _state_name(number: int) -> str | int:
    try:
        return TransactionState(number).name
    except ValueError:
        return number


_FIELDS: Mapping[type, Callable[[Any], dict[str, Any]]] = {
    OffsetRecord: _offset_fields,
    PendingOffsetRecord: _offset_fields,
    GroupRecord: _group_fields,
    MarkerRecord: _marker_fields,
    TransactionRecord: _transaction_fields,
    UnknownRecord: _unknown_fields,
    **CONSUMER_FIELDS,
}


# Text ----------------------------------------------------------------------------------------------------------------


def _format_offset(record: OffsetRecord | PendingOffsetRecord) -> str:
    key, value = f"{record.group_id} {record.topic}-{record.partition}", record.value
    if value is None:
        return f"{key} deleted"
    text = f"{key} = {value.offset}"
    if value.metadata:
        text += f" {value.metadata!r}"
    if isinstance(record, PendingOffsetRecord):
        text += f" (producer {record.producer_id}, epoch {record.producer_epoch})"
    return text


def _format_state(record: GroupStateRecord) -> str:
    return f"{record.group_id} {'deleted' if record.value is None else record.value}"


def _format_group(record: GroupRecord) -> str:
    value = record.value
    if value is None:
        return f"{record.group_id} deleted"
    members = ", ".join(f"{member.member_id} {_format_assignment(member, value)}".rstrip() for member in value.members)
    generation = f"{record.group_id} generation {value.generation}"
    return f"{generation} {value.protocol_type or '-'}/{value.protocol or '-'}: {members or 'no members'}"


def _format_assignment(member: MemberValue, group: GroupValue) -> str:
    assigned = _member_fields(member, group)["assignment"]
    return f"[{' '.join(assigned)}]" if isinstance(assigned, list) else ""


def _format_marker(record: MarkerRecord) -> str:
    return f"producer {record.producer_id}, epoch {record.producer_epoch}: {'commit' if record.committed else 'abort'}"


def _format_transaction(record: TransactionRecord) -> str:
    value = record.value
    if value is None:
        return f"{record.transactional_id} deleted"
    partitions = " ".join(f"{topic}-{number}" for topic, number in sorted(value.partitions))
    producer = f"producer {value.producer_id}, epoch {value.producer_epoch}"
    return f"{record.transactional_id} {_state_name(value.state)} ({producer}) {partitions}".rstrip()


def _format_unknown(record: UnknownRecord) -> str:
    return f"key type {record.key_type}, {len(record.key)} + {len(record.value or b'')} bytes"


_FORMATTERS: Mapping[type, Callable[[Any], str]] = {
    OffsetRecord: _format_offset,
    PendingOffsetRecord: _format_offset,
    GroupRecord: _format_group,
    MarkerRecord: _format_marker,
    TransactionRecord: _format_transaction,
    UnknownRecord: _format_unknown,
    **CONSUMER_FORMATTERS,
}
