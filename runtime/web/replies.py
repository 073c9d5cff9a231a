"""What the HTTP API answers about groups, as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..embed.results import CommittedOffset, GroupDescription, GroupMember, GroupReset, TopicPartition
from ..node.group_figures import TopicRanges
from .group_rows import GroupRow


def row_json(row: GroupRow) -> dict[str, Any]:
    topics = None if row.topics is None else sorted(row.topics)
    return {**row._asdict(), "topics": topics}


def topic_row_json(row: GroupRow, topic: str) -> dict[str, Any]:
    """A group of a topic. ``lag``: that in this topic."""
    return {"group": row.group, "state": row.state, "members": row.members, "lag": (row.topics or {}).get(topic)}


def description_json(group: GroupDescription, offsets: list[dict[str, Any]]) -> dict[str, Any]:
    topics = {topic for member in group.members for topic in member.topics or ()} | {row["topic"] for row in offsets}
    return {
        "group": group.group_id,
        "state": group.state,
        "type": group.type,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": len(group.members),
        "topics": sorted(topics),
        "lag": total_lag(offsets),
    }


def member_json(member: GroupMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "topics": None if member.topics is None else list(member.topics),
        "assigned": _by_topic(member.assigned),
        "epoch": member.epoch,
        "target": _by_topic(member.target),
    }


def reset_json(reset: GroupReset, is_plan: bool) -> dict[str, Any]:
    """What was changed, or would be. An offset that there is not is null."""
    guarded_until = reset.guarded_until
    partitions = sorted(key for key in reset.after if not isinstance(key, str))
    return {
        "group": reset.group,
        "is_plan": is_plan,
        "removed": list(reset.removed),
        "partitions": [
            {"topic": key[0], "partition": key[1], "before": reset.before.get(key), "after": reset.after[key]}
            for key in partitions
        ],
        "guarded_until": None if guarded_until is None else guarded_until.isoformat(),
    }


def _by_topic(partitions: Iterable[TopicPartition] | None) -> list[dict[str, Any]] | None:
    if partitions is None:
        return None
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()]


def offsets_json(offsets: Mapping[TopicPartition, CommittedOffset], ranges: TopicRanges) -> list[dict[str, Any]]:
    """The committed offsets, sorted. The end and the lag are null for a partition that this server does not have."""
    return [_offset_json(partition, offsets[partition], ranges) for partition in sorted(offsets)]


def _offset_json(partition: TopicPartition, committed: CommittedOffset, ranges: TopicRanges) -> dict[str, Any]:
    topic, number = partition
    known = ranges.get(topic)
    end = known.ends[number] if known is not None and number < len(known.ends) else None
    return {
        "topic": topic,
        "partition": number,
        "offset": committed.offset,
        "metadata": committed.metadata,
        "leader_epoch": None if committed.leader_epoch < 0 else committed.leader_epoch,
        "end_offset": end,
        "lag": None if end is None else max(end - committed.offset, 0),
    }


def total_lag(offsets: Iterable[Mapping[str, Any]]) -> int | None:
    """None if there is no offset, or the lag of one is not known."""
    lags = [row["lag"] for row in offsets]
    return sum(lags) if lags and None not in lags else None
