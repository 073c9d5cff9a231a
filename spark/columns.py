"""The columns of the data source, by Spark's names of types and by Arrow's, which must say the same.

One table for all kinds of records, since they lie in one log: what a kind does not have is null. Spark takes Arrow
batches from a Python data source only if every type is just what it expects, down to the names inside of lists.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

MAX_TIME_MS = 253402300799999  # the last of the year 9999: Python and SQL have no later time

RECORD = {
    "log_partition": "int",
    "log_offset": "bigint",
    "timestamp": "timestamp",
    "kind": "string",
    "tombstone": "boolean",
    "transactional": "boolean",
    "producer_id": "bigint",
    "producer_epoch": "int",
}
OFFSET = {
    "group": "string",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "leader_epoch": "int",
    "metadata": "string",
    "commit_timestamp": "timestamp",
    "expire_timestamp": "timestamp",
}
MEMBER = {
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
MEMBERS = f"array<struct<{', '.join(f'{name}: {kind}' for name, kind in MEMBER.items())}>>"
GROUP = {
    "generation": "int",
    "protocol_type": "string",
    "protocol": "string",
    "leader": "string",
    "current_state_timestamp": "timestamp",
    "members": MEMBERS,
}
OTHER = {
    "committed": "boolean",
    "key_type": "int",
    "key": "binary",
    "value": "binary",
    "notice": "string",
}
ALL = {**RECORD, **OFFSET, **GROUP, **OTHER}

KINDS = ("offset", "group", "marker", "unknown", "damage", "gap")
"""The first four are records; the others say what is not there, and where."""


def _list_of(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind))


_SCALARS = {
    "boolean": pa.bool_(),
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "binary": pa.binary(),
}
_ARROW = {
    **_SCALARS,
    MEMBER["topics"]: _list_of(pa.string()),
    MEMBER["assigned"]: _list_of(pa.struct([("topic", pa.string()), ("partition", pa.int32())])),
}
_ARROW[MEMBERS] = _list_of(pa.struct([(name, _ARROW[kind]) for name, kind in MEMBER.items()]))


def ddl(names: Sequence[str]) -> str:
    """These columns as Spark writes a schema."""
    return ", ".join(f"`{name}` {ALL[name]}" for name in names)


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    """The same for Arrow."""
    return pa.schema([(name, _ARROW[ALL[name]]) for name in names])


def micros(time_ms: int) -> int | None:
    """Microseconds since the epoch; None for -1, and for what no calendar holds: one such row would fail a query."""
    return time_ms * 1000 if 0 <= time_ms <= MAX_TIME_MS else None
