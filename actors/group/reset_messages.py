"""The request that removes all members of a group and sets offsets, and its reply."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import ErrorCode


class ResetOffset(NamedTuple):
    """``offset`` None: the partition is to have no committed offset."""

    topic: str
    partition: int
    offset: int | None


class ResetOffsets(NamedTuple):
    """Remove all members of a group and set offsets, as one change. Only in this process.

    ``before``: filled in by the group.
    """

    group_id: str
    offsets: tuple[ResetOffset, ...]
    reason: str = ""
    before: tuple[ResetOffset, ...] = ()


class OffsetsReset(NamedTuple):
    """Reply to ResetOffsets, when the change is durable.

    ``before``: the durable offsets of the same partitions before it. ``guarded_until_ms``: wall-clock time until which
    commits without a generation to these partitions are refused; -1 if they are not. ``producer_id``: if the error is
    UNSTABLE_OFFSET_COMMIT, that of an open transaction with an offset of such a partition; else -1.
    """

    error: ErrorCode
    removed: tuple[str, ...] = ()
    before: tuple[ResetOffset, ...] = ()
    guarded_until_ms: int = -1
    producer_id: int = -1
