"""Changes that were planned or made by forms: what each does to offsets and members, and the last ones made."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

from ...embed.results import GroupMember, GroupReset

CHANGES_KEPT: Final = 100


class OffsetRow(NamedTuple):
    """A partition whose committed offset changes. None: it has none."""

    topic: str
    partition: int
    before: int | None
    after: int | None


class Plan(NamedTuple):
    """What an action does, or would do. ``members``: those of the group before. ``removed``: some of them.

    ``obstacle``: why it cannot be done; "" if it can.
    """

    members: tuple[GroupMember, ...]
    removed: tuple[GroupMember, ...] = ()
    rows: tuple[OffsetRow, ...] = ()
    obstacle: str = ""
    guarded_until: datetime | None = None


class Change(NamedTuple):
    """A change that was made. ``title``: the action. ``user``: "" if nobody has authenticated it."""

    group: str
    title: str
    reason: str
    user: str
    made_ms: int
    plan: Plan


class Changes:
    """The last 100, by id. They are lost when the process ends; the audit trail has them."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[str, Change] = OrderedDict()

    def add(self, change: Change) -> str:
        """The id."""
        id_ = secrets.token_hex(8)
        self._by_id[id_] = change
        if len(self._by_id) > CHANGES_KEPT:
            self._by_id.popitem(last=False)
        return id_

    def get(self, id_: str) -> Change | None:
        return self._by_id.get(id_)


def offset_rows(reset: GroupReset) -> tuple[OffsetRow, ...]:
    keys = sorted(key for key in reset.after if not isinstance(key, str))
    return tuple(OffsetRow(*key, reset.before.get(key), reset.after[key]) for key in keys)


def members_of(ids: tuple[str, ...], members: Mapping[str, GroupMember]) -> tuple[GroupMember, ...]:
    """Those that are known."""
    return tuple(members[id_] for id_ in ids if id_ in members)
