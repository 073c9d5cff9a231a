"""Offsets that are reset under running consumers with auto commit: first all members are removed, then it is committed.

Each client notices its removal by a heartbeat. None may commit its old position then. ``CALLBOARD_RESETS`` is the
number of resets in each test.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from .group_clients import (
    PARTITIONS,
    PATIENT_SESSION_TIMEOUT_MS,
    GroupClients,
    wait_until_partitions_are_shared,
)
from .java import CLIENTS, JavaConsumer
from .peer import ConsumerPeer, Peer, Record
from .waiting import wait_until
from .wire import Wire

Member = ConsumerPeer | JavaConsumer

NAMES = ("first", "second")
RESETS = int(os.environ.get("CALLBOARD_RESETS", "1"))
RECORDS = 10  # of each partition
RESET_TO = 4


def test_no_member_undoes_a_reset(clients: GroupClients, library: str, bootstrap: str) -> None:
    producer_admin = with_topic(clients, library)
    reset_again_and_again(
        clients, producer_admin, bootstrap, *(clients.member(library, name, auto_commits=True) for name in NAMES)
    )


@pytest.mark.parametrize(
    "assignor", [pytest.param("RangeAssignor", marks=pytest.mark.long), "CooperativeStickyAssignor"]
)
def test_no_member_of_java_undoes_a_reset(
    clients: GroupClients, assignor: str, bootstrap: str, class_path: Path, tmp_path: Path
) -> None:
    producer_admin = with_topic(clients, "confluent")
    options: dict[str, Any] = {"topic": clients.topic, "group_id": clients.group, "bootstrap_server": bootstrap}
    options |= {"session_timeout": PATIENT_SESSION_TIMEOUT_MS, "assignment_strategy": f"{CLIENTS}.{assignor}"}
    with ExitStack() as closing:
        members = [JavaConsumer(class_path, name, tmp_path, "--enable-autocommit", **options) for name in NAMES]
        for member in members:
            closing.callback(member.finish)
        reset_again_and_again(clients, producer_admin, bootstrap, *members)


def with_topic(clients: GroupClients, library: str) -> Peer:
    producer_admin = clients.producer_admin(library)
    producer_admin.ask("create_topic", topic=clients.topic)
    return producer_admin


def reset_again_and_again(clients: GroupClients, producer_admin: Peer, bootstrap: str, *members: Member) -> None:
    wait_until_partitions_are_shared(*members)
    clients.produce(producer_admin, [Record(partition, None, b"x") for partition in PARTITIONS for _ in range(RECORDS)])
    host, port = bootstrap.split(":")
    with Wire(host, int(port)) as wire:
        for number in range(RESETS):
            wait_until(lambda: committed(wire, clients), all_at(RECORDS).__eq__, "all records to be committed")
            while not reset(wire, clients):
                wait_until_partitions_are_shared(*members)
            wait_until(
                lambda: times_received(members, RESET_TO),
                dict.fromkeys(PARTITIONS, number + 2).__eq__,
                f"the records from offset {RESET_TO} on to be received again in each partition",
            )
            assert times_received(members, RESET_TO - 1) == dict.fromkeys(PARTITIONS, 1)
            wait_until_partitions_are_shared(*members)


def all_at(offset: int) -> dict[int, int]:
    return dict.fromkeys(PARTITIONS, offset)


def committed(wire: Wire, clients: GroupClients) -> dict[int, int]:
    answer = wire.ask("offset_fetch", 5, group_id=clients.group, topics=None)
    rows = [row for topic in answer["topics"] for row in topic["partitions"]]
    return {row["partition_index"]: row["committed_offset"] for row in rows}


def reset(wire: Wire, clients: GroupClients) -> bool:
    """Remove all members and commit. Whether no member has joined again in between."""
    groups = {"groups": [clients.group], "include_authorized_operations": False}
    [described] = wire.ask("describe_groups", 4, **groups)["groups"]
    leaving = [
        {"member_id": member["member_id"], "group_instance_id": None, "reason": "a reset"}
        for member in described["members"]
    ]
    wire.ask("leave_group", 5, group_id=clients.group, members=leaving)
    return commit(wire, clients) == {"NONE"}


def commit(wire: Wire, clients: GroupClients) -> set[str]:
    """Commit as a simple consumer; returns the error codes."""
    partitions = [
        {
            "partition_index": partition,
            "committed_offset": RESET_TO,
            "committed_leader_epoch": -1,
            "committed_metadata": "reset",
        }
        for partition in PARTITIONS
    ]
    topics = [{"name": clients.topic, "partitions": partitions}]
    sender = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    answer = wire.ask("offset_commit", 8, group_id=clients.group, topics=topics, **sender)
    return {row["error_code"] for topic in answer["topics"] for row in topic["partitions"]}


def times_received(members: Sequence[Member], offset: int) -> dict[int, int]:
    """How often the record at this offset of each partition was received."""
    received = Counter(partition for member in members for partition, at in positions_received(member) if at == offset)
    return {partition: received[partition] for partition in PARTITIONS}


def positions_received(member: Member) -> list[tuple[int, int]]:
    """The partition and offset of each record."""
    if isinstance(member, JavaConsumer):
        return [(partition, offset) for partition, offset, _ in member.received()]
    return [(record.partition, offset) for offset, record in member.received()]
