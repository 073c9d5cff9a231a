"""Consumers of confluent-kafka with ``group.protocol=consumer`` (KIP-848): the coordinator assigns the partitions.

Rebalances are incremental: a member keeps the partitions that do not move, and goes on with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from .group_clients import PARTITIONS, GroupClients, describe, wait_for_records, wait_until_partitions_are_shared
from .peer import ConsumerPeer, Record
from .server import TEST_SETTINGS, ServerProcess
from .test_real_clients import at_offsets, batch, commit_all, create_topic
from .waiting import wait_until

CONFLUENT = "confluent"
SHORT_SESSION_TIMEOUT_MS = 3_000
SETTINGS = {
    **TEST_SETTINGS,
    "group_consumer_min_session_timeout_ms": 1,
    "group_consumer_min_heartbeat_interval_ms": 1,
    "group_consumer_heartbeat_interval_ms": 200,
    "group_consumer_assignment_interval_ms": 0,
}


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("shared-server"), settings=SETTINGS) as server:
        yield server


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """A parameter of the test adds settings."""
    with ServerProcess(tmp_path, settings={**SETTINGS, **getattr(request, "param", {})}) as server:
        yield server


def member(clients: GroupClients, name: str, **options: Any) -> ConsumerPeer:
    return clients.member(CONFLUENT, name, protocol="consumer", **options)


def by_partition(received: tuple[int, Record]) -> tuple[int, int]:
    offset, record = received
    return record.partition, offset


def received_by_one(members: Sequence[ConsumerPeer], expected_count: int) -> list[tuple[int, Record]]:
    """Wait until this many different records are received. A record is there once for each member that received it."""
    received = wait_until(
        lambda: [set(member.received()) for member in members],
        lambda received: len(set().union(*received)) >= expected_count,
        f"{expected_count} different records",
    )
    return sorted(chain.from_iterable(received), key=by_partition)


def moved(peer: ConsumerPeer, kind: str) -> list[list[int]]:
    """The partitions of each callback that had any."""
    return [event["partitions"] for event in peer.events(kind) if event["partitions"]]


def test_only_what_moves_is_revoked_and_all_records_are_received_once(clients: GroupClients) -> None:
    producer_admin = create_topic(clients, CONFLUENT)
    first = member(clients, "first")
    wait_until_partitions_are_shared(first)
    before = batch("before")
    expected = at_offsets(before, clients.produce(producer_admin, before))
    assert wait_for_records([first], len(expected)) == expected
    commit_all([first])

    second = member(clients, "second")
    kept, given = wait_until_partitions_are_shared(first, second)
    assert moved(first, "assigned") == [sorted(PARTITIONS)]
    assert moved(first, "revoked") == [sorted(PARTITIONS - kept)]
    assert moved(second, "assigned") == [sorted(given)]
    after = batch("after")
    expected = sorted(expected + at_offsets(after, clients.produce(producer_admin, after)), key=by_partition)
    assert wait_for_records([first, second], len(expected)) == expected
    commit_all([first, second])

    second.close()
    wait_until_partitions_are_shared(first)
    assert moved(first, "assigned") == [sorted(PARTITIONS), sorted(given)]
    offsets = producer_admin.ask("group_offsets", group=clients.group, topic=clients.topic)
    assert dict(offsets) == dict.fromkeys(PARTITIONS, len(expected) // len(PARTITIONS))
    assert describe(producer_admin, clients.group)["state"] == "Stable"
    assert [first.errors(), second.errors()] == [[], []]


@pytest.mark.parametrize("server", [{"group_consumer_session_timeout_ms": SHORT_SESSION_TIMEOUT_MS}], indirect=True)
@pytest.mark.usefixtures("server")
def test_killed_member_loses_its_partitions_when_its_session_ends(clients: GroupClients) -> None:
    create_topic(clients, CONFLUENT)
    first, second = member(clients, "first"), member(clients, "second")
    wait_until_partitions_are_shared(first, second)
    second.kill()
    wait_until_partitions_are_shared(first)


def test_static_member_returns_to_its_partitions_without_a_rebalance(clients: GroupClients) -> None:
    create_topic(clients, CONFLUENT)
    first, second = member(clients, "first"), member(clients, "second", instance="i")
    wait_until_partitions_are_shared(first, second)
    revoked, share = moved(first, "revoked"), second.assignment
    second.close()
    third = member(clients, "third", instance="i")
    wait_until(lambda: third.assignment, lambda assignment: assignment == share, "the share of the instance")
    assert (moved(first, "revoked"), first.assignment) == (revoked, PARTITIONS - share)


def test_members_continue_after_a_restart_of_the_server(clients: GroupClients, server: ServerProcess) -> None:
    producer_admin = create_topic(clients, CONFLUENT)
    pair = [member(clients, "first"), member(clients, "second")]
    shares = wait_until_partitions_are_shared(*pair)
    server.restart()
    records = batch("after")
    expected = at_offsets(records, clients.produce(producer_admin, records))
    assert wait_for_records(pair, len(expected)) == expected
    assert [peer.assignment for peer in pair] == shares
    assert [moved(peer, "lost") for peer in pair] == [[], []]


def test_group_of_the_classic_protocol_goes_on_with_the_other_one_when_it_is_empty(clients: GroupClients) -> None:
    producer_admin = create_topic(clients, CONFLUENT)
    classic = clients.member(CONFLUENT, "classic")
    wait_until_partitions_are_shared(classic)
    old = batch("old")
    clients.produce(producer_admin, old)
    wait_for_records([classic], len(old))
    commit_all([classic])
    classic.close()

    new = member(clients, "new", reset="none")
    wait_until_partitions_are_shared(new)
    records = batch("new")
    expected = at_offsets(records, clients.produce(producer_admin, records))
    assert wait_for_records([new], len(expected)) == expected
    assert new.errors() == []
    commit_all([new])
    new.close()
    again = clients.member(CONFLUENT, "again", reset="none")
    wait_until_partitions_are_shared(again)


def test_members_may_subscribe_by_a_regular_expression(clients: GroupClients) -> None:
    """librdkafka sends a subscription that begins with "^" as a regular expression."""
    producer_admin = create_topic(clients, CONFLUENT)
    pattern = f"^{clients.topic[:-1]}."
    pair = [member(clients, name, topic=pattern) for name in ("first", "second")]
    wait_until_partitions_are_shared(*pair)
    records = batch("matched")
    expected = at_offsets(records, clients.produce(producer_admin, records))
    assert wait_for_records(pair, len(expected)) == expected


def test_rolling_change_of_the_protocol_and_back(clients: GroupClients) -> None:
    """Consumers are replaced one by one: by those of the consumer protocol, then by classic ones. The others go on.

    All records are received, each by one member only, so no partition has two consumers. A member of librdkafka may
    receive one again, if a partition without a committed offset is assigned again before its first record.
    """
    producer_admin = create_topic(clients, CONFLUENT)
    members = [clients.member(CONFLUENT, name) for name in ("first", "second")]
    wait_until_partitions_are_shared(*members)
    started, expected = list(members), list[Any]()
    for name, protocol in (("third", "consumer"), ("fourth", "consumer"), ("fifth", "classic"), ("sixth", "classic")):
        newcomer = clients.member(CONFLUENT, name, protocol=protocol)
        for group in (members, started):
            group.append(newcomer)
        wait_until_partitions_are_shared(*members)
        records = batch(name)
        expected += at_offsets(records, clients.produce(producer_admin, records))
        expected.sort(key=by_partition)
        assert received_by_one(started, len(expected)) == expected
        commit_all(members)
        members.pop(0).close()
        wait_until_partitions_are_shared(*members)
    assert [peer.errors() for peer in started] == [[]] * len(started)
    assert describe(producer_admin, clients.group)["state"] == "Stable"
