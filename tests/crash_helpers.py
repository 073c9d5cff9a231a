"""Checks of a server after a crash: its commits and members against the report of its clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from peers.server import ServerProcess
from peers.wire import Wire

GROUPS_PER_REQUEST = 200
FETCH_VERSION = 8
DESCRIBE_VERSION = 5
HEARTBEAT_VERSION = 4


@dataclass(frozen=True)
class ClientReport:
    """The responses that the load process received. ``commits``: {(group, partition): (sent, acknowledged)}."""

    commits: dict[tuple[str, int], tuple[int, int]]
    members: list[tuple[str, str, int, str]]
    refusals: list[str]


def wrong_commits(server: ServerProcess, report: ClientReport) -> dict[tuple[str, int], tuple[int, int, int]]:
    """(sent, acknowledged, fetched) of each partition whose committed offset is out of range."""
    group_ids = sorted({group_id for group_id, _ in report.commits})
    requests = [{"group_id": group_id, "topics": None} for group_id in group_ids]
    with Wire(server.host, server.port) as wire:
        response = wire.ask("offset_fetch", FETCH_VERSION, groups=requests, require_stable=False)
    fetched = {
        (group["group_id"], partition["partition_index"]): partition["committed_offset"]
        for group in response["groups"]
        for topic in group["topics"]
        for partition in topic["partitions"]
    }
    return {
        key: (sent, acknowledged, fetched.get(key, -1))
        for key, (sent, acknowledged) in report.commits.items()
        if not acknowledged <= fetched.get(key, -1) <= sent
    }


def wrong_members(server: ServerProcess, report: ClientReport) -> list[tuple[str, Any]]:
    """Members that have received an assignment but are not in their group, with the server's description."""
    with Wire(server.host, server.port) as wire:
        wrong: list[tuple[str, Any]] = []
        for start in range(0, len(report.members), GROUPS_PER_REQUEST):
            batch = report.members[start : start + GROUPS_PER_REQUEST]
            described = wire.ask(
                "describe_groups",
                DESCRIBE_VERSION,
                groups=[group for group, *_ in batch],
                include_authorized_operations=False,
            )["groups"]
            wrong += [
                (group, description)
                for (group, member, _, assignment), description in zip(batch, described, strict=True)
                if not is_stable_with(description, member, assignment)
            ]
            wrong += [(group, code) for group, code in heartbeat_all(wire, batch) if code != "NONE"]
    return wrong


def is_stable_with(description: dict[str, Any], member: str, assignment: str) -> bool:
    members = [(entry["member_id"], entry["member_assignment"].hex()) for entry in description["members"]]
    return description["group_state"] == "Stable" and members == [(member, assignment)]


def heartbeat_all(wire: Wire, members: list[tuple[str, str, int, str]]) -> list[tuple[str, str]]:
    """Send a heartbeat of each member with its id and generation; return (group id, error code) of each."""
    return [
        (
            group,
            wire.ask("heartbeat", HEARTBEAT_VERSION, group_id=group, generation_id=generation, member_id=member)[
                "error_code"
            ],
        )
        for group, member, generation, _ in members
    ]
