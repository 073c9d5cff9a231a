"""Requests of the differential tests with default values, and steps that several tests have in common.

The values have the fields of all versions; the encoder omits those that a version lacks.
"""

from __future__ import annotations

import struct
import uuid
from typing import Any

from peers.waiting import wait_until

from .side_by_side import PairedConnection, PairedValue

NO_ID = uuid.UUID(int=0)
SESSION_TIMEOUT_MS = 60_000

# Version 0, no topics, no user data. Kafka decodes the subscriptions of consumers; if one is invalid, it never answers
# the join.
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
    partitions = [
        {"partition_index": partition, "committed_offset": 40 + partition, "committed_metadata": "here"}
        for partition in (0, 1, 9)
    ]
    values: Values = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time": -1,
        "topics": [{"name": topic, "topic_id": topic_id, "partitions": partitions}],
    }
    return {**values, **changes}


def fetch_values(version: int, group: str, topics: list[Values] | None, **changes: Any) -> Values:
    """OffsetFetch of one group: from version 8 on, a request has a list of groups."""
    request = {"group_id": group, "topics": topics, "member_id": None, "member_epoch": -1, **changes}
    return {"groups": [request], "require_stable": False} if version >= 8 else {**request, "require_stable": False}


def heartbeat_values(group: str, member: Any, generation: int = 1, instance_id: str | None = None) -> Values:
    return {"group_id": group, "generation_id": generation, "member_id": member, "group_instance_id": instance_id}


def request_header(key: int, version: int) -> bytes:
    """A request header for unknown keys and versions: key, version, correlation id, client id, no tagged fields."""
    return struct.pack(">hhih", key, version, 7, 4) + b"wire" + b"\x00"


def join(connection: PairedConnection, group: str, version: int = 9, **changes: Any) -> PairedValue:
    """Join a group. From version 4 on, a dynamic member receives its id first and joins again."""
    answer = connection.ask("join_group", version, **join_values(group, **changes))
    if answer.theirs["error_code"] == "MEMBER_ID_REQUIRED":
        changes = {**changes, "member_id": answer["member_id"]}
        answer = connection.ask("join_group", version, **join_values(group, **changes))
    return answer


def only_member(connection: PairedConnection, group: str, instance_id: str | None = None) -> PairedValue:
    """Join and sync the only member of a group; return its id. With ``instance_id`` it is a static member."""
    member = join(connection, group, group_instance_id=instance_id)["member_id"]
    assignments = [{"member_id": member, "assignment": b"everything"}]
    connection.ask("sync_group", 5, **sync_values(group, member, assignments, group_instance_id=instance_id))
    return member


def heartbeat(
    connection: PairedConnection, group: str, member: Any, generation: int = 1, instance_id: str | None = None
) -> None:
    connection.ask("heartbeat", 4, **heartbeat_values(group, member, generation, instance_id))


def leave(connection: PairedConnection, version: int, group: str, member: Any, instance_id: str | None = None) -> None:
    leaving = {"member_id": member, "group_instance_id": instance_id, "reason": "test"}
    connection.ask("leave_group", version, group_id=group, member_id=member, members=[leaving])


def describe(connection: PairedConnection, group: str) -> None:
    connection.ask("describe_groups", 6, groups=[group], include_authorized_operations=False)


def fetch_all(connection: PairedConnection, group: str) -> None:
    connection.ask("offset_fetch", 9, **fetch_values(9, group, None))


def same_listing(connection: PairedConnection, version: int, prefix: str, **values: Any) -> None:
    """Compare the listed groups whose ids have the prefix."""
    answers = connection.ask_uncompared("list_groups", version, **values)
    for answer in (answers.ours, answers.theirs):
        answer["groups"] = [group for group in answer["groups"] if group["group_id"].startswith(prefix)]
    connection.compare(f"list_groups v{version} {values}", answers)


def create_topic(connection: PairedConnection, topic: str, partitions: int) -> None:
    """Create a topic on both servers and wait until both lead its partitions."""
    new = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
    connection.ask("create_topics", 4, topics=[new], timeout=30_000, validate_only=False)
    wait_until_led(connection, topic, partitions)


def wait_until_led(connection: PairedConnection, topic: str, partitions: int) -> None:
    """Wait until both servers show so many partitions of a topic and lead all of them.

    Kafka shows a new partition in its metadata a moment before it becomes its leader.
    """
    offsets = [{"partition_index": index, "current_leader_epoch": -1, "timestamp": -1} for index in range(partitions)]
    topics = [{"name": topic, "partitions": offsets}]

    def errors() -> list[str]:
        shown = connection.ask_uncompared("metadata", 9, **metadata_values([{"name": topic}]))
        led = connection.ask_uncompared("list_offsets", 7, replica_id=-1, isolation_level=0, topics=topics)
        answers = (shown.ours, shown.theirs, led.ours, led.theirs)
        return [partition["error_code"] for side in answers for partition in side["topics"][0]["partitions"]]

    wait_until(errors, lambda codes: codes == ["NONE"] * 4 * partitions, f"the leaders of topic {topic}")


def id_of(connection: PairedConnection, topic: str) -> PairedValue:
    return connection.ask("metadata", 12, **metadata_values([{"name": topic, "topic_id": NO_ID}]))["topics"][0][
        "topic_id"
    ]
