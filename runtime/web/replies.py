"""What the HTTP API answers about groups, as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from ..embed.results import (
    CommittedOffset,
    GroupDescription,
    GroupMember,
    GroupReset,
    OffsetsByPartition,
    ResetChange,
    ResetProgress,
    TopicPartition,
)
from ..kafka.node_subjects import LastRebalance
from ..node.group_figures import TopicRanges
from .commit_times import CommitTimes
from .group_rows import GroupRow


def row_json(row: GroupRow) -> dict[str, Any]:
    topics = None if row.topics is None else sorted(row.topics)
    fields = {name: value for name, value in row._asdict().items() if not name.endswith("_ms")}
    dates = {"guarded_until": _iso(row.guarded_until_ms), "expires_at": _iso(row.expires_ms)}
    return {**fields, "topics": topics, **dates}


def _iso(time_ms: int | None) -> str | None:
    return None if time_ms is None else datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()


def listed_json(row: GroupRow, last: LastRebalance | None) -> dict[str, Any]:
    """A group in the list, with its last rebalance, if that is known."""
    last_json = None if last is None else {name: value for name, value in last._asdict().items() if name != "group"}
    return {**row_json(row), "last_rebalance": last_json}


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
        "guarded_until": _time_json(group.guarded_until),
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
    return {
        "change": reset.change_id or None,
        "group": reset.group,
        "is_plan": is_plan,
        "removed": list(reset.removed),
        "members": [member_json(member) for member in reset.members],
        "partitions": _partitions_json(reset.before, reset.after, reset.notes),
        "warnings": list(reset.warnings),
        "guarded_until": _time_json(reset.guarded_until),
    }


def _time_json(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _partitions_json(
    before: OffsetsByPartition, after: OffsetsByPartition, notes: Mapping[TopicPartition, str]
) -> list[dict[str, Any]]:
    partitions = sorted(key for key in after if not isinstance(key, str))
    return [
        {
            "topic": key[0],
            "partition": key[1],
            "before": before.get(key),
            "after": after[key],
            "note": notes.get(key),
        }
        for key in partitions
    ]


def change_json(change: ResetChange) -> dict[str, Any]:
    return {
        "change": change.change_id,
        "group": change.group,
        "made_at": change.made_at.isoformat(),
        "by": change.by,
        "reason": change.reason,
        "undoes": change.undoes or None,
        "removed": list(change.removed),
        "partitions": _partitions_json(change.before, change.after, {}),
    }


def progress_json(progress: ResetProgress) -> dict[str, Any]:
    unfetched = progress.unfetched
    return {
        "change": progress.change_id,
        "group": progress.group,
        "sentence": progress.sentence,
        "is_complete": progress.is_complete,
        "elapsed_s": progress.elapsed_s,
        "since": progress.since.isoformat(),
        "expected": progress.expected,
        "returned": progress.returned,
        "missing": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
            }
            for member in progress.missing
        ],
        "unfetched": None
        if unfetched is None
        else [{"topic": topic, "partition": partition} for topic, partition in unfetched],
    }


def _by_topic(partitions: Iterable[TopicPartition] | None) -> list[dict[str, Any]] | None:
    if partitions is None:
        return None
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()]


def offsets_json(
    offsets: Mapping[TopicPartition, CommittedOffset], ranges: TopicRanges, times: CommitTimes
) -> Iterator[dict[str, Any]]:
    """The committed offsets, sorted. The end and the lag are null for a partition that this server does not have."""
    return (_offset_json(partition, offsets[partition], ranges, times) for partition in sorted(offsets))


def _offset_json(
    partition: TopicPartition, committed: CommittedOffset, ranges: TopicRanges, times: CommitTimes
) -> dict[str, Any]:
    topic, number = partition
    known = ranges.get(topic)
    end = known.ends[number] if known is not None and number < len(known.ends) else None
    lag = None if end is None else max(end - committed.offset, 0)
    return {
        "topic": topic,
        "partition": number,
        "offset": committed.offset,
        "metadata": committed.metadata,
        "leader_epoch": None if committed.leader_epoch < 0 else committed.leader_epoch,
        "end_offset": end,
        "lag": lag,
        "lag_ms": times.lag_ms(partition, lag),
        "committed_at": _iso(times.committed(partition)),
    }


def total_lag(offsets: Iterable[Mapping[str, Any]]) -> int | None:
    """None if there is no offset, or the lag of one is not known."""
    lags = [row["lag"] for row in offsets]
    return sum(lags) if lags and None not in lags else None
