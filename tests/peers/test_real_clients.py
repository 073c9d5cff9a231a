"""Consumers of three libraries over TCP: rebalances, restarts, lost members and admin requests.

Every test runs with confluent-kafka, aiokafka and kafka-python; ``-k confluent`` selects one. With
``CALLBOARD_TEST_BOOTSTRAP=HOST:PORT`` the same tests (except those that restart the server) run against another broker.
"""

from __future__ import annotations

from collections.abc import Iterable

from .group_clients import PARTITIONS, GroupClients, describe, wait_for_records, wait_until_partitions_are_shared
from .peer import LIBRARIES, ConsumerPeer, Peer, Record
from .server import ServerProcess
from .waiting import wait_until

SHORT_SESSION_TIMEOUT_MS = 6_000  # a member that lives may be slow on a busy machine
RECORDS_PER_PARTITION = 10


def batch(label: str) -> list[Record]:
    """Ten records for each partition, with empty and missing keys, values and headers."""
    return [
        Record(
            partition,
            key=None if number == 0 else f"{label}-{partition}".encode(),
            value=None if number == 1 else b"" if number == 2 else f"{label} {number} ö".encode(),
            headers=() if number == 3 else (("number", str(number).encode()), ("empty", b""), ("ключ", b"\x00\xff")),
        )
        for partition in sorted(PARTITIONS)
        for number in range(RECORDS_PER_PARTITION)
    ]


def at_offsets(records: Iterable[Record], offsets: Iterable[int]) -> list[tuple[int, Record]]:
    """The records that all consumers together must receive: each once, at the offset that the producer got."""
    sent = zip(offsets, records, strict=True)
    return sorted(sent, key=lambda received: (received[1].partition, received[0]))


def commit_all(members: Iterable[ConsumerPeer]) -> None:
    for member in members:
        member.commit(member.positions)


def create_topic(clients: GroupClients, library: str) -> Peer:
    producer_admin = clients.producer_admin(library)
    producer_admin.ask("create_topic", topic=clients.topic)
    return producer_admin


class TestSharing:
    """Members share the partitions and receive all records."""

    def test_two_members_then_three_receive_every_record_once(self, clients: GroupClients, library: str) -> None:
        """Two consumers subscribe, then a third: each time all records are received once, by the partition's owner."""
        producer_admin = create_topic(clients, library)
        pair = [clients.member(library, "first"), clients.member(library, "second")]
        shares = wait_until_partitions_are_shared(*pair)
        first = batch("before")
        expected = at_offsets(first, clients.produce(producer_admin, first))
        assert wait_for_records(pair, len(expected)) == expected
        for member, share in zip(pair, shares, strict=True):
            assert {record.partition for _, record in member.received()} == share

        commit_all(pair)
        trio = [*pair, clients.member(library, "third")]
        wait_until_partitions_are_shared(*trio)
        second = batch("after")
        expected = sorted(
            expected + at_offsets(second, clients.produce(producer_admin, second)),
            key=lambda received: (received[1].partition, received[0]),
        )
        assert wait_for_records(trio, len(expected)) == expected
        assert [member.errors() for member in trio] == [[], [], []]

    def test_closed_member_releases_its_partitions_at_once(self, clients: GroupClients, library: str) -> None:
        """A closed consumer leaves the group, so its long session timeout does not matter."""
        create_topic(clients, library)
        stays, leaves = clients.member(library, "stays"), clients.member(library, "leaves")
        wait_until_partitions_are_shared(stays, leaves)
        leaves.close()
        wait_until_partitions_are_shared(stays)

    def test_three_libraries_share_one_group(self, clients: GroupClients) -> None:
        """The coordinator selects the common assignor, and one library's leader assigns for the others."""
        producer_admin = create_topic(clients, LIBRARIES[0])
        members = [clients.member(library, library) for library in LIBRARIES]
        wait_until_partitions_are_shared(*members)
        records = batch("mixed")
        expected = at_offsets(records, clients.produce(producer_admin, records))
        assert wait_for_records(members, len(expected)) == expected


class TestRestart:
    """The server process is stopped and started again on the same port and data."""

    def test_a_new_consumer_resumes_at_the_committed_offset(
        self, clients: GroupClients, server: ServerProcess, library: str
    ) -> None:
        """The group is empty during the restart; a later member continues at the committed offset."""
        producer_admin = create_topic(clients, library)
        before = clients.member(library, "before", reset="earliest")
        wait_until_partitions_are_shared(before)
        old = batch("old")
        clients.produce(producer_admin, old)
        wait_for_records([before], len(old))
        commit_all([before])
        before.close()

        server.restart()
        after = clients.member(library, "after", reset="none")
        wait_until_partitions_are_shared(after)
        new = batch("new")
        expected = at_offsets(new, clients.produce(producer_admin, new))
        assert wait_for_records([after], len(expected)) == expected
        assert min(offset for offset, _ in expected) == RECORDS_PER_PARTITION
        assert after.errors() == []

    def test_members_continue_after_a_server_restart(
        self, clients: GroupClients, server: ServerProcess, library: str
    ) -> None:
        """Connected members continue with heartbeats after the restart: no rebalance, no reset of offsets."""
        producer_admin = create_topic(clients, library)
        members = [clients.member(library, "first"), clients.member(library, "second")]
        shares = wait_until_partitions_are_shared(*members)
        old = batch("old")
        expected = at_offsets(old, clients.produce(producer_admin, old))
        wait_for_records(members, len(old))
        commit_all(members)
        rebalances = [member.rebalances for member in members]

        server.restart()
        new = batch("new")
        expected += at_offsets(new, clients.produce(producer_admin, new))
        expected.sort(key=lambda received: (received[1].partition, received[0]))
        assert wait_for_records(members, len(expected)) == expected
        commit_all(members)
        assert [member.assignment for member in members] == shares
        assert [member.rebalances for member in members] == rebalances

    def test_members_continue_after_the_server_was_killed(
        self, clients: GroupClients, server: ServerProcess, library: str
    ) -> None:
        """The same with SIGKILL: acknowledged commits are there, and the members stay in the group."""
        producer_admin = create_topic(clients, library)
        member = clients.member(library, "member")
        wait_until_partitions_are_shared(member)
        records = batch("old")
        clients.produce(producer_admin, records)
        wait_for_records([member], len(records))
        commit_all([member])
        rebalances = member.rebalances

        server.kill()
        server.start()
        committed = clients.producer_admin(library).ask("group_offsets", group=clients.group, topic=clients.topic)
        assert sorted(map(tuple, committed)) == sorted(member.positions.items())
        commit_all([member])
        assert member.rebalances == rebalances


class TestMemberLoss:
    """A member ends without LeaveGroup."""

    def test_partitions_of_a_killed_member_are_reassigned(self, clients: GroupClients, library: str) -> None:
        """After the session timeout of a killed consumer, the other one gets its partitions from its commits on."""
        producer_admin = create_topic(clients, library)
        stays = clients.member(library, "stays", session_timeout_ms=SHORT_SESSION_TIMEOUT_MS)
        dies = clients.member(library, "dies", session_timeout_ms=SHORT_SESSION_TIMEOUT_MS)
        wait_until_partitions_are_shared(stays, dies)
        first = batch("before")
        expected = at_offsets(first, clients.produce(producer_admin, first))
        wait_for_records([stays, dies], len(first))
        commit_all([stays, dies])
        dies.kill()
        wait_until_partitions_are_shared(stays)
        second = batch("after")
        expected = sorted(
            expected + at_offsets(second, clients.produce(producer_admin, second)),
            key=lambda received: (received[1].partition, received[0]),
        )
        assert wait_for_records([stays, dies], len(expected)) == expected

    def test_static_member_returns_without_rebalance(self, clients: GroupClients, library: str) -> None:
        """A restart with group.instance.id within the session timeout keeps the partitions without a rebalance."""
        create_topic(clients, library)
        stays = clients.member(library, "stays", instance="instance-1")
        goes = clients.member(library, "goes", instance="instance-2")
        shares = wait_until_partitions_are_shared(stays, goes)
        rebalances = stays.rebalances
        goes.kill()
        back = clients.member(library, "back", instance="instance-2")
        assert wait_until_partitions_are_shared(stays, back) == shares
        # A rebalance would have reached the other member at the latest with the answer to its commit.
        stays.commit(dict.fromkeys(shares[0], 0))
        assert stays.rebalances == rebalances


class TestAdmin:
    """Admin clients describe a group with members and delete an empty one."""

    def test_group_is_listed_and_described_with_offsets(self, clients: GroupClients, library: str) -> None:
        """ListGroups, DescribeGroups and OffsetFetch without a member, of a group with two members."""
        admin = create_topic(clients, library)
        members = [clients.member(library, "first"), clients.member(library, "second", instance="instance")]
        shares = wait_until_partitions_are_shared(*members)
        assert clients.group in admin.ask("list_groups")
        described = describe(admin, clients.group)
        assert described["state"] == "Stable"
        seen = sorted((member["client"], member["partitions"]) for member in described["members"])
        assert seen == [("first", sorted(shares[0])), ("second", sorted(shares[1]))]

        for member, share in zip(members, shares, strict=True):
            member.commit({partition: partition + 100 for partition in share})
        committed = admin.ask("group_offsets", group=clients.group, topic=clients.topic)
        assert sorted(map(tuple, committed)) == [(partition, partition + 100) for partition in sorted(PARTITIONS)]

    def test_empty_group_is_deleted_with_its_offsets(self, clients: GroupClients, library: str) -> None:
        """DeleteGroups refuses a group with members, and deletes an empty one with its offsets."""
        producer_admin = create_topic(clients, library)
        member = clients.member(library, "member")
        wait_until_partitions_are_shared(member)
        member.commit({0: 1})
        # aiokafka's admin client cannot delete groups, so kafka-python's does it there.
        admin = producer_admin if library != "aiokafka" else clients.producer_admin("kafka_python")
        refused = admin.try_ask("delete_group", group=clients.group)
        assert "error" in refused and "empty" in refused["error"].lower(), refused

        member.close()
        wait_until(lambda: describe(admin, clients.group)["state"], lambda state: state == "Empty", "an empty group")
        admin.ask("delete_group", group=clients.group)
        assert clients.group not in producer_admin.ask("list_groups")
        assert admin.ask("group_offsets", group=clients.group, topic=clients.topic) == []
