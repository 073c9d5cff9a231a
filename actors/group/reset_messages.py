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

    ``is_plan``: nothing is changed. ``change_id``: of the sender, by which it asks what has become of the reset.
    ``before``, ``simple_commit_ms`` and ``guarded_until_ms`` are filled in by the
    group: the last is the earliest end of the guard; -1 if the group never had members.
    """

    group_id: str
    offsets: tuple[ResetOffset, ...]
    reason: str = ""
    is_plan: bool = False
    change_id: str = ""
    before: tuple[ResetOffset, ...] = ()
    simple_commit_ms: int = -1
    guarded_until_ms: int = -1


class OffsetsReset(NamedTuple):
    """Reply to ResetOffsets, when the change is durable. Times are wall-clock times; -1 if there is none.

    ``before``: the durable offsets of the same partitions before it. ``guarded_until_ms``: until when commits without a
    generation to these partitions are refused. ``producer_id``: if the error is UNSTABLE_OFFSET_COMMIT, that of an open
    transaction with an offset of such a partition, else -1; ``pending_since_ms``: when it was sent.
    ``simple_commit_ms``: when a client that is no member committed last, if that is known.
    """

    error: ErrorCode
    removed: tuple[str, ...] = ()
    before: tuple[ResetOffset, ...] = ()
    guarded_until_ms: int = -1
    producer_id: int = -1
    pending_since_ms: int = -1
    simple_commit_ms: int = -1


class DescribeReset(NamedTuple):
    """What has become of the last reset of a group. Only in this process."""

    group_id: str


class ResetDescribed(NamedTuple):
    """Of the last reset. ``change_id``: "" if it is not known, or there was none.

    ``unfetched``: the partitions whose offset nobody has asked for since then, while the group had members.
    ``fetched_ms``: when one was asked for last; -1 if none was. Both are known as long as the group is in memory.
    ``guarded_until_ms``: until when commits without a generation to its partitions are refused; -1: they are not.
    """

    error: ErrorCode
    change_id: str = ""
    unfetched: tuple[tuple[str, int], ...] = ()
    fetched_ms: int = -1
    guarded_until_ms: int = -1
