"""Which offsets have had their time, exactly as KIP-211 and Kafka's OffsetMetadataManager (4.x) say. Pure.

Age is counted from

=====================================================  ================================================================
an Empty group                                         when it became Empty; from the commit if that is not known
a Stable group of consumers, topics not subscribed to  the commit
a simple group (offsets, and never a member)           the commit
=====================================================  ================================================================

and nothing expires elsewhere: while a rebalance is open, in groups whose subscriptions cannot be read, and what a
member subscribes to. An offset with a time of its own (OffsetCommit v2-v4) goes at that time, where anything does.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from ..records import GroupRecord, OffsetRecord, OffsetValue, Record
from .offsets import GroupData
from .rebalance import Rebalance
from .states import State
from .subscription import CONSUMER

BATCH = 500
"""Tombstones in one batch of records: it stays far below Kafka's default limit of a mebibyte."""

MINUTE_MS = 60_000


class OldOffsets(NamedTuple):
    """What deletes the first so many of a group's old offsets; ``is_all``: there are no more to delete now."""

    records: tuple[Record, ...]
    is_all: bool


def expired(group: Rebalance, data: GroupData, now_ms: int, retention_ms: int) -> OldOffsets:
    """``now_ms`` is the wall clock's. The group itself goes with its last offset if it is Empty, however young it is.

    An offset that a transaction is about to replace stays, and so does a group with an open transaction.
    """
    found = tuple(islice(_expired_offsets(group, data, now_ms, retention_ms), BATCH + 1))
    if len(found) > BATCH:
        return OldOffsets(found[:BATCH], False)
    if group.state is State.EMPTY and len(found) == len(data.offsets) and not data.pending:
        return OldOffsets((*found, GroupRecord(group.group_id, None)), True)
    return OldOffsets(found, True)


def _expired_offsets(group: Rebalance, data: GroupData, now_ms: int, retention_ms: int) -> Iterator[OffsetRecord]:
    if not _may_expire(group):
        return
    since_ms = group.state_timestamp_ms if group.protocol_type and group.state is State.EMPTY else -1
    subscribed = group.subscribed_topics() or ()
    for topic, partitions in data.offsets.topics():
        if topic in subscribed:
            continue
        for partition, value in partitions.items():
            is_replaced = (topic, partition) in data.pending.places
            if not is_replaced and _is_old(value, since_ms, now_ms, retention_ms):
                yield OffsetRecord(group.group_id, topic, partition, None)


def _may_expire(group: Rebalance) -> bool:
    if not group.protocol_type or group.state is State.EMPTY:
        return True
    return group.state is State.STABLE and group.protocol_type == CONSUMER and group.subscribed_topics() is not None


def _is_old(value: OffsetValue, since_ms: int, now_ms: int, retention_ms: int) -> bool:
    """``since_ms`` -1: the commit's own time counts."""
    if value.expire_timestamp_ms != -1:
        return now_ms >= value.expire_timestamp_ms
    return now_ms - (value.commit_timestamp_ms if since_ms == -1 else since_ms) >= retention_ms
