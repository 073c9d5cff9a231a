"""What the differential tests ask: a request's values with the usual in them, and the steps that many tests take.

Values serve every version of their request; what a version does not have is left out when it is encoded.
"""

from __future__ import annotations

import struct
import uuid
from typing import Any

from .twins import Line, Twin

NO_ID = uuid.UUID(int=0)
SESSION_TIMEOUT_MS = 60_000

# Version 0, no topics, no user data. A real Kafka reads what consumers subscribe to; where that cannot be read it never
# answers the join.
SUBSCRIPTION = struct.pack(">hii", 0, 0, -1)
PROTOCOLS = [{"name": "range", "metadata": SUBSCRIPTION}, {"name": "sticky", "metadata": SUBSCRIPTION}]
Values = dict[str, Any]


def metadata_values(topics: list[Values], **changes: Any) -> Values:
    values: Values = {
        "topics": topics,
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    return {**values, **changes}


def join_values(group: str, **changes: Any) -> Values:
    values: Values = {
        "group_id": group,
        "session_timeout": SESSION_TIMEOUT_MS,
        "rebalance_timeout": SESSION_TIMEOUT_MS,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": PROTOCOLS,
        "reason": "test",
    }
    return {**values, **changes}


def sync_values(group: str, member: Any, assignments: list[Values], **changes: Any) -> Values:
    values: Values = {
        "group_id": group,
        "generation_id": 1,
        "member_id": member,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": assignments,
    }
    return {**values, **changes}


def commit_values(group: str, topic: str, topic_id: Any = NO_ID, **changes: Any) -> Values:
    """Two partitions that exist and one that does not."""
    parts = [
        {"partition_index": partition, "committed_offset": 40 + partition, "committed_metadata": "here"}
        for partition in (0, 1, 9)
    ]
    values: Values = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time": -1,
        "topics": [{"name": topic, "topic_id": topic_id, "partitions": parts}],
    }
    return {**values, **changes}


def fetch_values(version: int, group: str, topics: list[Values] | None, **changes: Any) -> Values:
    """One group's offsets, in the shape of a version: from 8 on a request holds many groups."""
    asked = {"group_id": group, "topics": topics, "member_id": None, "member_epoch": -1, **changes}
    return {"groups": [asked], "require_stable": False} if version >= 8 else {**asked, "require_stable": False}


def beat_values(group: str, member: Any, generation: int = 1, seat: str | None = None) -> Values:
    return {"group_id": group, "generation_id": generation, "member_id": member, "group_instance_id": seat}


def request_header(key: int, version: int) -> bytes:
    """A request's header by hand, for what has no schema: key, version, correlation id, client id, no tags."""
    return struct.pack(">hhih", key, version, 7, 4) + b"wire" + b"\x00"


def join(line: Line, group: str, version: int = 9, **changes: Any) -> Twin:
    """Become a member: from version 4 on a dynamic member is told its id first."""
    answer = line.ask("join_group", version, **join_values(group, **changes))
    if answer.theirs["error_code"] == "MEMBER_ID_REQUIRED":
        changes = {**changes, "member_id": answer["member_id"]}
        answer = line.ask("join_group", version, **join_values(group, **changes))
    return answer


def only_member(line: Line, group: str, seat: str | None = None) -> Twin:
    """The id of the one member of a stable group; with a ``seat`` it is a static member."""
    member = join(line, group, group_instance_id=seat)["member_id"]
    assignments = [{"member_id": member, "assignment": b"everything"}]
    line.ask("sync_group", 5, **sync_values(group, member, assignments, group_instance_id=seat))
    return member


def beat(line: Line, group: str, member: Any, generation: int = 1, seat: str | None = None) -> None:
    line.ask("heartbeat", 4, **beat_values(group, member, generation, seat))


def leave(line: Line, version: int, group: str, member: Any, seat: str | None = None) -> None:
    leaving = {"member_id": member, "group_instance_id": seat, "reason": "test"}
    line.ask("leave_group", version, group_id=group, member_id=member, members=[leaving])


def describe(line: Line, group: str) -> None:
    line.ask("describe_groups", 6, groups=[group], include_authorized_operations=False)


def fetch_all(line: Line, group: str) -> None:
    line.ask("offset_fetch", 9, **fetch_values(9, group, None))


def same_listing(line: Line, version: int, prefix: str, **values: Any) -> None:
    """Of all that is listed, the groups of one test."""
    answers = line.look("list_groups", version, **values)
    for answer in (answers.ours, answers.theirs):
        answer["groups"] = [group for group in answer["groups"] if group["group_id"].startswith(prefix)]
    line.compare(f"list_groups v{version} {values}", answers)


def id_of(line: Line, topic: str) -> Twin:
    return line.ask("metadata", 12, **metadata_values([{"name": topic, "topic_id": NO_ID}]))["topics"][0]["topic_id"]
