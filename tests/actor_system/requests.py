"""Functions that build requests to a group. ``version``: the version of Kafka's request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from callboard.actors.messages import (
    Commit,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetFetch,
    Protocol,
    SyncGroup,
)

GROUP = "company"
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def offers(*names: str, metadata: bytes = b"v1") -> tuple[Protocol, ...]:
    return tuple(Protocol(name, name.encode() + b" " + metadata) for name in names)


def join(
    member_id: str = "",
    *,
    group_id: str = GROUP,
    instance: str | None = None,
    client: str = "client",
    host: str = "/127.0.0.1",
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
    protocol_type: str = "consumer",
    protocols: Sequence[Protocol] = offers("range"),
    version: int = 3,
    reason: str | None = None,
) -> JoinGroup:
    """Version 3 by default: the last with which one request is enough to become a member."""
    return JoinGroup(
        group_id=group_id,
        member_id=member_id,
        group_instance_id=instance,
        client_id=client,
        client_host=host,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        protocol_type=protocol_type,
        protocols=tuple(protocols),
        needs_member_id=version >= 4,
        can_skip_assignment=version >= 9,
        reason=reason,
    )


def sync(
    member_id: str,
    generation_id: int,
    assignments: Mapping[str, bytes] | None = None,
    *,
    group_id: str = GROUP,
    instance: str | None = None,
    protocol_type: str | None = "consumer",
    protocol_name: str | None = None,
) -> SyncGroup:
    assignment_items = tuple((assignments or {}).items())
    return SyncGroup(group_id, member_id, instance, generation_id, protocol_type, protocol_name, assignment_items)


def heartbeat(member_id: str, generation_id: int, *, group_id: str = GROUP, instance: str | None = None) -> Heartbeat:
    return Heartbeat(group_id, member_id, instance, generation_id)


def leave(*members: str | LeavingMember, group_id: str = GROUP) -> LeaveGroup:
    return LeaveGroup(
        group_id, tuple(LeavingMember(member, None) if isinstance(member, str) else member for member in members)
    )


def commit(
    offset: int = 1,
    *,
    member_id: str = "",
    generation_id: int = -1,
    instance: str | None = None,
    group_id: str = GROUP,
    topic: str = "t",
    partition: int = 0,
    metadata: str = "",
    supports_group_id_not_found: bool = True,
) -> OffsetCommit:
    commits = (Commit(topic, partition, offset, -1, metadata),)
    return OffsetCommit(
        group_id, member_id, instance, generation_id, commits, supports_group_id_not_found=supports_group_id_not_found
    )


def fetch(
    *, group_id: str = GROUP, topic: str = "t", partitions: Sequence[int] = (0,), require_stable: bool = False
) -> OffsetFetch:
    return OffsetFetch(group_id, ((topic, tuple(partitions)),), require_stable)
