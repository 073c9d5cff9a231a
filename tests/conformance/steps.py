"""The steps that scenarios are written with: one line each, everything usual left out.

All give a step of a script, ``member`` gives several. A connection's first letter is its client; ``who`` is a member id
by its name in scripts. Changes go by the names of the request's fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .script import DISCONNECT, WAIT, Step, client_of

NOTHING: Mapping[str, Any] = MappingProxyType({})
LONG_MS = 60_000  # a timeout that no scenario outlives, unless it says so

RANGE = [{"name": "range", "metadata": "$reads t"}]
STICKY = [{"name": "sticky", "metadata": "$reads t"}]
BOTH = [*RANGE, *STICKY]
BOTH_STICKY_FIRST = [*STICKY, *RANGE]
OTHER_TOPIC = [{"name": "range", "metadata": "$reads u"}]
ALIEN = [{"name": "alien", "metadata": "$reads t"}]


def join(line: str, who: str = "", v: int = 9, **changes: Any) -> Step:
    values = {
        "group_id": "$group",
        "session_timeout": LONG_MS,
        "rebalance_timeout": LONG_MS,
        "member_id": who,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": RANGE,
        "reason": "because",
    }
    return [line, "join_group", v, {**values, **changes}]


def sync(
    line: str, who: str, generation: int = 1, parts: Mapping[str, str] = NOTHING, v: int = 5, **changes: Any
) -> Step:
    """``parts``: member id -> text of its assignment, if the leader syncs."""
    values = {
        "group_id": "$group",
        "generation_id": generation,
        "member_id": who,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": one, "assignment": f"$bytes {part}"} for one, part in parts.items()],
    }
    return [line, "sync_group", v, {**values, **changes}]


def heartbeat(
    line: str, who: str, generation: int = 1, instance_id: str | None = None, v: int = 4, group: str = "$group"
) -> Step:
    values = {"group_id": group, "generation_id": generation, "member_id": who, "group_instance_id": instance_id}
    return [line, "heartbeat", v, values]


def leave(line: str, *leaving: str | tuple[str, str], v: int = 5, group: str = "$group") -> Step:
    """Who leaves: member ids, or pairs of a member id (or nothing) and an instance id. Before v3 it is the first."""
    pairs = [(one, None) if isinstance(one, str) else one for one in leaving]
    members = [{"member_id": one, "group_instance_id": instance_id, "reason": "enough"} for one, instance_id in pairs]
    return [line, "leave_group", v, {"group_id": group, "member_id": pairs[0][0] if pairs else "", "members": members}]


def part(index: int, offset: int = 40, metadata: str | None = "here", epoch: int = -1) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": offset,
        "committed_leader_epoch": epoch,
        "committed_metadata": metadata,
    }


def offsets(topic: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"name": topic, "topic_id": f"$topic {topic}", "partitions": list(parts)}


NOWHERE = {"name": "never-made", "topic_id": "$uuid 7", "partitions": [part(0)]}


def commit(line: str, who: str = "", generation: int = -1, *topics: Any, v: int = 9, **changes: Any) -> Step:
    values = {
        "group_id": "$group",
        "generation_id_or_member_epoch": generation,
        "member_id": who,
        "group_instance_id": None,
        "retention_time": -1,
        "topics": list(topics or [offsets("t", part(0), part(1, 41))]),
    }
    return [line, "offset_commit", v, {**values, **changes}]


def fetch(line: str, topics: Mapping[str, list[int]] | None = None, v: int = 9, **changes: Any) -> Step:
    """Of everything that was committed (v2+), or of some partitions by topic; ``never-made`` is a topic that is not."""
    ids = {"never-made": "$uuid 7"}
    asked = None
    if topics is not None:
        asked = [
            {"name": name, "topic_id": ids.get(name, f"$topic {name}"), "partition_indexes": indexes}
            for name, indexes in topics.items()
        ]
    stable = changes.pop("require_stable", False)
    group = {"group_id": "$group", "topics": asked, "member_id": None, "member_epoch": -1, **changes}
    return [line, "offset_fetch", v, {"groups": [group], "require_stable": stable} if v >= 8 else group]


def describe(line: str, *groups: str, v: int = 6) -> Step:
    return [line, "describe_groups", v, {"groups": list(groups or ["$group"]), "include_authorized_operations": False}]


def delete(line: str, *groups: str, v: int = 2) -> Step:
    return [line, "delete_groups", v, {"groups_names": list(groups or ["$group"])}]


def delete_offsets(line: str, topics: Mapping[str, list[int]], group: str = "$group") -> Step:
    asked = [
        {"name": name, "partitions": [{"partition_index": index} for index in indexes]}
        for name, indexes in topics.items()
    ]
    return [line, "offset_delete", 0, {"group_id": group, "topics": asked}]


def wait(ms: int) -> Step:
    return [WAIT, ms]


def disconnect(line: str) -> Step:
    return [DISCONNECT, line]


def member(line: str, v: int = 9, **changes: Any) -> list[Step]:
    """The only member of a stable group, generation 1: it leads and has the assignment 'all'."""
    instance_id = changes.get("group_instance_id")
    who = f"${instance_id or client_of(line)}1"
    joining = [join(line, v=v, **changes)]
    if v >= 4 and instance_id is None:
        joining.append(join(line, who, v=v, **changes))
    protocol = changes.get("protocols", RANGE)[0]["name"]
    synced = sync(line, who, 1, {who: "all"}, group_instance_id=instance_id, protocol_name=protocol)
    synced[3]["protocol_type"] = changes.get("protocol_type", "consumer")
    return [*joining, synced]


def pair(first: Mapping[str, Any] = NOTHING, second: Mapping[str, Any] = NOTHING) -> list[Step]:
    """A leads and B follows in generation 2, which is stable. Changes of each one's join by name."""
    a, b = (f"${changes.get('group_instance_id') or line}1" for line, changes in (("A", first), ("B", second)))
    seat_a, seat_b = first.get("group_instance_id"), second.get("group_instance_id")
    asks_for_id = [] if seat_b else [join("B", **second)]
    return [
        *member("A", **first),
        *asks_for_id,
        join("B", "" if seat_b else b, **second),
        join("A", a, **first),
        sync("A", a, 2, {a: "left", b: "right"}, group_instance_id=seat_a),
        sync("B", b, 2, group_instance_id=seat_b),
    ]
