"""Which offsets have expired, exactly as defined by KIP-211 and Kafka's OffsetMetadataManager (4.x). Pure.

The age of an offset begins

=====================================================  ================================================================
in an Empty group                                      when it became Empty; at the commit if that is unknown
in a Stable consumer group, topics not subscribed to   at the commit
in a simple group (offsets, never a member)            at the commit
=====================================================  ================================================================

Nothing expires during a rebalance, in groups whose subscriptions cannot be parsed, and for topics that a member
subscribes to. An offset with an explicit expiry time (OffsetCommit v2-v4) expires at that time, under the same
conditions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ..records import OffsetRecord, OffsetValue, Record
from ..steps import Steps, pieces, run_steps
from .kind import Group
from .offsets import GroupData

BATCH = 500
"""Tombstones per batch of records; far below Kafka's default limit of 1 MiB."""

MINUTE_MS = 60_000


class TombstoneBatch(NamedTuple):
    """Tombstones that are appended together.

    ``is_last``: nothing more is to be deleted afterwards. ``ends_group``: the group is deleted with the last of them.
    """

    records: tuple[Record, ...]
    is_last: bool
    ends_group: bool = False


def find_expired(group: Group, data: GroupData, now_ms: int, retention_ms: int) -> Steps[tuple[OffsetRecord, ...]]:
    """Tombstones of all expired offsets. ``now_ms`` is wall-clock time.

    Offsets with a pending transactional offset do not expire.
    """
    expiry = yield from group.offset_expiry()
    if expiry is None:
        return ()
    expired: list[OffsetRecord] = []
    for topic, partitions in data.offsets.topics():
        for piece in pieces(() if topic in expiry.subscribed else partitions.items()):
            expired += [
                OffsetRecord(group.group_id, topic, partition, None)
                for partition, value in piece
                if _is_expired(value, expiry.since_ms, now_ms, retention_ms)
                and (topic, partition) not in data.pending.by_partition
            ]
            yield
    return tuple(expired)


def next_expired(
    group: Group, data: GroupData, candidates: Sequence[OffsetRecord], now_ms: int, retention_ms: int
) -> TombstoneBatch:
    """The first batch of those candidates that have not been renewed since they were found.

    An Empty group is deleted with its last offset, whatever its own age, but not while it has an open transaction.
    """
    records = tuple(islice(_still_expired(group, data, candidates, now_ms, retention_ms), BATCH + 1))
    if len(records) > BATCH:
        return TombstoneBatch(records[:BATCH], False)
    if group.is_empty and len(records) == len(data.offsets) and not data.pending:
        tombstones = data.kind.tombstones(group.group_id, data.value)
        return TombstoneBatch((*records, *tombstones), True, ends_group=True)
    return TombstoneBatch(records, True)


def _still_expired(
    group: Group, data: GroupData, candidates: Sequence[OffsetRecord], now_ms: int, retention_ms: int
) -> Iterator[OffsetRecord]:
    expiry = run_steps(group.offset_expiry()) if candidates else None
    if expiry is None:
        return
    for candidate in candidates:
        _, topic, partition, _ = candidate
        value = data.offsets.partitions(topic).get(partition)
        if value is None or topic in expiry.subscribed or (topic, partition) in data.pending.by_partition:
            continue
        if _is_expired(value, expiry.since_ms, now_ms, retention_ms):
            yield candidate


def first_expiry_ms(group: Group, data: GroupData, retention_ms: int) -> Steps[int | None]:
    """The wall-clock time when the first offset expires; None if none will, as things are."""
    expiry = yield from group.offset_expiry()
    if expiry is None:
        return None
    first_ms: int | None = None
    for topic, partitions in data.offsets.topics():
        for piece in pieces(() if topic in expiry.subscribed else partitions.values()):
            due_ms = min(_expires_ms(value, expiry.since_ms, retention_ms) for value in piece)
            first_ms = due_ms if first_ms is None else min(first_ms, due_ms)
            yield
    return first_ms


def _expires_ms(value: OffsetValue, since_ms: int, retention_ms: int) -> int:
    """``since_ms`` -1: the age begins at the commit."""
    if value.expire_timestamp_ms != -1:
        return value.expire_timestamp_ms
    return (value.commit_timestamp_ms if since_ms == -1 else since_ms) + retention_ms


def _is_expired(value: OffsetValue, since_ms: int, now_ms: int, retention_ms: int) -> bool:
    return now_ms >= _expires_ms(value, since_ms, retention_ms)
