"""What a request has changed in a group, for the audit trail: from the message to the group and its reply. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from ....actors.errors import ErrorCode
from ....actors.group.reset_messages import OffsetsReset, ResetOffset, ResetOffsets
from ....actors.messages import (
    Committed,
    DeleteGroup,
    Fetched,
    LeaveGroup,
    Left,
    OffsetCommit,
    OffsetDelete,
    OffsetsDeleted,
)
from ...security.audit import Change

OFFSETS_MAX: Final = 1000
"""Offsets, or members, in one line of the audit trail. ``left_out`` is the number of others."""

ADMIN_REASON: Final = "member was removed by an admin"
"""The reason that Kafka's admin client sends when it removes members (KIP-800)."""


class GroupChange(NamedTuple):
    """``reason``: the client's own."""

    change: Change
    reason: str = ""


def group_change(message: object, offsets: Fetched | None, reply: Any) -> GroupChange | None:
    """What was changed; None for nothing that is audited. ``offsets``: all those before, if they are known."""
    describe = _DESCRIBE.get(type(message))
    return None if describe is None else describe(message, offsets, reply)


def group_offsets(fetched: Fetched | None) -> dict[str, Any] | None:
    """All offsets of a group; None if it has none."""
    if fetched is None or not fetched.topics:
        return None
    count = sum(len(rows) for _, rows in fetched.topics)
    return _nested(((topic, row.partition, row.offset) for topic, rows in fetched.topics for row in rows), count)


def _commit(message: OffsetCommit, offsets: Fetched | None, reply: Committed) -> GroupChange | None:
    committed = [
        (commit.topic, commit.partition, commit.offset)
        for commit, error in zip(message.commits, reply.errors, strict=True)
        if not error
    ]
    if not committed:
        return None
    wanted = {(topic, partition) for topic, partition, _ in committed[:OFFSETS_MAX]}
    before, after = _of_partitions(offsets, wanted, len(committed)), _nested(committed, len(committed))
    return GroupChange(Change("commit", f"Group:{message.group_id}", before, after))


def _delete_offsets(message: OffsetDelete, offsets: Fetched | None, reply: OffsetsDeleted) -> GroupChange | None:
    if reply.error:
        return None
    topics = [topic for topic, error in zip(message.topics, reply.topics, strict=True) if not error]
    wanted = islice(((topic, partition) for topic, partitions in topics for partition in partitions), OFFSETS_MAX)
    before = _of_partitions(offsets, set(wanted), sum(len(partitions) for _, partitions in topics))
    return None if before is None else GroupChange(Change("delete offsets", f"Group:{message.group_id}", before))


def _delete_group(message: DeleteGroup, offsets: Fetched | None, reply: ErrorCode) -> GroupChange | None:
    return None if reply else GroupChange(Change("delete", f"Group:{message.group_id}", group_offsets(offsets)))


def _remove_members(message: LeaveGroup, offsets: Fetched | None, reply: Left) -> GroupChange | None:
    """A consumer that leaves its group gives another reason."""
    reasons = [member.reason or "" for member in message.members]
    if reply.error or not any(reason.startswith(ADMIN_REASON) for reason in reasons):
        return None
    removed = [left.group_instance_id or left.member_id for left in reply.members if left.error is ErrorCode.NONE]
    if not removed:
        return None
    before = {"members": removed[:OFFSETS_MAX], **_left_out(len(removed))}
    reason = reasons[0].removeprefix(ADMIN_REASON).removeprefix(": ")
    return GroupChange(Change("remove members", f"Group:{message.group_id}", before), reason)


def _reset(message: ResetOffsets, _offsets: Fetched | None, reply: OffsetsReset) -> GroupChange | None:
    if reply.error or message.is_plan:
        return None
    before = {**_of_reset(reply.before), "members": reply.removed[:OFFSETS_MAX]}
    change = Change("reset", f"Group:{message.group_id}", before, _of_reset(message.offsets))
    return GroupChange(change, message.reason)


def _of_reset(offsets: Sequence[ResetOffset]) -> dict[str, Any]:
    """Those of partitions that have one."""
    rows = [(topic, partition, offset) for topic, partition, offset in offsets if offset is not None]
    return _nested(rows, len(rows))


_DESCRIBE: Mapping[type, Callable[[Any, Fetched | None, Any], GroupChange | None]] = {
    OffsetCommit: _commit,
    OffsetDelete: _delete_offsets,
    DeleteGroup: _delete_group,
    LeaveGroup: _remove_members,
    ResetOffsets: _reset,
}

CHANGING: Final = frozenset(_DESCRIBE)
"""The messages that may change what is audited."""


def _of_partitions(fetched: Fetched | None, wanted: set[tuple[str, int]], count: int) -> dict[str, Any] | None:
    """The offsets of some partitions, of ``count``; None if they had none."""
    topics = () if fetched is None else fetched.topics
    rows = [
        (topic, row.partition, row.offset)
        for topic, partitions in topics
        for row in partitions
        if (topic, row.partition) in wanted
    ]
    return _nested(rows, count) if rows else None


def _nested(rows: Iterable[tuple[str, int, int]], count: int) -> dict[str, Any]:
    """Offsets by topic and partition: the first ``OFFSETS_MAX`` of ``count``."""
    offsets: dict[str, dict[str, int]] = {}
    for topic, partition, offset in islice(rows, OFFSETS_MAX):
        offsets.setdefault(topic, {})[str(partition)] = offset
    return {"offsets": offsets, **_left_out(count)}


def _left_out(count: int) -> Mapping[str, int]:
    return {"left_out": count - OFFSETS_MAX} if count > OFFSETS_MAX else {}
