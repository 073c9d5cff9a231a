"""The members of a group on the web page: who they are, by which client library, and who is back after a removal."""

from __future__ import annotations

import asyncio

from confluent_kafka import Consumer
from http_api_helpers import Api
from page_helpers import rows
from recorder.samples import BILLING, PAYMENTS, now

import callboard.web
from callboard import Coordinator
from callboard.actors.recorder.clients import MemberClient, MemberClients
from callboard.actors.recorder.record import MemberName
from callboard.runtime.embed.results import GroupExplanation, GroupMember
from callboard.runtime.web.page.changes import Plan
from callboard.runtime.web.page.forms import still_missing
from callboard.runtime.web.page.members import find_clients

ANN, BOB = MemberClient("User:ann", "librdkafka 2.16.0"), MemberClient("User:bob", "")


def member(name: MemberName) -> GroupMember:
    return GroupMember(name.member_id, name.instance_id, name.client_id, name.client_host, (), (), b"", b"")


def test_clients_are_those_that_this_node_has_noted_or_another_one_tells() -> None:
    other = BILLING._replace(member_id="billing-2-uuid")
    told = now(members=(BILLING._replace(principal="User:old", software="x"), PAYMENTS._replace(principal="User:bob")))
    noted = MemberClients()
    noted.note("orders", BILLING.member_id, ANN)
    explained = GroupExplanation("orders", "", told, (), ())
    found = find_clients(explained, [member(BILLING), member(PAYMENTS), member(other)], noted)
    assert found == {BILLING.member_id: ANN, PAYMENTS.member_id: BOB}
    assert find_clients(GroupExplanation("mails", "", now(), (), ()), [member(BILLING)], noted) == {}


def test_tab_names_the_software_and_the_principal_of_a_member() -> None:
    with Coordinator.in_thread(None, "127.0.0.1:0", topics={"jobs": 2}) as coordinator:
        consumer = Consumer({"bootstrap.servers": coordinator.bootstrap, "group.id": "images", "client.id": "worker-1"})
        consumer.subscribe(["jobs"])
        try:
            while not consumer.assignment():
                consumer.poll(0.05)
            titles, row = rows(asyncio.run(Api(callboard.web.app(coordinator)).page("groups/images?tab=members")))
        finally:
            consumer.close()
    assert titles == "Choose Client Host Instance Software Principal Partitions Assignment Member id"
    assert row.startswith("worker-1 127.0.0.1 - confluent-kafka-python ")
    assert " User:ANONYMOUS 2 jobs 0-1 worker-1-" in row


def test_members_that_stayed_do_not_count_as_back() -> None:
    """Consumers often have the same client id on the same host."""
    twin, newcomer = BILLING._replace(member_id="billing-1-twin"), BILLING._replace(member_id="billing-1-new")
    removed_one = Plan((member(BILLING), member(twin)), (member(BILLING),))
    assert still_missing(removed_one, [member(twin)]) == [member(BILLING)]
    assert still_missing(removed_one, [member(twin), member(newcomer)]) == []
    removed_both = Plan(removed_one.members, removed_one.members)
    assert len(still_missing(removed_both, [member(newcomer)])) == 1
