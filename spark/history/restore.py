"""Offsets written back through a running coordinator, as any client would, and taken back again.

A group with members is refused: they would commit over what is restored. With ``fence`` they are taken out of the group
first. Those that run join again, after what they had under way was refused, and begin at the restored offsets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ...runtime.cli.groups.tables import Column, Table, format_count
from ...runtime.client.cluster import Cluster, Description, Offset, Place
from ...runtime.client.errors import HAS_MEMBERS, NO_SUCH_GROUP, ClientError, Refused, meaning
from . import changes
from .changes import UNDO, Change, Written
from .table import HistoryTable

FENCE_TRIES = 20
PAUSE_S = 0.1  # in which members that were taken out may have joined again
AT_REST = ("Empty", "Dead")


class Step(NamedTuple):
    """One partition of a plan. ``note`` says what is worth a word; ``is_written``: whether it is changed."""

    written: Written
    is_written: bool
    note: str


def plan_restore(wanted: Mapping[Place, Offset], committed: Mapping[Place, Offset]) -> list[Step]:
    """What is to be written so that a group has ``wanted``. What it has besides is kept."""
    steps = []
    for place in sorted({*wanted, *committed}):
        before, after = committed.get(place), wanted.get(place)
        note = "kept: was not there" if after is None else "unchanged" if after == before else ""
        steps.append(Step(Written(place, before, before if after is None else after), not note, note))
    return steps


def plan_undo(change: Change, committed: Mapping[Place, Offset], force: bool) -> list[Step]:
    """What is to be written so that a change was not made. ClientError if somebody has committed since."""
    steps, foreign = [], []
    for place, before, after in change.offsets:
        now = committed.get(place)
        if now not in (before, after):
            foreign.append(f"{place[0]}:{place[1]} is at {now.offset if now else 'no offset'}")
        steps.append(Step(Written(place, now, before), now != before, "unchanged" if now == before else ""))
    if foreign and not force:
        raise ClientError(
            f"group '{change.group}' has changed since: {foreign[0]}"
            + (f" and {len(foreign) - 1} more" if len(foreign) > 1 else "")
            + f", expected what {change.what} {change.change_id} has written; --force takes it back all the same"
        )
    return steps


def last_to_undo(found: Mapping[str, Change], change_id: str | None) -> Change:
    """The change of an id, or the last restore that was not undone. ClientError if there is none."""
    undone: set[str] = set()
    for change in reversed(list(found.values())):  # the undo of an undo makes a restore count again
        if change.what == UNDO and change.ended == "done" and change.change_id not in undone:
            undone.add(change.of)
    if change_id is None:
        rest = [one for one in found.values() if one.what != UNDO and one.change_id not in undone]
        if not rest:
            raise ClientError("there is no restore that could be undone")
        return rest[-1]
    if change_id not in found:
        raise ClientError(f"there is no change '{change_id}'; known are {', '.join(found) or 'none'}")
    if change_id in undone:
        raise ClientError(f"change '{change_id}' was undone already")
    return found[change_id]


def refuse_live(cluster: Cluster, group: str) -> None:
    """Raise ClientError for a group with members."""
    found = describe(cluster, group)
    if found is not None and found.state not in AT_REST:
        raise ClientError(
            f"group '{group}' is {found.state} with {format_count(len(found.members), 'member')}, which would commit"
            " over what is restored: stop its consumers first, or take them out with --fence"
        )


def describe(cluster: Cluster, group: str) -> Description | None:
    """None for a group that is not there."""
    try:
        return cluster.describe(group)
    except Refused as refused:
        if refused.code != NO_SUCH_GROUP:
            raise
        return None


def carry_out(
    cluster: Cluster,
    table: HistoryTable,
    change: Change,
    fence: bool,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Note the change, make it, read it back, note how it ended. ClientError when it is not there as it should be."""
    if not fence:
        refuse_live(cluster, change.group)
    changes.begin(table, change)
    try:
        _write(cluster, change, fence, pause)
        _read_back(cluster, change)
    except ClientError as error:
        changes.finish(table, change.change_id, f"failed: {error}")
        raise
    changes.finish(table, change.change_id, "done")


def _write(cluster: Cluster, change: Change, fence: bool, pause: Callable[[float], None]) -> None:
    for attempt in range(FENCE_TRIES):
        if fence:
            _fence(cluster, change)
        refused = _try(cluster, change)
        if not (fence and HAS_MEMBERS & set(refused.values())):
            break
        if attempt < FENCE_TRIES - 1:
            pause(PAUSE_S)
    if refused:
        (topic, partition), code = next(iter(refused.items()))
        first = f"{topic}:{partition} first: {meaning(code)}"
        raise ClientError(f"{len(refused)} of {len(change.offsets)} refused, {first}")


def _fence(cluster: Cluster, change: Change) -> None:
    found = describe(cluster, change.group)
    if found is not None and found.members:
        cluster.remove_members(change.group, found.members, f"{change.what} of offsets: {change.reason}")


def _try(cluster: Cluster, change: Change) -> dict[Place, int]:
    """What was refused, with the error code."""
    set_to = {one.place: one.after for one in change.offsets if one.after is not None}
    gone = [one.place for one in change.offsets if one.after is None]
    refused = cluster.commit_offsets(change.group, set_to) if set_to else {}
    return refused | cluster.delete_offsets(change.group, gone) if gone and not refused else refused


def _read_back(cluster: Cluster, change: Change) -> None:
    committed = cluster.committed(change.group)
    wrong = [one for one in change.offsets if committed.get(one.place) != one.after]
    if wrong:
        place, _, after = wrong[0]
        now = committed.get(place)
        raise ClientError(
            f"read back, {len(wrong)} of {len(change.offsets)} offsets of group '{change.group}' are not what was"
            f" written: {place[0]}:{place[1]} is at {now.offset if now else 'no offset'}, expected"
            f" {after.offset if after else 'none'}; somebody else commits to this group"
        )


def step_table(steps: Sequence[Step]) -> Table:
    columns = (
        Column("topic", "topic"),
        Column("partition", "partition", is_number=True),
        Column("before", "before", is_number=True),
        Column("after", "after", is_number=True),
        Column("note", "note"),
    )
    rows = [
        (*one.place, one.before and one.before.offset, one.after and one.after.offset, note) for one, _, note in steps
    ]
    return Table(columns, rows)
