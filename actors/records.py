"""Records of ``__consumer_offsets`` and ``__transaction_state`` as plain values.

``runtime/log`` encodes them. A value of ``None`` is a tombstone: it deletes the key. Times are wall-clock milliseconds
since the epoch; -1 means none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, NewType, Protocol

from .steps import Steps, pieces

GroupType = NewType("GroupType", str)
"""The name of a kind of group in ListGroups."""

CLASSIC = GroupType("classic")


class OffsetValue(NamedTuple):
    """A committed offset (Kafka's ``OffsetCommitValue``; written as v3, or as v1 if it has an expiry time)."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1


class OffsetRecord(NamedTuple):
    """Key types 0 and 1: the offset that a group committed for one partition of a topic."""

    group_id: str
    topic: str
    partition: int
    value: OffsetValue | None

    @property
    def key_type(self) -> int:
        return 1


class GroupStateRecord(Protocol):
    """A record of one kind of group: its state apart from offsets. A kind may have several classes of them.

    The value is a NamedTuple, or None for a tombstone.
    """

    @property
    def key_type(self) -> int: ...

    @property
    def group_type(self) -> GroupType: ...

    @property
    def group_id(self) -> str: ...

    @property
    def value(self) -> Any: ...

    @property
    def item_count(self) -> int:
        """The members, partitions or topics in the record, which make it long. 0 for a record that is always short."""


class MemberValue(NamedTuple):
    """One member in a group's record. ``subscription`` is its metadata for the chosen protocol."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    """A classic group when a generation begins or ends (Kafka's ``GroupMetadataValue``, written as v3)."""

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

    @property
    def key_type(self) -> int:
        return 2

    @property
    def group_type(self) -> GroupType:
        return CLASSIC

    @property
    def item_count(self) -> int:
        return 0 if self.value is None else len(self.value.members)


class PendingOffsetRecord(NamedTuple):
    """Key type 1 in a transactional batch: an offset that counts when the transaction of ``producer_id`` commits."""

    group_id: str
    topic: str
    partition: int
    value: OffsetValue | None
    producer_id: int
    producer_epoch: int

    @property
    def key_type(self) -> int:
        return 1


class MarkerRecord(NamedTuple):
    """A control batch: the transaction of ``producer_id`` has ended, for all groups of its partition."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int = 0


class TransactionValue(NamedTuple):
    """A transactional id (Kafka's ``TransactionLogValue``, written as v1); ``state`` is a ``TransactionState``."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: int
    partitions: frozenset[tuple[str, int]] = frozenset()
    last_update_timestamp_ms: int = -1
    start_timestamp_ms: int = -1
    previous_producer_id: int = -1
    next_producer_id: int = -1  # of the producer after the transaction is complete; -1: unchanged
    client_version: int = 0  # 2: each end of a transaction raises the epoch (KIP-890)


class TransactionRecord(NamedTuple):
    """A record of ``__transaction_state``."""

    transactional_id: str
    value: TransactionValue | None

    @property
    def item_count(self) -> int:
        return 0 if self.value is None else len(self.value.partitions)


class UnknownRecord(NamedTuple):
    """A record of a type that this version does not support. It stays in the log, and loading skips it."""

    key_type: int
    key: bytes
    value: bytes | None


OffsetsTopicRecord = OffsetRecord | GroupRecord | GroupStateRecord | PendingOffsetRecord | UnknownRecord
"""A record of ``__consumer_offsets`` with a key and a value."""

Record = OffsetsTopicRecord | MarkerRecord | TransactionRecord


def item_count(record: Record) -> int:
    """The members, partitions or topics in a record, which make it long. 0 for a record that is always short."""
    if isinstance(record, OffsetRecord | PendingOffsetRecord | MarkerRecord | UnknownRecord):
        return 0
    return record.item_count


def partitions_by_topic(partitions: Iterable[tuple[str, int]]) -> Steps[list[tuple[str, list[int]]]]:
    """The partitions of each topic, both sorted."""
    numbers_by_topic: dict[str, list[int]] = {}
    for piece in pieces(partitions):
        for topic, number in piece:
            numbers_by_topic.setdefault(topic, []).append(number)
        yield
    topics: list[tuple[str, list[int]]] = []
    for names in pieces(sorted(numbers_by_topic)):
        topics += [(topic, sorted(numbers_by_topic[topic])) for topic in names]
        yield
    return topics


def group_id_of(record: Record | None) -> str | None:
    """The group of a record; None if it has none."""
    if record is None or isinstance(record, MarkerRecord | TransactionRecord | UnknownRecord):
        return None
    return record.group_id
