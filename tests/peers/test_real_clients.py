"""What real consumers expect of a group coordinator, asked by three libraries over TCP.

Every test runs with confluent-kafka, aiokafka and kafka-python; ``-k confluent`` picks one. With
``CALLBOARD_TEST_BOOTSTRAP=HOST:PORT`` the same tests (except those that restart the server) ask another broker.
"""

from __future__ import annotations

from collections.abc import Iterable

from .company import PARTITIONS, Company, describe, wait_for_records, wait_for_shares
from .server import ServerProcess
from .stage import LIBRARIES, Member, Peer, Record
from .waiting import wait_until

SHORT_SESSION_TIMEOUT_MS = 2_000
RECORDS_PER_PARTITION = 10


def batch(label: str) -> list[Record]:
    """Ten records for each partition, with the keys, values and headers that get lost most easily."""
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
    """What consumers must receive between them: each record once, at the offset that its producer was told."""
    sent = zip(offsets, records, strict=True)
    return sorted(sent, key=lambda received: (received[1].partition, received[0]))


def commit_all(members: Iterable[Member]) -> None:
    for member in members:
        member.commit(member.positions)


def stage_with_topic(company: Company, library: str) -> Peer:
    backstage = company.backstage(library)
    backstage.ask("create_topic", topic=company.topic)
    return backstage


class TestSharing:
    """Members share the partitions out and receive what was sent."""

    def test_two_members_then_three_receive_every_record_once(self, company: Company, library: str) -> None:
        """Two consumers subscribe, then a third: at both times everything is read, once, by its owner."""
        backstage = stage_with_topic(company, library)
        pair = [company.member(library, "first"), company.member(library, "second")]
        shares = wait_for_shares(*pair)
        first = batch("before")
        expected = at_offsets(first, company.produce(backstage, first))
        assert wait_for_records(pair, len(expected)) == expected
        for member, share in zip(pair, shares, strict=True):
            assert {record.partition for _, record in member.received()} == share

        commit_all(pair)
        trio = [*pair, company.member(library, "third")]
        wait_for_shares(*trio)
        second = batch("after")
        expected = sorted(
            expected + at_offsets(second, company.produce(backstage, second)),
            key=lambda received: (received[1].partition, received[0]),
        )
        assert wait_for_records(trio, len(expected)) == expected
        assert [member.errors() for member in trio] == [[], [], []]

    def test_closed_member_releases_its_partitions_at_once(self, company: Company, library: str) -> None:
        """A consumer that says goodbye is not waited for: its long session timeout plays no part."""
        stage_with_topic(company, library)
        stays, leaves = company.member(library, "stays"), company.member(library, "leaves")
        wait_for_shares(stays, leaves)
        leaves.close()
        wait_for_shares(stays)

    def test_three_libraries_share_one_group(self, company: Company) -> None:
        """The vote finds the assignor that all know, and one library's leader assigns for the others."""
        backstage = stage_with_topic(company, LIBRARIES[0])
        members = [company.member(library, library) for library in LIBRARIES]
        wait_for_shares(*members)
        records = batch("mixed")
        expected = at_offsets(records, company.produce(backstage, records))
        assert wait_for_records(members, len(expected)) == expected


class TestRestart:
    """The server process is stopped and started again on the same port and data."""

    def test_a_new_consumer_resumes_at_the_committed_offset(
        self, company: Company, server: ServerProcess, library: str
    ) -> None:
        """Nobody is there during the restart; who comes later goes on where the last one committed."""
        backstage = stage_with_topic(company, library)
        before = company.member(library, "before", reset="earliest")
        wait_for_shares(before)
        old = batch("old")
        company.produce(backstage, old)
        wait_for_records([before], len(old))
        commit_all([before])
        before.close()

        server.restart()
        after = company.member(library, "after", reset="none")
        wait_for_shares(after)
        new = batch("new")
        expected = at_offsets(new, company.produce(backstage, new))
        assert wait_for_records([after], len(expected)) == expected
        assert min(offset for offset, _ in expected) == RECORDS_PER_PARTITION
        assert after.errors() == []

    def test_members_continue_after_a_server_restart(
        self, company: Company, server: ServerProcess, library: str
    ) -> None:
        """Members that are connected when the server goes beat again when it is back: no rebalance, no reset."""
        backstage = stage_with_topic(company, library)
        members = [company.member(library, "first"), company.member(library, "second")]
        shares = wait_for_shares(*members)
        old = batch("old")
        expected = at_offsets(old, company.produce(backstage, old))
        wait_for_records(members, len(old))
        commit_all(members)
        rebalances = [member.rebalances for member in members]

        server.restart()
        new = batch("new")
        expected += at_offsets(new, company.produce(backstage, new))
        expected.sort(key=lambda received: (received[1].partition, received[0]))
        assert wait_for_records(members, len(expected)) == expected
        commit_all(members)
        assert [member.assignment for member in members] == shares
        assert [member.rebalances for member in members] == rebalances

    def test_members_continue_after_the_server_was_killed(
        self, company: Company, server: ServerProcess, library: str
    ) -> None:
        """The same with ``kill -9``: what was acknowledged is there, the members are still members."""
        backstage = stage_with_topic(company, library)
        member = company.member(library, "member")
        wait_for_shares(member)
        records = batch("old")
        company.produce(backstage, records)
        wait_for_records([member], len(records))
        commit_all([member])
        rebalances = member.rebalances

        server.kill()
        server.start()
        committed = company.backstage(library).ask("group_offsets", group=company.group, topic=company.topic)
        assert sorted(map(tuple, committed)) == sorted(member.positions.items())
        commit_all([member])
        assert member.rebalances == rebalances


class TestMemberLoss:
    """A member is gone without a goodbye."""

    def test_partitions_of_a_killed_member_are_reassigned(self, company: Company, library: str) -> None:
        """``kill -9`` of a consumer: after its session timeout the other one holds everything, from its commits on."""
        backstage = stage_with_topic(company, library)
        stays = company.member(library, "stays", session_timeout_ms=SHORT_SESSION_TIMEOUT_MS)
        dies = company.member(library, "dies", session_timeout_ms=SHORT_SESSION_TIMEOUT_MS)
        wait_for_shares(stays, dies)
        first = batch("before")
        expected = at_offsets(first, company.produce(backstage, first))
        wait_for_records([stays, dies], len(first))
        commit_all([stays, dies])
        dies.kill()
        wait_for_shares(stays)
        second = batch("after")
        expected = sorted(
            expected + at_offsets(second, company.produce(backstage, second)),
            key=lambda received: (received[1].partition, received[0]),
        )
        assert wait_for_records([stays, dies], len(expected)) == expected

    def test_static_member_returns_without_rebalance(self, company: Company, library: str) -> None:
        """With group.instance.id a restart within the session timeout gives the same partitions and disturbs nobody."""
        stage_with_topic(company, library)
        stays = company.member(library, "stays", instance="seat-1")
        goes = company.member(library, "goes", instance="seat-2")
        shares = wait_for_shares(stays, goes)
        rebalances = stays.rebalances
        goes.kill()
        back = company.member(library, "back", instance="seat-2")
        assert wait_for_shares(stays, back) == shares
        # The one who stayed beats on; a rebalance would have reached it with the answer to its commit.
        stays.commit(dict.fromkeys(shares[0], 0))
        assert stays.rebalances == rebalances


class TestAdmin:
    """What the admin clients show of a group, while it lives and when it is empty."""

    def test_group_is_listed_and_described_with_offsets(self, company: Company, library: str) -> None:
        """ListGroups, DescribeGroups and OffsetFetch without a member, of a group with two members."""
        admin = stage_with_topic(company, library)
        members = [company.member(library, "first"), company.member(library, "second", instance="seat")]
        shares = wait_for_shares(*members)
        assert company.group in admin.ask("list_groups")
        described = describe(admin, company.group)
        assert described["state"] == "Stable"
        seen = sorted((member["client"], member["partitions"]) for member in described["members"])
        assert seen == [("first", sorted(shares[0])), ("second", sorted(shares[1]))]

        for member, share in zip(members, shares, strict=True):
            member.commit({partition: partition + 100 for partition in share})
        committed = admin.ask("group_offsets", group=company.group, topic=company.topic)
        assert sorted(map(tuple, committed)) == [(partition, partition + 100) for partition in sorted(PARTITIONS)]

    def test_empty_group_is_deleted_with_its_offsets(self, company: Company, library: str) -> None:
        """DeleteGroups refuses a group with members, and takes an empty one with all that it committed."""
        backstage = stage_with_topic(company, library)
        member = company.member(library, "member")
        wait_for_shares(member)
        member.commit({0: 1})
        # aiokafka's admin client cannot delete groups, so kafka-python's does it there.
        admin = backstage if library != "aiokafka" else company.backstage("kafka_python")
        refused = admin.try_ask("delete_group", group=company.group)
        assert "error" in refused and "empty" in refused["error"].lower(), refused

        member.close()
        wait_until(lambda: describe(admin, company.group)["state"], lambda state: state == "Empty", "an empty group")
        admin.ask("delete_group", group=company.group)
        assert company.group not in backstage.ask("list_groups")
        assert admin.ask("group_offsets", group=company.group, topic=company.topic) == []
