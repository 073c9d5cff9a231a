"""Translates the actors' messages to Kafka's requests, and Kafka's responses to the actors' replies, for ``tcp.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from ...actors.consumer_group.messages import ConsumerHeartbeat, ConsumerHeartbeatReply
from ...actors.consumer_group.records import Partition
from ...actors.errors import ErrorCode
from ...actors.messages import (
    Committed,
    DeleteGroup,
    Described,
    DescribedMember,
    DescribeGroup,
    Fetched,
    FetchedOffset,
    Heartbeat,
    Joined,
    JoinedMember,
    JoinGroup,
    LeaveGroup,
    Left,
    LeftMember,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetsDeleted,
    Synced,
    SyncGroup,
)

SERVER_RETENTION = timedelta(milliseconds=-1)


def error_of(code: int) -> ErrorCode:
    """An unknown code becomes UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _join(request: JoinGroup) -> dict[str, Any]:
    return {
        "group_id": request.group_id,
        "session_timeout": timedelta(milliseconds=request.session_timeout_ms),
        "rebalance_timeout": timedelta(milliseconds=request.rebalance_timeout_ms),
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
        "protocol_type": request.protocol_type,
        "protocols": [{"name": protocol.name, "metadata": protocol.metadata} for protocol in request.protocols],
        "reason": request.reason,
    }


def _joined(_request: JoinGroup, response: Any) -> Joined:
    return Joined(
        error_of(response.error_code),
        response.member_id,
        response.generation_id,
        getattr(response, "protocol_type", None),
        response.protocol_name,
        response.leader,
        tuple(
            JoinedMember(member.member_id, getattr(member, "group_instance_id", None), member.metadata)
            for member in response.members
        ),
        getattr(response, "skip_assignment", False),
    )


def _sync(request: SyncGroup) -> dict[str, Any]:
    return {
        "group_id": request.group_id,
        "generation_id": request.generation_id,
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
        "protocol_type": request.protocol_type,
        "protocol_name": request.protocol_name,
        "assignments": [
            {"member_id": member_id, "assignment": assignment} for member_id, assignment in request.assignments
        ],
    }


def _synced(_request: SyncGroup, response: Any) -> Synced:
    return Synced(
        error_of(response.error_code),
        getattr(response, "protocol_type", None),
        getattr(response, "protocol_name", None),
        response.assignment,
    )


def _heartbeat(request: Heartbeat) -> dict[str, Any]:
    return {
        "group_id": request.group_id,
        "generation_id": request.generation_id,
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
    }


def _heartbeat_reply(_request: Heartbeat, response: Any) -> ErrorCode:
    return error_of(response.error_code)


def _consumer_heartbeat(request: ConsumerHeartbeat) -> dict[str, Any]:
    owned = request.owned
    return {
        "group_id": request.group_id,
        "member_id": request.member_id,
        "member_epoch": request.member_epoch,
        "instance_id": request.instance_id,
        "rack_id": request.rack_id,
        "rebalance_timeout": timedelta(milliseconds=request.rebalance_timeout_ms),
        "subscribed_topic_names": request.topics,
        "subscribed_topic_regex": request.regex,
        "server_assignor": request.server_assignor,
        "topic_partitions": None if owned is None else _rows_by_topic_id(owned),
    }


def _rows_by_topic_id(partitions: Iterable[Partition]) -> list[dict[str, Any]]:
    numbers: dict[bytes, list[int]] = {}
    for topic_id, number in partitions:
        numbers.setdefault(topic_id, []).append(number)
    return [{"topic_id": UUID(bytes=topic_id), "partitions": listed} for topic_id, listed in numbers.items()]


def _consumer_heartbeat_reply(_request: ConsumerHeartbeat, response: Any) -> ConsumerHeartbeatReply:
    return ConsumerHeartbeatReply(
        error_of(response.error_code),
        response.error_message,
        response.member_id,
        response.member_epoch,
        response.heartbeat_interval // timedelta(milliseconds=1),
        None if response.assignment is None else _assigned(response.assignment),
    )


def _assigned(assignment: Any) -> tuple[Partition, ...]:
    rows = assignment.topic_partitions
    return tuple((topic.topic_id.bytes, number) for topic in rows for number in topic.partitions)


def _leave(request: LeaveGroup) -> dict[str, Any]:
    return {"group_id": request.group_id, "members": [member._asdict() for member in request.members]}


def _left(_request: LeaveGroup, response: Any) -> Left:
    members = (
        LeftMember(member.member_id, member.group_instance_id, error_of(member.error_code))
        for member in response.members
    )
    return Left(error_of(response.error_code), tuple(members))


def _commit(request: OffsetCommit) -> dict[str, Any]:
    return {
        "group_id": request.group_id,
        "generation_id_or_member_epoch": request.generation_id,
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
        "retention_time": SERVER_RETENTION,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": commit.partition,
                        "committed_offset": commit.offset,
                        "committed_leader_epoch": commit.leader_epoch,
                        "committed_metadata": commit.metadata,
                    }
                    for commit in commits
                ],
            }
            for topic, commits in groupby(request.commits, attrgetter("topic"))
        ],
    }


def _committed(request: OffsetCommit, response: Any) -> Committed:
    """The response does not say how durable the commit is."""
    errors = {
        (topic.name, partition.partition_index): error_of(partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
    }
    missing = ErrorCode.UNKNOWN_SERVER_ERROR
    return Committed(tuple(errors.get((commit.topic, commit.partition), missing) for commit in request.commits))


def _fetch(request: OffsetFetch) -> dict[str, Any]:
    topics = request.topics
    rows = None if topics is None else [{"name": name, "partition_indexes": list(numbers)} for name, numbers in topics]
    return {
        "group_id": request.group_id,
        "topics": rows,
        "require_stable": request.require_stable,
    }


def _fetched(_request: OffsetFetch, response: Any) -> Fetched:
    topics = tuple((topic.name, tuple(_fetched_rows(topic.partitions))) for topic in response.topics)
    return Fetched(error_of(response.error_code), topics)


def _fetched_rows(partitions: Iterable[Any]) -> Iterable[FetchedOffset]:
    for partition in partitions:
        epoch = getattr(partition, "committed_leader_epoch", -1)
        error = error_of(partition.error_code)
        offset, metadata = partition.committed_offset, partition.metadata or ""
        yield FetchedOffset(partition.partition_index, offset, epoch, metadata, error)


def _describe(request: DescribeGroup) -> dict[str, Any]:
    return {"groups": [request.group_id], "include_authorized_operations": False}


def _described(request: DescribeGroup, response: Any) -> Described:
    [group] = response.groups
    members = (
        DescribedMember(
            member.member_id,
            getattr(member, "group_instance_id", None),
            member.client_id,
            member.client_host,
            member.member_metadata,
            member.member_assignment,
        )
        for member in group.members
    )
    return Described(
        error_of(group.error_code),
        request.group_id,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        tuple(members),
    )


def _delete_group(request: DeleteGroup) -> dict[str, Any]:
    return {"groups_names": [request.group_id]}


def _group_deleted(_request: DeleteGroup, response: Any) -> ErrorCode:
    [result] = response.results
    return error_of(result.error_code)


def _delete_offsets(request: OffsetDelete) -> dict[str, Any]:
    topics = [
        {"name": name, "partitions": [{"partition_index": number} for number in numbers]}
        for name, numbers in request.topics
    ]
    return {"group_id": request.group_id, "topics": topics}


def _offsets_deleted(request: OffsetDelete, response: Any) -> OffsetsDeleted:
    """An error of a partition is that of its topic."""
    errors = dict.fromkeys((name for name, _ in request.topics), ErrorCode.NONE)
    for topic in response.topics:
        codes = (error_of(partition.error_code) for partition in topic.partitions if partition.error_code)
        errors[topic.name] = next(codes, ErrorCode.NONE)
    return OffsetsDeleted(error_of(response.error_code), tuple(errors.values()))


class Translation(NamedTuple):
    """kio's name of the API, the request's values from a message, and the reply from a request and its response."""

    api: str
    values: Callable[[Any], dict[str, Any]]
    reply: Callable[[Any, Any], Any]


TRANSLATIONS: Mapping[type, Translation] = {
    JoinGroup: Translation("join_group", _join, _joined),
    SyncGroup: Translation("sync_group", _sync, _synced),
    Heartbeat: Translation("heartbeat", _heartbeat, _heartbeat_reply),
    ConsumerHeartbeat: Translation("consumer_group_heartbeat", _consumer_heartbeat, _consumer_heartbeat_reply),
    LeaveGroup: Translation("leave_group", _leave, _left),
    OffsetCommit: Translation("offset_commit", _commit, _committed),
    DescribeGroup: Translation("describe_groups", _describe, _described),
    OffsetFetch: Translation("offset_fetch", _fetch, _fetched),
    # Only admin methods send these.
    DeleteGroup: Translation("delete_groups", _delete_group, _group_deleted),
    OffsetDelete: Translation("offset_delete", _delete_offsets, _offsets_deleted),
}
