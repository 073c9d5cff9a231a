"""Coordinators in a program that are nodes or observers of one cluster."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from consumer_requests import join
from harness import Client, async_test

from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.actors.messages import Heartbeat
from callboard.runtime.client.connection import ChannelLost
from callboard.runtime.cluster.register import Register
from callboard.runtime.common.errors import StartError
from callboard.runtime.embed.cluster_members import LeasedChannel
from callboard.runtime.embed.coordinator import Coordinator
from callboard.runtime.embed.results import CommittedOffset, OffsetsOf, Targets
from callboard.runtime.member.connect import connect
from callboard.runtime.member.member import Member
from callboard.runtime.settings.listeners import PLAINTEXT

DEADLINE_S = 120.0
GROUPS = tuple(f"group-{number}" for number in range(6))
COUNTS: Any = {"offsets_topic_num_partitions": 8, "transaction_state_log_num_partitions": 2}


@pytest.fixture
def url(tmp_path: Path) -> str:
    store = tmp_path / "store"
    store.mkdir()
    return store.as_uri()


@asynccontextmanager
async def three_coordinators(url: str) -> AsyncIterator[tuple[Coordinator, Coordinator, Coordinator]]:
    """Two nodes that both own groups, and an observer."""
    async with (
        Coordinator(cluster=url, node_name="a", **COUNTS) as first,
        Coordinator(cluster=url, node_name="b", **COUNTS) as second,
        Coordinator(cluster=url, observer=True) as observer,
    ):
        async with asyncio.timeout(DEADLINE_S):
            while not all(map(is_settled, (first, second))):
                await asyncio.sleep(0.02)
            assert {owner_of(first, group) for group in GROUPS} == {"a", "b"}
        yield first, second, observer


def register_of(coordinator: Coordinator) -> Register:
    cluster: Any = coordinator.node.environment.cluster
    register: Register = cluster.ownership.register
    return register


def is_settled(coordinator: Coordinator) -> bool:
    """Whether this node knows that each of the two owners has half of the partitions: they do not move any more."""
    counts = Counter(register_of(coordinator).owners)
    return len(counts) == 2 and len(set(counts.values())) == 1


def owner_of(coordinator: Coordinator, group: str) -> str:
    """The name of the node that owns a group."""
    broker = coordinator.node.services.cluster.find_coordinator(group, PLAINTEXT, is_transactional_id=False)
    names = {node.node_id: node.name for node in register_of(coordinator).nodes.values()}
    return names[broker.node_id] if broker is not None else ""


async def wait_until_known(coordinator: Coordinator, partitions: int) -> None:
    """A change of a topic by one node is followed by the others."""
    async with asyncio.timeout(DEADLINE_S):
        while [len(topic.partitions) for topic in await coordinator.topics()] != [partitions]:
            await asyncio.sleep(0.02)


async def join_owner(nodes: tuple[Coordinator, Coordinator], group: str) -> None:
    """A static member of the consumer protocol joins by TCP. Its partition may be moving, or loading, until then."""
    moving = {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
    async with asyncio.timeout(DEADLINE_S):
        while True:
            owner = nodes[0] if owner_of(nodes[0], group) == "a" else nodes[1]
            host, _, port = owner.bootstrap.rpartition(":")
            client = Client(*await asyncio.open_connection(host, int(port)))
            error = (await join(client, "m", "t", group_id=group, instance_id="i"))["error_code"]
            await client.close()
            if error == "NONE":
                return
            assert error in moving
            await asyncio.sleep(0.02)


async def wait_until_split(members: list[Member], shards: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while any(len(member.shards) != shards for member in members):
            await asyncio.sleep(0.02)


@async_test
async def test_members_of_all_processes_share_groups_and_admin_methods_see_all_of_them(url: str) -> None:
    async with three_coordinators(url) as coordinators, AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(coordinator.member(group, resources={"jobs": 6}, client_id=f"c{number}"))
            for group in GROUPS
            for number, coordinator in enumerate(coordinators)
        ]
        await wait_until_split(members, 2)
        for member in members:
            for shard in member.shards:
                await shard.commit(10 + int(shard.name))
        expected = {("jobs", number): CommittedOffset(10 + number, "", -1) for number in range(6)}
        for coordinator in coordinators:
            listed = (await coordinator.groups()).groups
            assert [(group.group_id, group.state) for group in listed] == [(group, "Stable") for group in GROUPS]
            assert (await coordinator.groups(states=["Empty"])).groups == ()
            for group in GROUPS:
                described = await coordinator.describe(group)
                assert sorted(member.client_id for member in described.members) == ["c0", "c1", "c2"]
                assert await coordinator.offsets(group) == expected
            assert await coordinator.groups_of_topic("jobs") == GROUPS
            [topic] = await coordinator.topics()
            assert (topic.name, len(topic.partitions)) == ("jobs", 6)
            assert coordinator.health().is_ready
        await check_explanations(coordinators, GROUPS[0])
        await check_resets(coordinators, members)


async def check_resets(coordinators: tuple[Coordinator, Coordinator, Coordinator], members: Sequence[Member]) -> None:
    """Each node resets each group with members, and knows what it has reset. An observer resets none."""
    first, second, observer = coordinators
    for node, group in zip((first, second, first, second), GROUPS, strict=False):
        done = await node.evict_and_reset(group, {("jobs", 0): 0}, reason="again")
        assert len(done.removed) == sum(member.group_id == group for member in members)
        assert (await observer.offsets(group))["jobs", 0].offset == 0
        assert (await node.reset_progress(done.change_id)).group == group
        assert [change.change_id for change in await node.resets(group)] == [done.change_id]
    with pytest.raises(CoordinatorError, match="observer"):
        await observer.evict_and_reset(GROUPS[0], {("jobs", 0): 0})


async def check_explanations(coordinators: tuple[Coordinator, Coordinator, Coordinator], group: str) -> None:
    """Only the node of a group has its records. The others, and observers, ask it."""
    rebalances = await coordinators[0].rebalances(group, limit=10)
    assert rebalances
    for coordinator in coordinators:
        explained = await coordinator.explain(group)
        assert explained.now is not None and explained.now.member_count == 3
        assert explained.rebalances == rebalances
        with pytest.raises(CoordinatorError, match="there is no such group"):
            await coordinator.explain("unknown")


@async_test
async def test_admin_methods_change_groups_and_topics_of_other_nodes(url: str) -> None:
    async with three_coordinators(url) as (first, second, observer):
        created = await observer.create_topic("mails", 2)
        assert created in await observer.topics()
        await wait_until_known(second, 2)
        assert len((await second.grow_topic("mails", 3)).partitions) == 3
        for coordinator in (first, observer):
            await wait_until_known(coordinator, 3)
        for group in GROUPS:
            assert await observer.reset(group, {"mails": "latest", ("mails", 1): 7}) == {
                ("mails", 0): 0,
                ("mails", 1): 7,
                ("mails", 2): 0,
            }
            await first.delete_offsets(group, [("mails", 0), ("mails", 2)])
            assert await second.offsets(group) == {("mails", 1): CommittedOffset(7, "", -1)}
        async with first.member(GROUPS[0], resources={"mails": 3}) as member:
            await wait_until_split([member], 3)
            with pytest.raises(CoordinatorError, match="NON_EMPTY_GROUP"):
                await observer.delete(GROUPS[0])
            [removed] = await observer.remove_members(GROUPS[0])
            assert removed.startswith("callboard-")
        for group in GROUPS:
            await second.delete(group)
            with pytest.raises(CoordinatorError) as refused:
                await observer.describe(group)
            assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
        async with AIOKafkaProducer(bootstrap_servers=first.bootstrap) as producer:
            await producer.send_and_wait("mails", b"x", partition=0)
        for year, offset in ((2000, 0), (2100, 1)):
            targets: Targets = {("mails", 0): datetime(year, 1, 1, tzinfo=UTC)}
            assert await observer.reset("late", targets) == {("mails", 0): offset}
        assert await observer.reset("copy", {("mails", 0): OffsetsOf("late")}) == {("mails", 0): 1}
        await observer.delete_topic("mails")
        with pytest.raises(CoordinatorError, match="there is no topic 'mails'"):
            await observer.delete_topic("mails")


@async_test
async def test_consumer_groups_are_described_by_all_nodes(url: str) -> None:
    async with three_coordinators(url) as (first, second, observer):
        await first.create_topic("t", 2)
        await wait_until_known(second, 2)
        for group in GROUPS:
            await join_owner((first, second), group)
        both = (("t", 0), ("t", 1))
        for coordinator in (first, second, observer):
            for group in GROUPS:
                described = await coordinator.describe(group)
                assert (described.type, described.state, described.epoch) == ("consumer", "Stable", 2)
                [member] = described.members
                assert (member.member_id, member.instance_id, member.topics) == ("m", "i", ("t",))
                assert (member.epoch, member.assigned, member.target) == (2, both, both)
            assert await coordinator.groups_of_topic("t") == GROUPS
            assert {each.type for each in (await coordinator.groups()).groups} == {"consumer"}


@async_test
async def test_members_keep_their_shards_when_a_node_dies_or_stops(url: str) -> None:
    async with three_coordinators(url) as (first, second, observer), AsyncExitStack() as stack:
        options: Any = {"resources": {"jobs": 2}, "session_timeout_ms": 60_000}
        members = [
            await stack.enter_async_context(coordinator.member(group, **options))
            for group in GROUPS
            for coordinator in (second, observer)
        ]
        await wait_until_split(members, 1)
        shards = [member.shards[0] for member in members]
        await first.restart("killed")
        for number, shard in enumerate(shards):
            await shard.commit(number + 1)
        await first.stop()
        for number, shard in enumerate(shards):
            await shard.commit(number + 2)
        assert [shard for shard in shards if shard.is_revoked] == []
        assert len((await observer.groups()).groups) == len(GROUPS)
        assert {owner_of(second, group) for group in GROUPS} == {"b"}


@async_test
async def test_remote_members_follow_their_group_from_one_address(url: str) -> None:
    """``callboard.connect`` with the address of one node, which goes away."""
    async with (
        three_coordinators(url) as (first, second, _),
        connect(first.bootstrap) as remote,
        AsyncExitStack() as stack,
    ):
        options: Any = {"resources": {"jobs": 1}, "session_timeout_ms": 60_000}
        members = [await stack.enter_async_context(remote.member(group, **options)) for group in GROUPS]
        await wait_until_split(members, 1)
        shards = [member.shards[0] for member in members]
        await first.stop()
        for shard in shards:
            await shard.commit(5)
        assert [shard for shard in shards if shard.is_revoked] == []
        for group in GROUPS:
            assert await second.offsets(group) == {("jobs", 0): CommittedOffset(5, "", -1)}


def test_blocking_form_of_a_node_and_an_observer(url: str) -> None:
    with (
        Coordinator.in_thread(cluster=url, node_name="a", **COUNTS) as node,
        Coordinator.in_thread(cluster=url, observer=True) as observer,
        observer.member("g", resources={"jobs": 1}) as member,
    ):
        member.next_assignment(DEADLINE_S).shards[0].commit(3)
        assert node.offsets("g") == observer.offsets("g") == {("jobs", 0): CommittedOffset(3, "", -1)}
        assert [group.group_id for group in observer.groups().groups] == ["g"]
        node.set(group_max_size=7)
        assert node.settings.group_max_size == 7
        with pytest.raises(RuntimeError, match="is an observer and has no node"):
            observer.set(group_max_size=8)
        with pytest.raises(RuntimeError, match="is an observer and has no node"):
            observer.stats()


@async_test
async def test_cluster_that_refuses_a_node_is_an_error_of_the_start(url: str) -> None:
    async with Coordinator(cluster=url, node_name="a", **COUNTS):
        with pytest.raises(StartError, match="the cluster cannot be used: the cluster has"):
            await Coordinator(cluster=url, node_name="b").start()


@async_test
async def test_node_without_lease_answers_no_member() -> None:
    """It may have been frozen, and another node may own its groups."""
    has_lease = [True, False]

    class Inner:
        async def ask(self, message: object) -> ErrorCode:
            return ErrorCode.NONE

        def close(self) -> None: ...

    channel = LeasedChannel(Inner(), lambda: has_lease.pop(0))
    assert await channel.ask(Heartbeat("g", "m", None, 1)) is ErrorCode.NONE
    with pytest.raises(ChannelLost, match="no sign of life"):
        await channel.ask(Heartbeat("g", "m", None, 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cluster": "shared"}, "bad cluster 'shared': expected the URL of a store"),
        ({"cluster": 5}, "bad cluster 5"),
        ({"cluster": "file:///x", "node_name": "a b"}, "bad node name 'a b'"),
        ({"cluster": "file:///x", "node_name": 5}, "bad node_name 5"),
        ({"observer": True}, "are for a Coordinator in a cluster"),
        ({"node_name": "a"}, "are for a Coordinator in a cluster"),
        ({"cluster": "file:///x", "observer": True, "data": "state"}, "so it has no data"),
        ({"cluster": "file:///x", "observer": True, "listen": "127.0.0.1:0"}, "so it has no listen"),
        ({"cluster": "file:///x", "observer": True, "group_max_size": 5}, "so it has no group_max_size"),
    ],
)
def test_bad_arguments_of_a_cluster_are_named(arguments: Any, message: str) -> None:
    with pytest.raises(StartError, match=message):
        Coordinator(**arguments)


@async_test
async def test_start_with_a_url_of_no_store_leaves_the_port_free() -> None:
    coordinator = Coordinator(cluster="redis://host/0", listen="127.0.0.1:0")
    with pytest.raises(StartError, match="no store has a URL like") as caught:
        await coordinator.start()
    assert caught.value.__traceback__ is not None  # it keeps what is not closed
    with socket.create_server(("127.0.0.1", coordinator._embedded.options.listeners[0].listen.port)):
        pass


def imported_by_a_single_node() -> set[str]:
    program = (
        "import asyncio, sys, callboard\n"
        "async def main():\n"
        "    async with callboard.Coordinator(listen='127.0.0.1:0') as c, c.member('g', resources={'jobs': 1}) as m:\n"
        "        await (await m.next_assignment()).shards[0].commit(1)\n"
        "        await c.groups(); await c.topics()\n"
        "asyncio.run(main())\n"
        "print(*sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=DEADLINE_S
    )
    return set(result.stdout.split())


def test_single_node_imports_nothing_of_clusters() -> None:
    imported = imported_by_a_single_node()
    assert "callboard.runtime.embed.node_requests" in imported
    of_clusters = {name for name in imported if name.startswith("callboard.runtime.cluster")}
    assert of_clusters == set()
    assert "callboard.runtime.embed.cluster_part" not in imported
