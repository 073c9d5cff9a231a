"""Functions for the steps of scenarios, with default values for the fields of each request.

Each returns one step; ``member`` and ``pair`` return several. The first letter of a connection is its client id. Member
ids are given by their names in scripts (``$A1``). The keyword arguments ``changes`` are fields of the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .script import DISCONNECT, WAIT, Step, client_of

NOTHING: Mapping[str, Any] = MappingProxyType({})
LONG_MS = 60_000  # longer than every scenario that does not wait for it

RANGE = [{"name": "range", "metadata": "$reads t"}]
STICKY = [{"name": "sticky", "metadata": "$reads t"}]
BOTH = [*RANGE, *STICKY]
BOTH_STICKY_FIRST = [*STICKY, *RANGE]
OTHER_TOPIC = [{"name": "range", "metadata": "$reads u"}]
ALIEN = [{"name": "alien", "metadata": "$reads t"}]


def join(line: str, member_id: str = "", v: int = 9, **changes: Any) -> Step:
    values = {
        "group_id": "$group",
        "session_timeout": LONG_MS,
        "rebalance_timeout": LONG_MS,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": RANGE,
        "reason": "because",
    }
    return [line, "join_group", v, {**values, **changes}]


def sync(
    line: str, member_id: str, generation: int = 1, assignments: Mapping[str, str] = NOTHING, v: int = 5, **changes: Any
) -> Step:
    """``assignments``: text of the assignment by member id, in the leader's request."""
    values = {
        "group_id": "$group",
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [
            {"member_id": assignee, "assignment": f"$bytes {text}"} for assignee, text in assignments.items()
        ],
    }
    return [line, "sync_group", v, {**values, **changes}]


def heartbeat(
    line: str, member_id: str, generation: int = 1, instance_id: str | None = None, v: int = 4, group: str = "$group"
) -> Step:
    values = {"group_id": group, "generation_id": generation, "member_id": member_id, "group_instance_id": instance_id}
    return [line, "heartbeat", v, values]


def leave(line: str, *leaving: str | tuple[str, str], v: int = 5, group: str = "$group") -> Step:
    """``leaving``: member ids, or pairs of a member id (may be empty) and an instance id. Before v3 only the first."""
    pairs = [(member, None) if isinstance(member, str) else member for member in leaving]
    members = [
        {"member_id": member, "group_instance_id": instance_id, "reason": "enough"} for member, instance_id in pairs
    ]
    return [line, "leave_group", v, {"group_id": group, "member_id": pairs[0][0] if pairs else "", "members": members}]


def part(index: int, offset: int = 40, metadata: str | None = "here", epoch: int = -1) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": offset,
        "committed_leader_epoch": epoch,
        "committed_metadata": metadata,
    }


def offsets(topic: str, *partitions: dict[str, Any]) -> dict[str, Any]:
    return {"name": topic, "topic_id": f"$topic {topic}", "partitions": list(partitions)}


NOWHERE = {"name": "never-made", "topic_id": "$uuid 7", "partitions": [part(0)]}


def commit(line: str, member_id: str = "", generation: int = -1, *topics: Any, v: int = 9, **changes: Any) -> Step:
    values = {
        "group_id": "$group",
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "group_instance_id": None,
        "retention_time": -1,
        "topics": list(topics or [offsets("t", part(0), part(1, 41))]),
    }
    return [line, "offset_commit", v, {**values, **changes}]


def fetch(line: str, topics: Mapping[str, list[int]] | None = None, v: int = 9, **changes: Any) -> Step:
    """``topics``: partitions by topic; None: all committed offsets (v2+). The topic ``never-made`` does not exist."""
    ids = {"never-made": "$uuid 7"}
    request_topics = None
    if topics is not None:
        request_topics = [
            {"name": name, "topic_id": ids.get(name, f"$topic {name}"), "partition_indexes": indexes}
            for name, indexes in topics.items()
        ]
    stable = changes.pop("require_stable", False)
    group = {"group_id": "$group", "topics": request_topics, "member_id": None, "member_epoch": -1, **changes}
    return [line, "offset_fetch", v, {"groups": [group], "require_stable": stable} if v >= 8 else group]


def describe(line: str, *groups: str, v: int = 6) -> Step:
    return [line, "describe_groups", v, {"groups": list(groups or ["$group"]), "include_authorized_operations": False}]


def delete(line: str, *groups: str, v: int = 2) -> Step:
    return [line, "delete_groups", v, {"groups_names": list(groups or ["$group"])}]


def delete_offsets(line: str, topics: Mapping[str, list[int]], group: str = "$group") -> Step:
    request_topics = [
        {"name": name, "partitions": [{"partition_index": index} for index in indexes]}
        for name, indexes in topics.items()
    ]
    return [line, "offset_delete", 0, {"group_id": group, "topics": request_topics}]


def wait(ms: int) -> Step:
    return [WAIT, ms]


def disconnect(line: str) -> Step:
    return [DISCONNECT, line]


def member(line: str, v: int = 9, **changes: Any) -> list[Step]:
    """The only member of a stable group, in generation 1. It is the leader, with the assignment 'all'."""
    instance_id = changes.get("group_instance_id")
    member_id = f"${instance_id or client_of(line)}1"
    joining = [join(line, v=v, **changes)]
    if v >= 4 and instance_id is None:
        joining.append(join(line, member_id, v=v, **changes))
    protocol = changes.get("protocols", RANGE)[0]["name"]
    synced = sync(line, member_id, 1, {member_id: "all"}, group_instance_id=instance_id, protocol_name=protocol)
    synced[3]["protocol_type"] = changes.get("protocol_type", "consumer")
    return [*joining, synced]


def pair(first: Mapping[str, Any] = NOTHING, second: Mapping[str, Any] = NOTHING) -> list[Step]:
    """A leads and B follows in the stable generation 2. ``first``, ``second``: changed fields of their joins."""
    a, b = (f"${changes.get('group_instance_id') or line}1" for line, changes in (("A", first), ("B", second)))
    instance_a, instance_b = first.get("group_instance_id"), second.get("group_instance_id")
    id_request = [] if instance_b else [join("B", **second)]
    return [
        *member("A", **first),
        *id_request,
        join("B", "" if instance_b else b, **second),
        join("A", a, **first),
        sync("A", a, 2, {a: "left", b: "right"}, group_instance_id=instance_a),
        sync("B", b, 2, group_instance_id=instance_b),
    ]
