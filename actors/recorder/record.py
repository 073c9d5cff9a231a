"""RebalanceRecord: what happened in one rebalance, and why. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..group.events import Identity

NAMES_MAX = 20
"""How many members or partitions a record names. The counts are of all."""

CAUSES_MAX = 10
LATE_MAX = 3
NAME_CHARACTERS_MAX = 255
"""Clients may choose names of 32 KiB."""

RECORD_BYTES = 1600
"""The memory of a record without its lists."""

ITEM_BYTES = 460
"""The memory of an item of its lists, without its texts: at most a tuple, six texts, a time."""

Named = tuple[str, int]
"""A name and a number."""


class MemberName(NamedTuple):
    """The names of a member, each cut at 255 characters. ``client_host``: its address, as in "/10.0.0.7".

    ``principal``, ``software``: see ``clients.MemberClient``; "" if they are not known.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    principal: str = ""
    software: str = ""

    @property
    def lasting(self) -> tuple[str, str]:
        """What stays the same when the member restarts: its instance id, or its client id and host."""
        return ("", self.instance_id) if self.instance_id is not None else (self.client_host, self.client_id)


class FurtherCause(NamedTuple):
    """Another change that the rebalance is about. ``wall_ms``: milliseconds since 1970."""

    wall_ms: int
    cause: str
    member: MemberName | None


class MemberCount(NamedTuple):
    """How many members, and the first 20 of them."""

    members: int = 0
    names: tuple[MemberName, ...] = ()


class LateMember(NamedTuple):
    """A member that came late. ``after_ms``: after the rebalance had begun."""

    member: MemberName
    after_ms: int


class AbsentMember(NamedTuple):
    """A member that never came. ``decision``: "removed", or "kept", because it is static."""

    member: MemberName
    decision: str


class Moves(NamedTuple):
    """How the assignment differs from the one before.

    ``assigned``: how many partitions each member has, of the 20 with the most. ``total``: the partitions that are
    assigned. ``moved``: those that another member had before, or that nobody has now. ``added``: those that nobody had.
    ``moved_partitions``: the first 20 of ``moved``, each with its topic. ``stopped_ms``: for how long nobody worked on
    partitions, summed over them: all those that somebody had, for the whole rebalance, or with a cooperative assignor
    the moved ones. None with the consumer protocol, whose members do not stop together. ``idle``: how many members have
    no partition.
    """

    assigned: tuple[Named, ...]
    total: int
    moved: int
    added: int
    moved_partitions: tuple[Named, ...]
    stopped_ms: int | None = None
    idle: int = 0


class Why(NamedTuple):
    """Why a group rebalanced. ``cause``: a key of ``causes.TEXTS``; ``by``: the member that caused it.

    ``client_reason``: in the client's words (KIP-800). ``also``: the first 10 further causes. ``restarts``: how often
    the rebalance began again.
    """

    cause: str
    by: MemberName | None = None
    client_reason: str = ""
    also: tuple[FurtherCause, ...] = ()
    restarts: int = 0


class MemberChanges(NamedTuple):
    """``stayed``: the members that were in the group before and after; None if that is not known.

    ``late``: the three members that came last, the last one first. ``absent``: the first 20 members that never came,
    of ``absent_count``.
    """

    joined: MemberCount = MemberCount()
    left: MemberCount = MemberCount()
    stayed: int | None = None
    late: tuple[LateMember, ...] = ()
    absent: tuple[AbsentMember, ...] = ()
    absent_count: int = 0


class RebalanceRecord(NamedTuple):
    """One rebalance of a group. Times are in milliseconds, ``began_ms`` and ``ended_ms`` since 1970.

    ``generation``: the one that it formed; ``is_epoch``: whether that is the epoch of a group of the consumer protocol.
    ``outcome``: "stable", "empty", or "interrupted", because the group left memory. ``phases_ms``: the phases that it
    had, in their order. ``leader``: its member id. ``moves``: None if the assignment cannot be read or compared, or
    there is none.
    """

    group_id: str
    generation: int
    is_epoch: bool
    began_ms: int
    ended_ms: int
    duration_ms: int
    outcome: str
    why: Why
    members: MemberChanges
    phases_ms: tuple[Named, ...]
    protocol: str
    leader: str
    moves: Moves | None = None

    @property
    def longest_phase(self) -> Named | None:
        return max(self.phases_ms, key=lambda phase: phase[1], default=None)


def name_of(member: Identity) -> MemberName:
    """The names of a member or of the member of an event."""
    instance_id = member.group_instance_id
    return MemberName(
        member.member_id[:NAME_CHARACTERS_MAX],
        None if instance_id is None else instance_id[:NAME_CHARACTERS_MAX],
        member.client_id[:NAME_CHARACTERS_MAX],
        member.client_host[:NAME_CHARACTERS_MAX],
    )


def size_of(record: RebalanceRecord) -> int:
    """About the memory of a record, in bytes. Not less than it takes."""
    why, members, moves = record.why, record.members, record.moves
    names = [*members.joined.names, *members.left.names, *(late.member for late in members.late)]
    names += (absent.member for absent in members.absent)
    names += (name for name in (why.by, *(further.member for further in why.also)) if name is not None)
    texts = sum(4 * len(text) for name in names for text in name if text)
    texts += 4 * sum(map(len, (record.group_id, why.client_reason, record.protocol, record.leader)))
    items = len(names) + len(why.also) + len(members.late) + len(members.absent) + len(record.phases_ms)
    labels = [] if moves is None else [name for name, _ in (*moves.moved_partitions, *moves.assigned)]
    return RECORD_BYTES + (items + len(labels)) * ITEM_BYTES + texts + 4 * sum(map(len, labels))


# JSON ----------------------------------------------------------------------------------------------------------------

BY_NAME = ("phases_ms", "assigned", "first_choices", "voted")
"""Pairs that become an object."""

FLAT = ("why", "members")
"""Parts of a record whose fields become those of the record."""


def as_json(record: RebalanceRecord) -> dict[str, Any]:
    """A record as one object, with the names of the fields."""
    fields: dict[str, Any] = {}
    for name, value in record._asdict().items():
        if name in FLAT:
            fields |= plain_json(value)
        else:
            fields[name] = dict(value) if name in BY_NAME else plain_json(value)
    return fields


def plain_json(value: Any) -> Any:
    """Named tuples become objects, other tuples lists."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: dict(item) if name in BY_NAME else plain_json(item) for name, item in value._asdict().items()}
    return [plain_json(item) for item in value] if isinstance(value, tuple) else value


def from_json(fields: Mapping[str, Any]) -> RebalanceRecord:
    """The record that ``as_json`` has made this of. Raises KeyError, TypeError or ValueError for anything else.

    Further fields are ignored.
    """
    read = {name: (_READ.get(name) or _unchanged)(value) for name, value in fields.items()}
    parts = {name: part(**{field: read[field] for field in part._fields}) for name, part in _PARTS.items()}
    return RebalanceRecord(**{name: parts.get(name) or read[name] for name in RebalanceRecord._fields})


_PARTS: Mapping[str, Any] = {"why": Why, "members": MemberChanges}


def _unchanged(value: Any) -> Any:
    return value


def _member(fields: Any) -> MemberName | None:
    return None if fields is None else MemberName(**fields)


def _count(fields: Any) -> MemberCount:
    return MemberCount(fields["members"], tuple(MemberName(**name) for name in fields["names"]))


def _moves(fields: Any) -> Moves | None:
    if fields is None:
        return None
    moved = tuple((topic, number) for topic, number in fields["moved_partitions"])
    return Moves(**{**fields, "assigned": tuple(fields["assigned"].items()), "moved_partitions": moved})


_READ: Mapping[str, Callable[[Any], Any]] = {
    "by": _member,
    "also": lambda items: tuple(
        FurtherCause(item["wall_ms"], item["cause"], _member(item["member"])) for item in items
    ),
    "joined": _count,
    "left": _count,
    "late": lambda items: tuple(LateMember(MemberName(**item["member"]), item["after_ms"]) for item in items),
    "absent": lambda items: tuple(AbsentMember(MemberName(**item["member"]), item["decision"]) for item in items),
    "phases_ms": lambda phases: tuple(phases.items()),
    "moves": _moves,
}
"""How the values of fields are read."""
