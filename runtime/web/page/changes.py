"""Changes that were planned or made by forms: what each does to offsets and members, and the last ones made."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final, NamedTuple

from ...embed.results import GroupMember, GroupReset, OffsetsByPartition, ResetChange, TopicPartition

CHANGES_KEPT: Final = 100


class OffsetRow(NamedTuple):
    """A partition whose committed offset changes. None: it has none."""

    topic: str
    partition: int
    before: int | None
    after: int | None


class Plan(NamedTuple):
    """What an action does, or would do. ``members``: those of the group before. ``removed``: some of them.

    ``obstacle``: why it cannot be done; "" if it can. ``notes``: why an offset is not the one that was asked for, and
    ``warnings``: what a reset does not do. ``change_id``: of a reset that was made.
    """

    members: tuple[GroupMember, ...]
    removed: tuple[GroupMember, ...] = ()
    rows: tuple[OffsetRow, ...] = ()
    obstacle: str = ""
    guarded_until: datetime | None = None
    notes: Mapping[TopicPartition, str] = MappingProxyType({})
    warnings: tuple[str, ...] = ()
    change_id: str = ""


class Change(NamedTuple):
    """A change that was made. ``title``: the action. ``user``: "" if nobody has authenticated it."""

    group: str
    title: str
    reason: str
    user: str
    made_ms: int
    plan: Plan


class Changes:
    """The last 100, by id. They are lost when the process ends. The audit trail has all, and the coordinator resets."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[str, Change] = OrderedDict()

    def add(self, change: Change) -> str:
        """The id, which is that of the reset if it is one."""
        id_ = change.plan.change_id or secrets.token_hex(8)
        self._by_id[id_] = change
        if len(self._by_id) > CHANGES_KEPT:
            self._by_id.popitem(last=False)
        return id_

    def get(self, id_: str) -> Change | None:
        return self._by_id.get(id_)


def plan_of(reset: GroupReset) -> Plan:
    removed = set(reset.removed)
    return Plan(
        reset.members,
        tuple(member for member in reset.members if member.member_id in removed),
        offset_rows(reset.before, reset.after),
        guarded_until=reset.guarded_until,
        notes=reset.notes,
        warnings=reset.warnings,
        change_id=reset.change_id,
    )


def offset_rows(before: OffsetsByPartition, after: OffsetsByPartition) -> tuple[OffsetRow, ...]:
    keys = sorted(key for key in after if not isinstance(key, str))
    return tuple(OffsetRow(*key, before.get(key), after[key]) for key in keys)


def change_of(reset: ResetChange) -> Change:
    """A reset that another one has made, or that was made before the process was started."""
    plan = Plan((), rows=offset_rows(reset.before, reset.after), change_id=reset.change_id)
    made_ms = round(reset.made_at.timestamp() * 1000)
    return Change(reset.group, "Reset offsets", reset.reason, reset.by, made_ms, plan)
