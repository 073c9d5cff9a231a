"""The actions on a group: each says what it would do, and does it. All functions run on the coordinator's loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from ...embed.admin import Admin
from ...embed.reset_undo import UnknownChange
from ...embed.results import GroupMember, Target
from ..changing import targets
from ..group_list import parse_number
from ..problems import BadBody
from .changes import OffsetRow, Plan, plan_of
from .fields import Fields, one, partitions_of, ticked

OFFSET_MAX: Final = 2**63 - 1


class Asked(NamedTuple):
    """An action on a group."""

    admin: Admin
    group: str
    fields: Fields
    reason: str = ""


class Action(NamedTuple):
    """An action: ``path`` and ``template`` by its ``name``.

    ``plan``: what it would do, None if the fields do not say yet what is to be done. ``make``: do it.
    """

    name: str
    title: str
    plan: Callable[[Asked], Awaitable[Plan | None]]
    make: Callable[[Asked], Awaitable[Plan]]


# Remove members ------------------------------------------------------------------------------------------------------


async def _plan_evict(asked: Asked) -> Plan:
    members = (await asked.admin.describe(asked.group)).members
    obstacle = "" if members else "The group has no members."
    return Plan(members, _chosen_members(asked.fields, members), obstacle=obstacle)


async def _evict(asked: Asked) -> Plan:
    members = (await asked.admin.describe(asked.group)).members
    chosen = _chosen_members(asked.fields, members)
    await asked.admin.remove_members(
        asked.group,
        member_ids=[member.member_id for member in chosen if member.instance_id is None],
        instance_ids=[member.instance_id for member in chosen if member.instance_id is not None],
        reason=asked.reason,
    )
    return Plan(members, chosen)


def _chosen_members(fields: Fields, members: tuple[GroupMember, ...]) -> tuple[GroupMember, ...]:
    """All if none is chosen. Raises BadBody for one that is not there any more."""
    ids = dict.fromkeys(ticked(fields, "member"))
    by_id = {member.member_id: member for member in members}
    gone = [id_ for id_ in ids if id_ not in by_id]
    if gone:
        raise BadBody(f"member {gone[0][:100]!r}: it is not in the group any more")
    return tuple(by_id[id_] for id_ in ids) if ids else members


# Reset offsets -------------------------------------------------------------------------------------------------------


async def _plan_reset(asked: Asked) -> Plan | None:
    if not asked.fields.keys() & {"to", "undo"}:
        partitions_of(asked.fields)
        return None
    return await _reset(asked, dry_run=True)


async def _make_reset(asked: Asked) -> Plan:
    return await _reset(asked, dry_run=False)


async def _reset(asked: Asked, *, dry_run: bool) -> Plan:
    if undone := one(asked.fields, "undo"):
        if undone not in {change.change_id for change in await asked.admin.resets(asked.group)}:
            raise UnknownChange(undone)
        return plan_of(await asked.admin.undo_reset(undone, reason=asked.reason, dry_run=dry_run))
    chosen = await _targets(asked)
    return plan_of(await asked.admin.evict_and_reset(asked.group, chosen, reason=asked.reason, dry_run=dry_run))


async def _targets(asked: Asked) -> dict[tuple[str, int] | str, Target | None]:
    """Raises BadBody."""
    to = _target(asked.fields)
    partitions = [{"topic": topic, "partition": number, "to": to} for topic, number in partitions_of(asked.fields)]
    topic = one(asked.fields, "topic")
    topics = [topic] if topic else await _topics(asked)
    return targets({"targets": partitions or [{"topic": name, "to": to} for name in topics]})


def _target(fields: Fields) -> Any:
    """The target as the API expects it. Raises BadBody, and BadParameter for a bad number."""
    to = one(fields, "to")
    if to not in TARGETS:
        raise BadBody(f"to={to[:100]!r}: expected one of {', '.join(TARGETS)}")
    return TARGETS[to](one(fields, to))


def _shift(text: str) -> int:
    is_back = text.startswith("-")
    records = parse_number("shift", text.removeprefix("-"), 0, OFFSET_MAX)
    return -records if is_back else records


def _time(text: str) -> str:
    """A browser's field for a time has no zone: it is in UTC, as all times of the page."""
    return text if text.endswith("Z") or "+" in text else f"{text}Z"


TARGETS: Final[Mapping[str, Callable[[str], Any]]] = {
    "earliest": lambda _: "earliest",
    "latest": lambda _: "latest",
    "offset": lambda text: parse_number("offset", text, 0, OFFSET_MAX),
    "time": lambda text: {"time": _time(text)},
    "shift": lambda text: {"shift": _shift(text)},
    "group": lambda text: {"group": text},
    "none": lambda _: None,
}
"""By the field ``to``: makes a target of the text in the field of the same name."""


async def _topics(asked: Asked) -> list[str]:
    """The topics of the group. Raises BadBody if there are none."""
    members = (await asked.admin.describe(asked.group)).members
    assigned = {topic for member in members for topic, _ in member.assigned or ()}
    found = sorted({topic for topic, _ in await asked.admin.offsets(asked.group)} | assigned)
    if not found:
        raise BadBody("the group has no topics: no offset is committed, and no partition is assigned")
    return found


# Delete offsets, delete the group ------------------------------------------------------------------------------------


async def _plan_delete_offsets(asked: Asked) -> Plan:
    members = (await asked.admin.describe(asked.group)).members
    rows = await _chosen_offsets(asked)
    return Plan(members, rows=rows, obstacle="" if rows else "The group has no such offsets.")


async def _delete_offsets(asked: Asked) -> Plan:
    plan = await _plan_delete_offsets(asked)
    await asked.admin.delete_offsets(asked.group, [(row.topic, row.partition) for row in plan.rows])
    return plan


async def _chosen_offsets(asked: Asked) -> tuple[OffsetRow, ...]:
    """Those of the partitions that were ticked, of a topic, or all."""
    chosen, topic = set(partitions_of(asked.fields)), one(asked.fields, "topic")
    offsets = await asked.admin.offsets(asked.group)
    return tuple(
        OffsetRow(*key, offsets[key].offset, None)
        for key in sorted(offsets)
        if (key in chosen if chosen else not topic or key[0] == topic)
    )


async def _plan_delete(asked: Asked) -> Plan:
    members = (await asked.admin.describe(asked.group)).members
    offsets = await asked.admin.offsets(asked.group)
    rows = tuple(OffsetRow(*key, offsets[key].offset, None) for key in sorted(offsets))
    obstacle = (
        "The group has members: stop its consumers first. A running consumer would join again." if members else ""
    )
    return Plan(members, rows=rows, obstacle=obstacle)


async def _delete(asked: Asked) -> Plan:
    plan = await _plan_delete(asked)
    await asked.admin.delete(asked.group)
    return plan


ACTIONS: Final = (
    Action("reset", "Reset offsets", _plan_reset, _make_reset),
    Action("evict", "Remove members", _plan_evict, _evict),
    Action("delete-offsets", "Delete offsets", _plan_delete_offsets, _delete_offsets),
    Action("delete", "Delete group", _plan_delete, _delete),
)
"""The page of a group has links to them in this order."""
