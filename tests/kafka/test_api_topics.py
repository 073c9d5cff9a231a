"""The topic APIs in every served version, from request bytes to response bytes, with fake services."""

from __future__ import annotations

from topic_api_helpers import (
    EARLIEST,
    LATEST,
    FakeConnection,
    FakeServices,
    create_topics,
    delete_topics,
    describe_cluster,
    fetch,
    fetch_request,
    init_producer_id,
    list_offsets,
    made,
    metadata,
    node,
    produce,
    versions,
)
from topics_helpers import producer_batch

from callboard.actors.errors import ErrorCode
from callboard.runtime.kafka.api import Routes
from callboard.runtime.kafka.authorization.authorizer import AllowAll
from callboard.runtime.kafka.cluster_view import NO_NODE, Broker, Leader, SingleNode

__all__ = ["node"]  # the fixture


@versions("metadata")
def test_metadata_in_every_version(node: FakeServices, name: str, version: int) -> None:
    topic = made(node)
    answer = metadata(node, ["plays", "nobody"], version)
    [broker] = answer.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "stage.example", 9092)
    known_topic, unknown_topic = answer.topics
    assert (known_topic.name, known_topic.error_code, len(known_topic.partitions)) == ("plays", 0, 2)
    assert {partition.leader_id for partition in known_topic.partitions} == {1}
    assert getattr(known_topic, "topic_id", topic.topic_id) == topic.topic_id
    # Requests before v4 cannot forbid auto-creation.
    assert unknown_topic.error_code == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version >= 4 else 0)


class AlternatingLeaders(SingleNode):
    """Of four partitions node 1 leads two, node 2 one, and one has no leader."""

    def brokers(self, listener: str) -> list[Broker]:
        return [Broker(node_id, f"stage-{node_id}.example", 9092) for node_id in (1, 2)]

    def leader(self, topic: str, partition: int) -> Leader:
        return (Leader(1, 7), Leader(2, 300), Leader(1, 7), Leader(NO_NODE, 5))[partition % 4]


@versions("metadata")
def test_metadata_of_partitions_with_different_leaders(node: FakeServices, name: str, version: int) -> None:
    node.cluster = AlternatingLeaders("cluster", 1, {})
    made(node, "plays", 300)
    made(node, "ads", 5)
    for topic, count in zip(metadata(node, ["plays", "ads"], version).topics, (300, 5), strict=True):
        assert [partition.partition_index for partition in topic.partitions] == list(range(count))
        for index, partition in enumerate(topic.partitions):
            node_id, epoch = node.cluster.leader(topic.name, index)
            nodes = () if node_id == NO_NODE else (node_id,)
            error = ErrorCode.LEADER_NOT_AVAILABLE if node_id == NO_NODE else ErrorCode.NONE
            assert (partition.error_code, partition.leader_id) == (error, node_id)
            assert (partition.replica_nodes, partition.isr_nodes) == (nodes, nodes)
            assert getattr(partition, "leader_epoch", epoch) == epoch
            assert getattr(partition, "offline_replicas", ()) == ()


@versions("create_topics")
def test_create_topics_in_every_version(node: FakeServices, name: str, version: int) -> None:
    results = create_topics(node, {"name": "plays", "partitions": 3}, {"name": "", "partitions": 3}, version=version)
    assert results["plays"].error_code == 0
    assert results[""].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    topic = node.topics.get("plays")
    assert topic is not None
    assert getattr(results["plays"], "num_partitions", 3) == len(topic.partitions) == 3
    assert getattr(results["plays"], "topic_id", topic.topic_id) == topic.topic_id
    if version >= 5:
        assert {"cleanup.policy", "retention.ms"} < {config.name for config in results["plays"].configs}
        assert results[""].configs == ()


@versions("delete_topics")
def test_delete_topics_in_every_version(node: FakeServices, name: str, version: int) -> None:
    made(node)
    assert delete_topics(node, "plays", "nobody", version=version) == [
        ("plays", 0),
        ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert node.topics.get("plays") is None


@versions("produce")
def test_produce_in_every_version(node: FakeServices, name: str, version: int) -> None:
    made(node).append(0, producer_batch(4))
    stored = produce(node, "plays", producer_batch(2), version=version)
    assert (stored.error_code, stored.base_offset) == (0, 4)
    refused = produce(node, "plays", producer_batch(crc_change=1), version=version)
    assert (refused.error_code, refused.base_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)


@versions("fetch")
def test_fetch_in_every_version(node: FakeServices, name: str, version: int) -> None:
    topic = made(node)
    topic.append(0, producer_batch(2))
    full, empty = fetch(node, ("plays", 0, 1), ("plays", 1, 0), version=version)
    assert full.records == topic.partitions[0].read(0, 1000)
    assert (full.high_watermark, full.last_stable_offset, getattr(full, "log_start_offset", 0)) == (2, 2, 0)
    assert (empty.error_code, empty.records) == (0, b"")
    [unknown] = fetch(node, ("plays", 9, 0), version=version)
    assert (unknown.error_code, unknown.records) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, b"")


@versions("fetch")
def test_fetch_response_shares_memory_of_records(node: FakeServices, name: str, version: int) -> None:
    topic = made(node)
    for _ in range(3):
        topic.append(0, producer_batch(2))
    key = topic.topic_id if version >= 13 else "plays"
    response = fetch_request(node, (key, 0, 2), version=version)
    batches = topic.partitions[0].read(2, 1000).parts
    assert len(batches) == 2
    assert all(any(part is batch for part in response.parts) for batch in batches)


def test_fetch_while_clients_read_slowly_returns_part_of_free_bytes(node: FakeServices) -> None:
    topic = made(node)
    batch = producer_batch(2)
    for _ in range(8):
        topic.append(0, batch)
    unsent = node.buffers.unsent
    for free_batches, expected in ((20, 8), (16, 8), (10, 5), (1, 1), (0, 1)):
        holder = FakeConnection(node)
        unsent.set(holder, unsent.free_bytes - free_batches * len(batch))
        [part] = fetch(node, ("plays", 0, 0))
        assert len(part.records) == expected * len(batch)
        unsent.set(holder, 0)


@versions("list_offsets")
def test_list_offsets_in_every_version(node: FakeServices, name: str, version: int) -> None:
    made(node).append(1, producer_batch(3, timestamps=[10, 20, 30]))

    def offset(time: int) -> tuple[int, int, int]:
        response = list_offsets(node, "plays", time, partition=1, version=version)
        return response.error_code, response.timestamp, response.offset

    assert offset(LATEST) == (0, -1, 3)
    assert offset(EARLIEST) == (0, -1, 0)
    assert offset(15) == (0, 20, 1)
    assert offset(31) == (0, -1, -1)


@versions("init_producer_id")
def test_init_producer_id_in_every_version(node: FakeServices, name: str, version: int) -> None:
    first, second = (init_producer_id(node, version=version) for _ in range(2))
    assert (first.error_code, first.producer_id, first.producer_epoch) == (0, 0, 0)
    assert (second.error_code, second.producer_id, second.producer_epoch) == (0, 1, 0)


@versions("describe_cluster")
def test_describe_cluster_in_every_version(node: FakeServices, name: str, version: int) -> None:
    answer = describe_cluster(node, version=version)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, node.cluster.cluster_id, 1)
    assert [(broker.broker_id, broker.host, broker.port) for broker in answer.brokers] == [(1, "stage.example", 9092)]


def test_unserved_versions_have_no_route() -> None:
    """Kafka advertises Produce from 0 on and closes the connection on v0-v2."""
    for key, version in [(0, 2), (0, 14), (1, 3), (2, 0), (19, 1), (20, 0)]:
        assert Routes(AllowAll()).find(key, version) is None
