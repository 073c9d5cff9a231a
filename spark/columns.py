"""The columns of the data source, with Spark's type names and the equivalent Arrow types.

All kinds of records are in one log, so they share one table; columns that a kind does not have are null. Spark accepts
Arrow batches from a Python data source only if every type matches exactly, including the field names inside lists.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

MAX_TIME_MS = 253402300799999  # the end of the year 9999, the latest time in Python and SQL

RECORD_COLUMNS = {
    "log_partition": "int",
    "log_offset": "bigint",
    "timestamp": "timestamp",
    "kind": "string",
    "tombstone": "boolean",
    "transactional": "boolean",
    "producer_id": "bigint",
    "producer_epoch": "int",
}
OFFSET_COLUMNS = {
    "group": "string",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "leader_epoch": "int",
    "metadata": "string",
    "commit_timestamp": "timestamp",
    "expire_timestamp": "timestamp",
}
MEMBER_FIELDS = {
    "member_id": "string",
    "group_instance_id": "string",
    "client_id": "string",
    "client_host": "string",
    "rebalance_timeout_ms": "int",
    "session_timeout_ms": "int",
    "topics": "array<string>",
    "assigned": "array<struct<topic: string, partition: int>>",
    "subscription": "binary",
    "assignment": "binary",
}
MEMBERS_TYPE = f"array<struct<{', '.join(f'{name}: {kind}' for name, kind in MEMBER_FIELDS.items())}>>"
GROUP_COLUMNS = {
    "generation": "int",
    "protocol_type": "string",
    "protocol": "string",
    "leader": "string",
    "current_state_timestamp": "timestamp",
    "members": MEMBERS_TYPE,
}
CONSUMER_PARTITIONS = "array<struct<topic_id: string, partition: int, epoch: int>>"
CONSUMER_FIELDS = {
    "member_id": "string",
    "epoch": "int",
    "previous_epoch": "int",
    "metadata_hash": "bigint",
    "timestamp": "timestamp",
    "state": "string",
    "partitions": CONSUMER_PARTITIONS,
    "pending_revocation": CONSUMER_PARTITIONS,
    "topics": "array<string>",
    "regex": "string",
    "instance_id": "string",
    "rack_id": "string",
    "client_id": "string",
    "client_host": "string",
    "rebalance_timeout_ms": "int",
    "session_timeout_ms": "int",
    "server_assignor": "string",
}
CONSUMER_TYPE = f"struct<{', '.join(f'{name}: {kind}' for name, kind in CONSUMER_FIELDS.items())}>"
OTHER_COLUMNS = {
    "consumer": CONSUMER_TYPE,
    "committed": "boolean",
    "key_type": "int",
    "key": "binary",
    "value": "binary",
    "notice": "string",
}
ALL_COLUMNS = {**RECORD_COLUMNS, **OFFSET_COLUMNS, **GROUP_COLUMNS, **OTHER_COLUMNS}

ROW_KINDS = ("offset", "group", "consumer", "marker", "unknown", "damage", "gap")
"""The first five are kinds of records; ``damage`` and ``gap`` rows report missing records."""


def _list_type(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind))


_SCALAR_TYPES = {
    "boolean": pa.bool_(),
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "binary": pa.binary(),
}
_ARROW_TYPES = {
    **_SCALAR_TYPES,
    MEMBER_FIELDS["topics"]: _list_type(pa.string()),
    MEMBER_FIELDS["assigned"]: _list_type(pa.struct([("topic", pa.string()), ("partition", pa.int32())])),
}
_ARROW_TYPES[CONSUMER_PARTITIONS] = _list_type(
    pa.struct([("topic_id", pa.string()), ("partition", pa.int32()), ("epoch", pa.int32())])
)
_ARROW_TYPES[CONSUMER_TYPE] = pa.struct([(name, _ARROW_TYPES[kind]) for name, kind in CONSUMER_FIELDS.items()])
_ARROW_TYPES[MEMBERS_TYPE] = _list_type(pa.struct([(name, _ARROW_TYPES[kind]) for name, kind in MEMBER_FIELDS.items()]))


def spark_schema(names: Sequence[str]) -> str:
    """These columns as a Spark schema (DDL)."""
    return ", ".join(f"`{name}` {ALL_COLUMNS[name]}" for name in names)


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    """These columns as an Arrow schema."""
    return pa.schema([(name, _ARROW_TYPES[ALL_COLUMNS[name]]) for name in names])


def timestamp_us(time_ms: int) -> int | None:
    """Microseconds since the epoch. None for -1, and for times out of range: one such row would fail the query."""
    return time_ms * 1000 if 0 <= time_ms <= MAX_TIME_MS else None
