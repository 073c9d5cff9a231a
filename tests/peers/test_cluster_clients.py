"""Real clients on three nodes of a cluster: admin clients, and groups while nodes die, leave, and start again.

The groups of four libraries, and one of the consumer protocol, go through one scenario at the same time, because most
of it is waiting.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cluster.cluster_server_helpers import ClusterServer, cluster_of, wait_until_balanced
from cluster.loading_node import loading_node
from cluster.probe import TOPIC
from command_helpers import command
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from real_kafka.kafka import programs

from callboard.runtime.cli.groups import commands
from callboard.runtime.settings.address import Address as ListenAddress

from .cluster_groups import CommittedOffsets, Group, JavaGroup, PeerGroup, fetch_committed, has_advanced, name_on
from .counted_consumer import CountedConsumer, Rate
from .group_clients import PARTITIONS, PATIENT_SESSION_TIMEOUT_MS, GroupClients, wait_until_partitions_are_shared
from .java import JAVA, JavaConsumer
from .waiting import wait_until
from .wire import Wire

MEMBERS = {"confluent": 2, "aiokafka": 1, "kafka_python": 1}
CONSUMER_PROTOCOL = "consumer_protocol"  # the group of librdkafka's members that use it
JAVA_MEMBERS = 2
OPTIONS = (
    *("--set", "group_consumer_min_heartbeat_interval_ms=1"),
    *("--set", "group_consumer_heartbeat_interval_ms=500"),
)
DEADLINE_S = 120.0
REQUESTS_PER_S_MAX = 50.0
"""A client that does not wait sends thousands."""
ASSIGNOR = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ClusterServer]]:
    folder = tmp_path_factory.mktemp("cluster")
    store = folder / "shared"
    store.mkdir()
    with cluster_of(3, folder, store.as_uri(), *OPTIONS) as servers:
        yield servers


def bootstrap(servers: Sequence[ClusterServer]) -> str:
    return ",".join("{}:{}".format(*server.address) for server in servers)


# Admin clients: a request about all groups asks all nodes ------------------------------------------------------------


@pytest.fixture
def groups(servers: list[ClusterServer]) -> Iterator[dict[str, ClusterServer]]:
    """A group without members on each node, which has committed 5."""
    groups = {name_on(server.address, "idle"): server for server in servers}
    admin = AdminClient({"bootstrap.servers": bootstrap(servers)})
    for group in groups:
        request = ConsumerGroupTopicPartitions(group, [TopicPartition(TOPIC, 0, 5)])
        admin.alter_consumer_group_offsets([request])[group].result(DEADLINE_S)
    yield groups
    for server in servers:
        with Wire(*server.address) as wire:
            wire.ask("delete_groups", 1, groups_names=list(groups))


def test_node_lists_only_the_groups_that_it_coordinates(groups: dict[str, ClusterServer]) -> None:
    """As in Kafka: ListGroups is about the partitions of one node."""
    for group, server in groups.items():
        with Wire(*server.address) as wire:
            listed = wire.ask("list_groups", 4, states_filter=[])["groups"]
        assert [each["group_id"] for each in listed] == [group]


def test_callboard_groups_asks_all_nodes(groups: dict[str, ClusterServer], capsys: pytest.CaptureFixture[str]) -> None:
    """``--bootstrap-server`` is one node, whichever has the group."""
    run = command(commands.main, capsys)
    names = sorted(groups)
    for server in groups.values():
        at = ("--bootstrap-server", bootstrap([server]))
        listed = run("list", "--json", *at)
        assert [line["group"] for line in json.loads(listed.out)] == names, listed.err
        for group in names:
            described = json.loads(run("describe", group, "--json", *at).out)
            assert (described["group"], described["state"]) == (group, "Empty")
    for group, server in groups.items():
        reset = run("reset", group, "--topic", TOPIC, "--to-earliest", "--execute", *at)
        assert reset.code == 0, reset.err
        assert fetch_committed([server.address], group) == {0: first_offset(at[1])}
    deleted = run("delete", *names, *at)
    assert deleted.code == 0, deleted.err
    assert run("list", "--json", *at).out.strip() == "[]"


def first_offset(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    try:
        first, _ = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), DEADLINE_S)
        return int(first)
    finally:
        consumer.close()


def test_javas_admin_asks_all_nodes(
    groups: dict[str, ClusterServer], servers: list[ClusterServer], class_path: Path
) -> None:
    arguments = ["-cp", f"{programs()}:{class_path}/*", "GroupAdmin", bootstrap(servers[:1]), TOPIC, *groups]
    done = subprocess.run([*JAVA, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    names = sorted(groups)
    assert done.stdout.splitlines() == [
        f"listed [{', '.join(names)}]",
        f"described {java_map({name: f'Empty@{groups[name].address[1]}' for name in names})}",
        *(f"offsets {java_map(dict.fromkeys(names, offset))}" for offset in (5, 7, -1)),
        "listed []",
    ]


def java_map(entries: Mapping[str, object]) -> str:
    """As Java prints a map."""
    return "{" + ", ".join(f"{key}={entries[key]}" for key in sorted(entries)) + "}"


# Groups through deaths and restarts ----------------------------------------------------------------------------------


class Scenario:
    """The groups, and a producer that goes on."""

    def __init__(self, servers: Sequence[ClusterServer], topic: str, groups: Sequence[Group]) -> None:
        self.groups = groups
        self._servers = servers
        self._topic = topic
        self._committed = [CommittedOffsets(group, [server.address for server in servers]) for group in groups]
        self._producer = Producer({"bootstrap.servers": bootstrap(servers), "retry.backoff.ms": 50, "log_level": 0})

    def advance(self) -> None:
        """Until each group has committed records of each partition that are newer than what it has committed now."""
        before = [committed.read() for committed in self._committed]

        def groups_behind() -> list[str]:
            self._produce()
            for group in self.groups:
                group.commit()
            now = [committed.read() for committed in self._committed]
            pairs = zip(self.groups, before, now, strict=True)
            behind = [(group, old, new) for group, old, new in pairs if not has_advanced(old, new)]
            return [f"{group.name}: committed {old}, then {new}; {group.progress()}" for group, old, new in behind]

        wait_until(groups_behind, lambda behind: not behind, "all groups to commit newer records")

    def rebalances(self) -> dict[str, list[int]]:
        return {group.name: [member.rebalances for member in group.members] for group in self.groups}

    def _produce(self) -> None:
        for partition in PARTITIONS:
            self._producer.produce(self._topic, b"record", partition=partition)
        self._producer.poll(0.1)


def peer_group(servers: Sequence[ClusterServer], folder: Path, library: str, topic: str, closing: ExitStack) -> Group:
    clients = GroupClients(bootstrap(servers), folder, name_on(servers[0].address, library), topic, closing)
    names = [f"{library}-member-{number}" for number in range(MEMBERS[library])]
    return PeerGroup(clients.group, *(clients.member(library, name) for name in names))


def consumer_protocol_group(servers: Sequence[ClusterServer], folder: Path, topic: str, closing: ExitStack) -> Group:
    group = name_on(servers[0].address, CONSUMER_PROTOCOL)
    clients = GroupClients(bootstrap(servers), folder, group, topic, closing)
    names = [f"{CONSUMER_PROTOCOL}-member-{number}" for number in range(MEMBERS["confluent"])]
    return PeerGroup(group, *(clients.member("confluent", name, protocol="consumer") for name in names))


def java_group(servers: Sequence[ClusterServer], folder: Path, jars: Path, topic: str, closing: ExitStack) -> Group:
    group = name_on(servers[0].address, "java")
    options: dict[str, Any] = {"topic": topic, "group_id": group, "bootstrap_server": bootstrap(servers)}
    options |= {"session_timeout": PATIENT_SESSION_TIMEOUT_MS, "assignment_strategy": ASSIGNOR}
    members = [JavaConsumer(jars, f"java-member-{number}", folder, **options) for number in range(JAVA_MEMBERS)]
    for member in members:
        closing.callback(member.finish)
    return JavaGroup(group, *members)


@pytest.fixture
def scenario(servers: list[ClusterServer], class_path: Path, tmp_path: Path) -> Iterator[Scenario]:
    """The first node coordinates all groups, and another one leads their topic. All groups are complete."""
    topic = name_on(servers[1].address, "orders")
    with ExitStack() as closing:
        producer_admin = GroupClients(bootstrap(servers), tmp_path, "", topic, closing).producer_admin("confluent")
        producer_admin.ask("create_topic", topic=topic)
        groups = [peer_group(servers, tmp_path, library, topic, closing) for library in MEMBERS]
        groups.append(consumer_protocol_group(servers, tmp_path, topic, closing))
        groups.append(java_group(servers, tmp_path, class_path, topic, closing))
        for group in groups:
            wait_until_partitions_are_shared(*group.members)
        yield Scenario(servers, topic, groups)


def start_again(server: ClusterServer, servers: Sequence[ClusterServer]) -> None:
    joins = server.log.count("joined the cluster")
    server.start(*OPTIONS)
    server.wait_for_log("joined the cluster", joins + 1)
    wait_until_balanced(servers)


def test_clients_go_on_when_nodes_die_leave_and_start_again(scenario: Scenario, servers: list[ClusterServer]) -> None:
    """A kill of the node that coordinates all groups, then a rolling restart, in which each node drains itself.

    No committed offset is ever lower than before. Members stay in their groups, so nothing is rebalanced.
    """
    scenario.advance()
    rebalances = scenario.rebalances()
    owner = servers[0]
    owner.send(signal.SIGKILL)
    scenario.advance()
    start_again(owner, servers)
    scenario.advance()
    assert scenario.rebalances() == rebalances
    for server in servers:
        server.send(signal.SIGTERM)
        assert server.wait() == 0
        scenario.advance()
        start_again(server, servers)
        scenario.advance()
    assert scenario.rebalances() == rebalances


# Requests without a coordinator: librdkafka waits between them ------------------------------------------------------


def test_librdkafka_waits_between_requests_while_its_coordinator_is_dead(servers: list[ClusterServer]) -> None:
    """First it finds the dead node, which refuses connections, then nobody (error 15), then the next one."""
    owner = servers[2]
    with CountedConsumer(bootstrap(servers), name_on(owner.address, "counted"), TOPIC).running() as consumer:
        wait_for_commits(consumer, 1)
        owner.send(signal.SIGKILL)
        rate = Rate(consumer)
        wait_for_commits(consumer, consumer.commits + 2)  # the first of them may have been sent before
        assert rate.read() < REQUESTS_PER_S_MAX, consumer.requests
        assert consumer.requests["FindCoordinator"] > 1
    start_again(owner, servers)


def test_librdkafka_waits_between_requests_while_its_coordinator_loads(tmp_path: Path) -> None:
    async def run() -> None:
        async with loading_node(tmp_path) as (address, gate):
            loop = asyncio.get_running_loop()
            await asyncio.to_thread(join_slowly, address, lambda: loop.call_soon_threadsafe(gate.set))

    asyncio.run(run())


def join_slowly(address: ListenAddress, load: Callable[[], object]) -> None:
    """A consumer gets error 14 until the partition is loaded."""
    with CountedConsumer(f"{address.host}:{address.port}", "group", TOPIC).running() as consumer:
        rate = Rate(consumer)
        wait_until(lambda: consumer.requests["JoinGroup"], lambda joins: joins > 1, "the consumer to try again")
        assert rate.read() < REQUESTS_PER_S_MAX, consumer.requests
        assert not consumer.is_assigned.is_set()
        load()
        wait_for_commits(consumer, 1)


def wait_for_commits(consumer: CountedConsumer, count: int) -> None:
    wait_until(lambda: consumer.commits, lambda commits: commits >= count, f"{count} commits")
