"""What has become of a reset: which of the removed members are back, and which offsets they have asked for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from ...actors.group.reset_messages import ResetDescribed
from ...actors.text import printable
from ..node.reset_records import RemovedMember, ResetRecord
from .results import GroupDescription, GroupMember, ResetProgress, TopicPartition

STABLE = "Stable"
NAMED_MAX = 10
"""Members, or partitions, that a sentence names."""


class Presence(NamedTuple):
    """The group now. ``described``: None if it does not exist any more. ``reset``: what it knows of its last reset."""

    described: GroupDescription | None
    reset: ResetDescribed
    now_ms: int


def progress_of(record: ResetRecord, presence: Presence) -> ResetProgress:
    """A member is back if one with its instance id, its member id, or its client id and address is in the group.

    Consumers of the classic protocol come back with another member id.
    """
    members = () if presence.described is None else presence.described.members
    missing = missing_members(record.members, members)
    unfetched = _unfetched(record, presence, members)
    is_settled = not record.members or (presence.described is not None and presence.described.state == STABLE)
    is_complete = not missing and not unfetched and is_settled
    until_ms = presence.reset.fetched_ms if is_complete and presence.reset.fetched_ms >= 0 else presence.now_ms
    elapsed_s = max(0, until_ms - record.made_ms) / 1000
    expected = len(record.members)
    return ResetProgress(
        record.change_id,
        record.group,
        is_complete,
        elapsed_s,
        expected,
        expected - len(missing),
        tuple(map(_as_member, missing)),
        unfetched,
        datetime.fromtimestamp(record.made_ms / 1000, UTC),
        _sentence(record, is_complete, elapsed_s, missing, unfetched),
    )


def missing_members(removed: Iterable[RemovedMember], present: Iterable[GroupMember]) -> tuple[RemovedMember, ...]:
    """The removed members that are not back. Those with an id of their own are matched first."""
    left = list(present)
    waiting = list(removed)
    for is_same in (_same_instance, _same_member, _same_client):
        still: list[RemovedMember] = []
        for member in waiting:
            found = next((each for each in left if is_same(member, each)), None)
            if found is None:
                still.append(member)
            else:
                left.remove(found)
        waiting = still
    return tuple(waiting)


def _same_instance(removed: RemovedMember, present: GroupMember) -> bool:
    return removed.instance_id is not None and removed.instance_id == present.instance_id


def _same_member(removed: RemovedMember, present: GroupMember) -> bool:
    return removed.member_id == present.member_id


def _same_client(removed: RemovedMember, present: GroupMember) -> bool:
    have_no_instance = removed.instance_id is None and present.instance_id is None
    same = (removed.client_id, removed.client_host) == (present.client_id, present.client_host)
    return have_no_instance and same


def _unfetched(
    record: ResetRecord, presence: Presence, members: Sequence[GroupMember]
) -> tuple[TopicPartition, ...] | None:
    """Of the partitions that members have; of all, if their assignments cannot be read. None: not known."""
    if presence.reset.change_id != record.change_id:
        return None
    if not record.members:
        return ()
    if any(member.assigned is None for member in members):
        return presence.reset.unfetched
    assigned = {partition for member in members for partition in member.assigned or ()}
    return tuple(partition for partition in presence.reset.unfetched if partition in assigned)


def _as_member(member: RemovedMember) -> GroupMember:
    return GroupMember(*member, None, None, b"", b"")


# The sentence --------------------------------------------------------------------------------------------------------


def _sentence(
    record: ResetRecord,
    is_complete: bool,
    elapsed_s: float,
    missing: Sequence[RemovedMember],
    unfetched: tuple[TopicPartition, ...] | None,
) -> str:
    expected = len(record.members)
    if not expected:
        return "the group had no members"
    verb = "member is" if expected == 1 else "members are"
    first = f"{expected - len(missing)} of {expected} {verb} back after {elapsed_s:.1f} s"
    if is_complete:
        return f"{first}, {'all positions fetched' if unfetched is not None else 'whether they fetched is not known'}"
    parts = [first]
    if missing:
        since = datetime.fromtimestamp(record.made_ms / 1000, UTC)
        names = [_member_name(member) for member in missing[:NAMED_MAX]]
        parts.append(f"missing since {since:%H:%M:%S} UTC: {_listed(names, len(missing))}")
    if unfetched:
        names = [f"{topic}-{partition}" for topic, partition in unfetched[:NAMED_MAX]]
        parts.append(f"not fetched: {_listed(names, len(unfetched))}")
    if not missing and not unfetched:
        parts.append("the group still rebalances")
    return "; ".join(parts)


def _member_name(member: RemovedMember) -> str:
    name = member.instance_id or member.client_id or member.member_id
    return printable(f"{name[:100]} ({member.client_host.removeprefix('/')[:100]})")


def _listed(names: Sequence[str], count: int) -> str:
    """``names``: the first ones, of ``count``."""
    more = count - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")
