"""``evict_and_reset`` under running consumers with auto commit, two of each kind of client: none undoes a reset.

A reset is undone if the members go on at another offset, or if a committed offset is not the one of the reset, nor what
was received since. ``CALLBOARD_RESETS`` is the number of resets in each test; with it all kinds of clients run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from callboard import Coordinator
from callboard.runtime.embed.thread import ThreadCoordinator

from .group_clients import PARTITIONS, PATIENT_SESSION_TIMEOUT_MS, GroupClients, wait_until_partitions_are_shared
from .java import CLIENTS, JavaConsumer, JavaMembers
from .peer import Record
from .peer_main import AUTO_COMMIT_INTERVAL_MS, PARTITIONS_PER_TOPIC
from .test_consumer_protocol import SETTINGS
from .test_resets import NAMES, RECORDS, RESET_TO, positions_received
from .waiting import wait_until

RESETS = int(os.environ.get("CALLBOARD_RESETS", "1"))
TOPIC, GROUP = "orders", "shop"
WATCHED_S = 60.0
"""After the last of many resets, commits are looked at for so long."""

PYTHON_KINDS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "confluent-consumer": ("confluent", {"protocol": "consumer"}),
    "aiokafka": ("aiokafka", {}),
    "confluent-range": ("confluent", {"assignor": "range"}),
    "confluent-cooperative": ("confluent", {"assignor": "cooperative-sticky"}),
    "kafka-python-range": ("kafka_python", {"assignor": "range"}),
    "kafka-python-cooperative": ("kafka_python", {"assignor": "cooperative-sticky"}),
}
"""The library and the options of its consumers."""

JAVA_KINDS = {"java-range": "RangeAssignor", "java-cooperative": "CooperativeStickyAssignor", "java-consumer": ""}
"""The assignor; "" with the consumer protocol."""

IS_LONG = "CALLBOARD_RESETS" in os.environ
KINDS = (*PYTHON_KINDS, *JAVA_KINDS) if IS_LONG else ("confluent-consumer", "aiokafka")


@dataclass
class Member:
    """A running consumer. ``positions``: the partition and offset of each record that it has received."""

    name: str
    assigned: Callable[[], frozenset[int]]
    positions: Callable[[], list[tuple[int, int]]]

    @property
    def assignment(self) -> frozenset[int]:
        return self.assigned()


@pytest.fixture
def coordinator() -> Iterator[ThreadCoordinator]:
    options: dict[str, Any] = {"topics": {TOPIC: PARTITIONS_PER_TOPIC}, "unsafe_settings": True, **SETTINGS}
    with Coordinator.in_thread(None, "127.0.0.1:0", **options) as coordinator:
        yield coordinator


@pytest.fixture
def closing(coordinator: ThreadCoordinator, tmp_path: Path) -> Iterator[ExitStack]:
    """Clients end before their coordinator, and before their files are deleted."""
    with ExitStack() as closing:
        yield closing


@pytest.mark.parametrize("kind", KINDS)
def test_no_member_undoes_a_reset(
    kind: str, coordinator: ThreadCoordinator, closing: ExitStack, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    clients = GroupClients(coordinator.bootstrap, tmp_path, GROUP, TOPIC, closing)
    members = (
        python_members(clients, *PYTHON_KINDS[kind])
        if kind in PYTHON_KINDS
        else java_members(coordinator.bootstrap, kind, request.getfixturevalue("class_path"), tmp_path, closing)
    )
    wait_until_partitions_are_shared(*members)
    producer = clients.producer_admin("confluent")
    clients.produce(producer, [Record(partition, None, b"x") for partition in PARTITIONS for _ in range(RECORDS)])
    for number in range(RESETS):
        wait_until(lambda: committed(coordinator), all_at(RECORDS).__eq__, "all records to be committed")
        reset_once(coordinator, members, number)
        wait_until_partitions_are_shared(*members)
    if IS_LONG:
        watch_commits(coordinator)


def python_members(clients: GroupClients, library: str, options: Mapping[str, Any]) -> list[Member]:
    peers = [clients.member(library, name, auto_commits=True, **options) for name in NAMES]
    return [
        Member(peer.name, lambda peer=peer: peer.assignment, lambda peer=peer: positions_received(peer))  # type: ignore[misc]
        for peer in peers
    ]


def java_members(bootstrap: str, kind: str, jars: Path, folder: Path, closing: ExitStack) -> list[Member]:
    if kind == "java-consumer":
        return java_members_of_the_consumer_protocol(bootstrap, jars, folder, closing)
    options: dict[str, Any] = {"topic": TOPIC, "group_id": GROUP, "bootstrap_server": bootstrap}
    options |= {"session_timeout": PATIENT_SESSION_TIMEOUT_MS, "assignment_strategy": f"{CLIENTS}.{JAVA_KINDS[kind]}"}
    consumers = [JavaConsumer(jars, name, folder, "--enable-autocommit", **options) for name in NAMES]
    for consumer in consumers:
        closing.callback(consumer.finish)
    return [
        Member(each.name, lambda each=each: each.assignment, lambda each=each: positions_received(each))  # type: ignore[misc]
        for each in consumers
    ]


def java_members_of_the_consumer_protocol(bootstrap: str, jars: Path, folder: Path, closing: ExitStack) -> list[Member]:
    """Their ``poll`` raises UnknownMemberIdException if they are evicted while they ask for committed offsets."""
    process = JavaMembers(jars, "members", folder, bootstrap, GROUP)
    closing.callback(process.finish)
    options = {"auto_commit_interval_ms": str(AUTO_COMMIT_INTERVAL_MS), "polls_after_errors": True}
    for name in NAMES:
        process.ask("join", member=name, topic=TOPIC, protocol="consumer", **options)
    return [
        Member(name, lambda name=name: process.assignment(name), lambda name=name: process.positions(name))  # type: ignore[misc]
        for name in NAMES
    ]


def reset_once(coordinator: ThreadCoordinator, members: Sequence[Member], number: int) -> None:
    """Reset and wait until all that follows is received again. Each member of the group is evicted."""
    counts = [len(member.positions()) for member in members]
    done = coordinator.evict_and_reset(GROUP, {TOPIC: RESET_TO}, reason=f"reset {number}")
    assert len(done.removed) == len(members)

    def received() -> dict[int, set[int]]:
        """The offsets of each partition that were received since the reset."""
        offsets: dict[int, set[int]] = {partition: set() for partition in PARTITIONS}
        for member, count in zip(members, counts, strict=True):
            for partition, offset in member.positions()[count:]:
                offsets[partition].add(offset)
        return offsets

    def checked() -> dict[int, set[int]]:
        """The same. Raises AssertionError if it was undone. A record may be printed after its commit."""
        now = committed(coordinator)
        description = f"the records below the committed offsets {now}, after reset {number}"
        return wait_until(received, lambda offsets: all(is_kept(now[each], offsets[each]) for each in now), description)

    expected = {partition: set(range(RESET_TO, RECORDS)) for partition in PARTITIONS}
    wait_until(checked, expected.__eq__, f"the records from {RESET_TO} on to be received again, after reset {number}")
    progress = coordinator.watch_reset(done.change_id)
    assert progress.is_complete, progress.sentence
    assert progress.sentence.startswith("2 of 2 members are back after ")
    assert progress.sentence.endswith(" s, all positions fetched")


def is_kept(committed_offset: int, received: set[int]) -> bool:
    """Whether a partition is where the reset has set it, or where its new owner has gone on from there."""
    return received.issuperset(range(RESET_TO, committed_offset)) and committed_offset >= RESET_TO


def committed(coordinator: ThreadCoordinator) -> dict[int, int]:
    return {partition: each.offset for (_, partition), each in coordinator.offsets(GROUP).items()}


def all_at(offset: int) -> dict[int, int]:
    return dict.fromkeys(PARTITIONS, offset)


def watch_commits(coordinator: ThreadCoordinator) -> None:
    """What the members have received after the last reset stays committed."""
    wait_until(lambda: committed(coordinator), all_at(RECORDS).__eq__, "all records to be committed")
    end_s = time.monotonic() + WATCHED_S
    while time.monotonic() < end_s:
        assert committed(coordinator) == all_at(RECORDS)
        time.sleep(1)
