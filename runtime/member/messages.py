"""Converts the actors' messages to Kafka's requests, and the responses to the actors' tuples, for ``tcp.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from ...actors.errors import ErrorCode
from ...actors.messages import (
    Committed,
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
    OffsetFetch,
    Synced,
    SyncGroup,
)
from ..kafka.codec.frames import API_VERSIONS, Known

APIS = {
    "metadata": Known(3, 4, 9),
    "offset_commit": Known(8, 2, 8),
    "offset_fetch": Known(9, 2, 7),
    "find_coordinator": Known(10, 0, 3),
    "join_group": Known(11, 2, 9),
    "heartbeat": Known(12, 0, 4),
    "leave_group": Known(13, 3, 5),
    "sync_group": Known(14, 0, 5),
    API_VERSIONS: Known(18, 0, 0),
    "create_topics": Known(19, 2, 7),
    "create_partitions": Known(37, 0, 3),
}
"""The newest versions are the last ones with a single group or key per request."""

RETENTION_OF_THE_SERVER = timedelta(milliseconds=-1)


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
        "protocols": [{"name": one.name, "metadata": one.metadata} for one in request.protocols],
        "reason": request.reason,
    }


def _joined(_request: JoinGroup, answer: Any) -> Joined:
    return Joined(
        error_of(answer.error_code),
        answer.member_id,
        answer.generation_id,
        getattr(answer, "protocol_type", None),
        answer.protocol_name,
        answer.leader,
        tuple(
            JoinedMember(one.member_id, getattr(one, "group_instance_id", None), one.metadata) for one in answer.members
        ),
        getattr(answer, "skip_assignment", False),
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


def _synced(_request: SyncGroup, answer: Any) -> Synced:
    return Synced(
        error_of(answer.error_code),
        getattr(answer, "protocol_type", None),
        getattr(answer, "protocol_name", None),
        answer.assignment,
    )


def _heartbeat(request: Heartbeat) -> dict[str, Any]:
    return {
        "group_id": request.group_id,
        "generation_id": request.generation_id,
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
    }


def _heartbeat_answer(_request: Heartbeat, answer: Any) -> ErrorCode:
    return error_of(answer.error_code)


def _leave(request: LeaveGroup) -> dict[str, Any]:
    return {"group_id": request.group_id, "members": [one._asdict() for one in request.members]}


def _left(_request: LeaveGroup, answer: Any) -> Left:
    members = (LeftMember(one.member_id, one.group_instance_id, error_of(one.error_code)) for one in answer.members)
    return Left(error_of(answer.error_code), tuple(members))


def _commit(request: OffsetCommit) -> dict[str, Any]:
    return {
        "group_id": request.group_id,
        "generation_id_or_member_epoch": request.generation_id,
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
        "retention_time": RETENTION_OF_THE_SERVER,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": one.partition,
                        "committed_offset": one.offset,
                        "committed_leader_epoch": one.leader_epoch,
                        "committed_metadata": one.metadata,
                    }
                    for one in commits
                ],
            }
            for topic, commits in groupby(request.commits, attrgetter("topic"))
        ],
    }


def _committed(request: OffsetCommit, answer: Any) -> Committed:
    """The response does not say how durable the commit is."""
    errors = {
        (topic.name, one.partition_index): error_of(one.error_code)
        for topic in answer.topics
        for one in topic.partitions
    }
    missing = ErrorCode.UNKNOWN_SERVER_ERROR
    return Committed(tuple(errors.get((one.topic, one.partition), missing) for one in request.commits))


def _fetch(request: OffsetFetch) -> dict[str, Any]:
    topics = request.topics or ()
    return {
        "group_id": request.group_id,
        "topics": [{"name": topic, "partition_indexes": list(partitions)} for topic, partitions in topics],
        "require_stable": request.require_stable,
    }


def _fetched(_request: OffsetFetch, answer: Any) -> Fetched:
    topics = tuple((topic.name, tuple(_fetched_rows(topic.partitions))) for topic in answer.topics)
    return Fetched(error_of(answer.error_code), topics)


def _fetched_rows(partitions: Iterable[Any]) -> Iterable[FetchedOffset]:
    for one in partitions:
        epoch = getattr(one, "committed_leader_epoch", -1)
        error = error_of(one.error_code)
        yield FetchedOffset(one.partition_index, one.committed_offset, epoch, one.metadata or "", error)


class Translation(NamedTuple):
    """How one message goes over the wire: kio's name of the API, the request's values, the answer's tuple."""

    api: str
    values: Callable[[Any], dict[str, Any]]
    answer: Callable[[Any, Any], Any]


TRANSLATIONS: Mapping[type, Translation] = {
    JoinGroup: Translation("join_group", _join, _joined),
    SyncGroup: Translation("sync_group", _sync, _synced),
    Heartbeat: Translation("heartbeat", _heartbeat, _heartbeat_answer),
    LeaveGroup: Translation("leave_group", _leave, _left),
    OffsetCommit: Translation("offset_commit", _commit, _committed),
    OffsetFetch: Translation("offset_fetch", _fetch, _fetched),
}
