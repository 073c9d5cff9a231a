"""What actors ask the log to keep: the records of ``__consumer_offsets`` as plain values.

The bytes are ``runtime/log``'s business. A value of ``None`` is a tombstone: the key is deleted. Times are wall-clock
milliseconds since the epoch; -1 means that there is none.
"""

from __future__ import annotations

from typing import NamedTuple


class OffsetValue(NamedTuple):
    """A committed offset (Kafka's ``OffsetCommitValue``; written as v3, as v1 when it has an expiry)."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1


class OffsetRecord(NamedTuple):
    """Key type 1: the offset that a group committed for one partition of a topic."""

    group_id: str
    topic: str
    partition: int
    value: OffsetValue | None


class MemberValue(NamedTuple):
    """One member inside a group's record; ``subscription`` is its metadata for the chosen protocol only."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    """A classic group at the moment a generation began or ended (Kafka's ``GroupMetadataValue``, written as v3)."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int
    members: tuple[MemberValue, ...]


class GroupRecord(NamedTuple):
    """Key type 2: a classic group."""

    group_id: str
    value: GroupValue | None


class UnknownRecord(NamedTuple):
    """A record of a type that this version does not interpret. It is kept in the log and skipped when loading."""

    key_type: int
    key: bytes
    value: bytes | None


Record = OffsetRecord | GroupRecord | UnknownRecord
