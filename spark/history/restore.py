"""Restores offsets through a running coordinator, as any client would commit them, and undoes restores.

A group with members is refused, since they would overwrite the restored offsets. With ``fence`` the members are removed
from the group first. Running consumers rejoin after their next request is refused, and start at the restored offsets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ...actors.text import format_count
from ...runtime.cli.tables import Column, Table
from ...runtime.client.cluster import Cluster, GroupDescription, OffsetAndMetadata, TopicPartition
from ...runtime.client.errors import (
    GROUP_HAS_MEMBERS_ERRORS,
    NO_SUCH_GROUP,
    ClientError,
    RefusedError,
    describe_error_code,
)
from . import changes
from .changes import UNDO, Change, OffsetChange
from .table import HistoryTable

FENCE_TRIES = 20
PAUSE_S = 0.1  # between attempts to remove members, which may have rejoined
STATES_WITHOUT_MEMBERS = ("Empty", "Dead")


class RestoreStep(NamedTuple):
    """One partition of a plan. ``is_changed``: whether its offset will be written. ``note``: a remark for the table."""

    change: OffsetChange
    is_changed: bool
    note: str


def plan_restore(
    targets: Mapping[TopicPartition, OffsetAndMetadata], committed: Mapping[TopicPartition, OffsetAndMetadata]
) -> list[RestoreStep]:
    """The steps that give a group the offsets ``targets``. Its other offsets are kept."""
    steps = []
    for topic_partition in sorted({*targets, *committed}):
        offset_before, offset_after = committed.get(topic_partition), targets.get(topic_partition)
        note = (
            "kept: had no offset then" if offset_after is None else "unchanged" if offset_after == offset_before else ""
        )
        steps.append(
            RestoreStep(
                OffsetChange(topic_partition, offset_before, offset_before if offset_after is None else offset_after),
                not note,
                note,
            )
        )
    return steps


def plan_undo(change: Change, committed: Mapping[TopicPartition, OffsetAndMetadata], force: bool) -> list[RestoreStep]:
    """The steps that revert a change. Raises ClientError if other commits were made since."""
    steps, conflicts = [], []
    for topic_partition, before, after in change.offsets:
        now = committed.get(topic_partition)
        if now not in (before, after):
            conflicts.append(f"{topic_partition[0]}:{topic_partition[1]} is at {now.offset if now else 'no offset'}")
        steps.append(
            RestoreStep(OffsetChange(topic_partition, now, before), now != before, "unchanged" if now == before else "")
        )
    if conflicts and not force:
        raise ClientError(
            f"group '{change.group}' has changed since: {conflicts[0]}"
            + (f" and {len(conflicts) - 1} more" if len(conflicts) > 1 else "")
            + f", expected the offsets written by {change.what} {change.change_id}; --force undoes it anyway"
        )
    return steps


def find_change_to_undo(history: Mapping[str, Change], change_id: str | None) -> Change:
    """The change with an id, or the last restore that was not undone. Raises ClientError if there is none."""
    undone: set[str] = set()
    for change in reversed(list(history.values())):  # the undo of an undo makes the restore effective again
        if change.what == UNDO and change.ended == "done" and change.change_id not in undone:
            undone.add(change.of)
    if change_id is None:
        restores = [change for change in history.values() if change.what != UNDO and change.change_id not in undone]
        if not restores:
            raise ClientError("there is no restore that could be undone")
        return restores[-1]
    if change_id not in history:
        raise ClientError(f"there is no change '{change_id}'; there are: {', '.join(history) or 'none'}")
    if change_id in undone:
        raise ClientError(f"change '{change_id}' was already undone")
    return history[change_id]


def check_no_members(cluster: Cluster, group: str) -> None:
    """Raise ClientError for a group with members."""
    description = describe_group(cluster, group)
    if description is not None and description.state not in STATES_WITHOUT_MEMBERS:
        raise ClientError(
            f"group '{group}' is {description.state} with {format_count(len(description.members), 'member')}, which"
            " would overwrite the restored offsets: stop its consumers first, or remove them with --fence"
        )


def describe_group(cluster: Cluster, group: str) -> GroupDescription | None:
    """The group, or None if it does not exist."""
    try:
        return cluster.describe(group)
    except RefusedError as refused:
        if refused.code != NO_SUCH_GROUP:
            raise
        return None


def apply_change(
    cluster: Cluster,
    table: HistoryTable,
    change: Change,
    fence: bool,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Record the change, make it, verify it and record the result. Raises ClientError if it was not made completely."""
    if not fence:
        check_no_members(cluster, change.group)
    changes.record_start(table, change)
    try:
        _write(cluster, change, fence, pause)
        _read_back(cluster, change)
    except ClientError as error:
        changes.record_end(table, change.change_id, f"failed: {error}")
        raise
    changes.record_end(table, change.change_id, "done")


def _write(cluster: Cluster, change: Change, fence: bool, pause: Callable[[float], None]) -> None:
    for attempt in range(FENCE_TRIES):
        if fence:
            _remove_members(cluster, change)
        refused = _try_write(cluster, change)
        if not (fence and GROUP_HAS_MEMBERS_ERRORS & set(refused.values())):
            break
        if attempt < FENCE_TRIES - 1:
            pause(PAUSE_S)
    if refused:
        (topic, partition), code = next(iter(refused.items()))
        first = f"{topic}:{partition} first: {describe_error_code(code)}"
        raise ClientError(f"{len(refused)} of {len(change.offsets)} refused, {first}")


def _remove_members(cluster: Cluster, change: Change) -> None:
    description = describe_group(cluster, change.group)
    if description is not None and description.members:
        cluster.remove_members(change.group, description.members, f"{change.what} of offsets: {change.reason}")


def _try_write(cluster: Cluster, change: Change) -> dict[TopicPartition, int]:
    """Write the offsets once. Returns the error codes of the partitions that were refused."""
    to_commit = {offset.topic_partition: offset.after for offset in change.offsets if offset.after is not None}
    to_delete = [offset.topic_partition for offset in change.offsets if offset.after is None]
    refused = cluster.commit_offsets(change.group, to_commit) if to_commit else {}
    return refused | cluster.delete_offsets(change.group, to_delete) if to_delete and not refused else refused


def _read_back(cluster: Cluster, change: Change) -> None:
    committed = cluster.committed(change.group)
    changed = [offset for offset in change.offsets if committed.get(offset.topic_partition) != offset.after]
    if changed:
        (topic, partition), _, after = changed[0]
        now = committed.get((topic, partition))
        of_all = f"{len(changed)} of {format_count(len(change.offsets), 'offset')} of group '{change.group}'"
        raise ClientError(
            f"after the write, {of_all} {'differs' if len(changed) == 1 else 'differ'} from the written ones:"
            f" {topic}:{partition} is at {now.offset if now else 'no offset'}, expected"
            f" {after.offset if after else 'none'}; another client commits to this group"
        )


def plan_table(steps: Sequence[RestoreStep]) -> Table:
    columns = (
        Column("topic", "topic"),
        Column("partition", "partition", is_number=True),
        Column("before", "before", is_number=True),
        Column("after", "after", is_number=True),
        Column("note", "note"),
    )
    rows = [
        (*change.topic_partition, change.before and change.before.offset, change.after and change.after.offset, note)
        for change, _, note in steps
    ]
    return Table(columns, rows)
