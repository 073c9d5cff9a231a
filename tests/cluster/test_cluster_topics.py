"""Topics of three real servers on a shared folder: each is led by one node, and clients go on when that node dies."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from peers.wire import Wire

from .cluster_server_helpers import ClusterServer, cluster_of

confluent: Any = import_module("confluent_kafka.admin")  # its stubs export nothing

WAIT_S = 60.0
MOVES = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
NAMES = ("plays", "scenes", "actors-of-a-play", "x", "y-y", "some.other")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ClusterServer]]:
    """Each test uses topics of its own, and ends no server."""
    folder = tmp_path_factory.mktemp("cluster")
    yield from three_servers(folder)


@pytest.fixture
def own_servers(tmp_path: Path) -> Iterator[list[ClusterServer]]:
    """A test may end them."""
    yield from three_servers(tmp_path)


def three_servers(folder: Path) -> Iterator[list[ClusterServer]]:
    store = folder / "shared"
    store.mkdir()
    with cluster_of(3, folder, f"file://{store}") as servers:
        yield servers


def address(server: ClusterServer) -> str:
    return "{}:{}".format(*server.address)


def admin(server: ClusterServer) -> Any:
    return confluent.AdminClient({"bootstrap.servers": address(server)})


def create(server: ClusterServer, *topics: Any) -> dict[str, int]:
    """The error code by topic."""
    client = admin(server)
    return {name: error_of(future.result) for name, future in client.create_topics(list(topics)).items()}


def delete(server: ClusterServer, name: str) -> int:
    client = admin(server)
    return error_of(client.delete_topics([name])[name].result)


def error_of(result: Callable[[float], Any]) -> int:
    try:
        result(WAIT_S)
    except KafkaException as error:
        return int(error.args[0].code())
    return int(KafkaError.NO_ERROR)


def leaders(server: ClusterServer) -> dict[str, set[int]]:
    """The leaders of each topic's partitions, as one node says."""
    topics = admin(server).list_topics(timeout=WAIT_S).topics
    return {name: {each.leader for each in topic.partitions.values()} for name, topic in topics.items()}


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def commit(consumer: Consumer, *offsets: TopicPartition) -> None:
    """Commit offsets, by default the positions, again while the coordinator moves: a node is slow on a busy machine."""
    until(lambda: _is_committed(consumer, *offsets))


def _is_committed(consumer: Consumer, *offsets: TopicPartition) -> bool:
    try:
        consumer.commit(asynchronous=False, **({"offsets": list(offsets)} if offsets else {}))
    except KafkaException as error:
        if error.args[0].code() not in MOVES:
            raise
        return False
    return True


def produce(servers: Sequence[ClusterServer], topics: Sequence[str], value: str) -> dict[tuple[str, int], int]:
    """One record to partitions 0 and 1 of each topic, acknowledged. Returns the offsets."""
    producer = Producer({"bootstrap.servers": ",".join(map(address, servers)), "message.timeout.ms": 60_000})
    offsets: dict[tuple[str, int], int] = {}

    def delivered(error: KafkaError | None, message: Any) -> None:
        assert error is None, error
        offsets[message.topic(), message.partition()] = message.offset()

    for topic in topics:
        for partition in (0, 1):
            producer.produce(topic, value.encode(), partition=partition, on_delivery=delivered)
    assert producer.flush(WAIT_S) == 0
    return offsets


def consumer_of(servers: Sequence[ClusterServer], group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": ",".join(map(address, servers)),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 1000,
        }
    )


def consume(consumer: Consumer, value: str, count: int) -> list[tuple[str, int]]:
    """Topic and partition of records with this value, as soon as there are ``count``. Others are skipped."""
    found: list[tuple[str, int]] = []
    deadline_s = time.monotonic() + WAIT_S
    while len(found) < count:
        assert time.monotonic() < deadline_s, found
        message = consumer.poll(0.2)
        if message is not None and message.error() is None and message.value() == value.encode():
            found.append((message.topic() or "", message.partition() or 0))
    return found


def test_what_one_node_does_all_nodes_know(servers: list[ClusterServer]) -> None:
    first, second, third = servers
    assert create(first, confluent.NewTopic("known", 2, 1, config={"retention.ms": "12345"})) == {"known": 0}
    until(lambda: all("known" in leaders(server) for server in servers))
    assert len({frozenset(leaders(server)["known"]) for server in servers}) == 1
    client = admin(second)
    assert error_of(client.create_partitions([confluent.NewPartitions("known", 3)])["known"].result) == 0
    until(lambda: len(admin(third).list_topics("known", WAIT_S).topics["known"].partitions) == 3)
    resource = confluent.ConfigResource(confluent.ConfigResource.Type.TOPIC, "known")
    client = admin(third)
    config = client.describe_configs([resource])[resource].result(WAIT_S)
    assert config["retention.ms"].value == "12345"
    assert delete(third, "known") == 0
    until(lambda: all("known" not in leaders(server) for server in servers))


def test_one_node_leads_a_topic_and_all_nodes_lead_some(servers: list[ClusterServer]) -> None:
    names = [f"led-{uuid.UUID(int=number * 7919)}" for number in range(30)]
    assert set(create(servers[0], *(confluent.NewTopic(name, 2, 1) for name in names)).values()) == {0}
    until(lambda: set(names) <= leaders(servers[0]).keys())
    led = leaders(servers[0])
    assert all(len(led[name]) == 1 for name in names)
    assert set.union(*(led[name] for name in names)) == {1, 2, 3}


def test_topics_of_the_coordinator_have_the_same_ids_on_all_nodes(servers: list[ClusterServer]) -> None:
    for name in ("__consumer_offsets", "__transaction_state"):
        ids = set()
        for server in servers:
            with Wire(*server.address) as wire:
                request = {"topics": [{"name": name, "topic_id": uuid.UUID(int=0)}], "allow_auto_topic_creation": False}
                answer = wire.ask("metadata", 12, **request, include_topic_authorized_operations=False)
            ids.add(answer["topics"][0]["topic_id"])
        assert len(ids) == 1


def test_second_of_two_creators_gets_an_error(servers: list[ClusterServer]) -> None:
    names = [f"raced-{number}" for number in range(10)]
    clients = [admin(server) for server in servers]
    futures = [client.create_topics([confluent.NewTopic(name, 1, 1) for name in names]) for client in clients]
    for name in names:
        codes = sorted(error_of(each[name].result) for each in futures)
        assert codes == [0, KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.TOPIC_ALREADY_EXISTS]


def test_records_go_to_the_leader_whichever_node_is_asked(servers: list[ClusterServer]) -> None:
    names = [f"written-{name}" for name in NAMES]
    assert set(create(servers[0], *(confluent.NewTopic(name, 2, 1) for name in names)).values()) == {0}
    for server in servers:
        produce([server], names, f"from {server.name}")
    consumer = consumer_of(servers[1:2], "readers")
    consumer.subscribe(names)
    assert len(consume(consumer, "from n3", 2 * len(names))) == 2 * len(names)
    consumer.close()


def test_topic_is_created_by_a_producer(servers: list[ClusterServer]) -> None:
    producer = Producer({"bootstrap.servers": address(servers[2])})
    producer.produce("made-by-producer", b"x")
    assert producer.flush(WAIT_S) == 0
    until(lambda: "made-by-producer" in leaders(servers[0]))


def test_offset_of_a_deleted_topic_does_not_come_back(servers: list[ClusterServer]) -> None:
    """The group and the topic may belong to different nodes; the topic is deleted and created on others."""
    groups = [f"of-deleted-{number}" for number in range(9)]
    assert create(servers[0], confluent.NewTopic("deleted", 1, 1)) == {"deleted": 0}
    position = TopicPartition("deleted", 0, 5)
    until(lambda: all("deleted" in leaders(server) for server in servers))
    consumers = [consumer_of(servers, group) for group in groups]
    for consumer in consumers:
        commit(consumer, position)
    assert delete(servers[1], "deleted") == 0
    created = (KafkaError.NO_ERROR, KafkaError.TOPIC_ALREADY_EXISTS)
    # On a busy machine nodes may need longer for the offsets than the request waits: then it has to be repeated.
    until(lambda: create(servers[2], confluent.NewTopic("deleted", 1, 1))["deleted"] in created)
    until(lambda: all("deleted" in leaders(server) for server in servers))
    for consumer in consumers:
        [committed] = consumer.committed([TopicPartition("deleted", 0)], WAIT_S)
        assert committed.offset < 0
        consumer.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_clients_go_on_when_the_leader_ends(own_servers: list[ClusterServer], number: signal.Signals) -> None:
    """Topics that have moved are empty and begin at a higher offset; consumers find it by themselves."""
    names = [f"moved-{name}" for name in NAMES]
    assert set(create(own_servers[0], *(confluent.NewTopic(name, 2, 1) for name in names)).values()) == {0}
    before = produce(own_servers, names, "before")
    consumer = consumer_of(own_servers, "movers")
    consumer.subscribe(names)
    consume(consumer, "before", 2 * len(names))
    commit(consumer)
    led = leaders(own_servers[0])
    [victim] = led[names[0]]
    own_servers[victim - 1].send(number)
    others = [server for server in own_servers if server is not own_servers[victim - 1]]
    until(lambda: all(victim not in each for each in leaders(others[0]).values()))
    after = produce(others, names, "after")
    consume(consumer, "after", 2 * len(names))
    consumer.close()
    for name in names:
        has_moved = led[name] == {victim}
        assert (after[name, 0] > before[name, 0] + 1) == has_moved
