"""Errors and edge cases of the topic APIs.

The error codes were compared with Kafka 4.3. Exceptions: null records, errors of transactions, negative limits, a
leader epoch below -1, and the tests whose docstring names a difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from topic_api_helpers import (
    EARLIEST,
    LATEST,
    NEWEST,
    FakeServices,
    create_topics,
    delete_topics,
    describe_cluster,
    fetch,
    init_producer_id,
    list_offsets,
    made,
    metadata,
    node,
    produce,
    produce_request,
)
from topics_helpers import TRANSACTIONAL_BIT, producer_batch

from callboard.actors.errors import ErrorCode
from callboard.runtime.settings.table import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

__all__ = ["node"]

BATCH_BYTES = len(producer_batch())


@pytest.fixture
def strict_node(tmp_path: Path) -> Iterator[FakeServices]:
    """Services whose settings forbid auto-creation of topics."""
    folder = tmp_path / "strict"
    folder.mkdir()
    strict = FakeServices(folder, auto_create_topics_enable=False)
    yield strict
    strict.topics.files.close()


# Metadata ------------------------------------------------------------------------------------------------------------


def names_of(response: Any) -> set[str]:
    return {topic.name for topic in response.topics}


def test_metadata_of_all_topics_and_of_none(node: FakeServices) -> None:
    made(node)
    assert names_of(metadata(node, None)) == {"plays", OFFSETS_TOPIC, TRANSACTIONS_TOPIC}
    assert names_of(metadata(node, [])) == set()
    assert names_of(metadata(node, [], version=0)) == {"plays", OFFSETS_TOPIC, TRANSACTIONS_TOPIC}


def test_metadata_of_unknown_topic_creates_and_returns_it(node: FakeServices) -> None:
    """Kafka answers UNKNOWN_TOPIC_OR_PARTITION to the first request and returns the topic to the next one."""
    [topic] = metadata(node, ["new"], create=True).topics
    assert (topic.error_code, len(topic.partitions)) == (0, node.settings.num_partitions)
    assert node.topics.get("new") is not None


def test_metadata_creates_topic_if_client_and_settings_allow_it(node: FakeServices, strict_node: FakeServices) -> None:
    for services, create in ((node, False), (strict_node, True)):
        [topic] = metadata(services, ["new"], create=create).topics
        assert (topic.error_code, topic.topic_id, topic.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None, ())
        assert services.topics.get("new") is None


@pytest.mark.parametrize("name", ["a/b", "", "x" * 250])
@pytest.mark.parametrize("create", [True, False])
def test_metadata_of_illegal_name_returns_invalid_topic(node: FakeServices, name: str, create: bool) -> None:
    [topic] = metadata(node, [name], create=create).topics
    assert (topic.name, topic.error_code) == (name, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_metadata_does_not_create_topic_with_colliding_name(node: FakeServices) -> None:
    made(node, "my.topic")
    [topic] = metadata(node, ["my_topic"], create=True).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_metadata_by_topic_id(node: FakeServices) -> None:
    topic = made(node)
    unknown_id = uuid4()
    known, unknown = metadata(node, [], ids=(topic.topic_id, unknown_id), create=True).topics
    assert (known.name, known.error_code) == ("plays", 0)
    assert (unknown.name, unknown.topic_id, unknown.error_code) == (None, unknown_id, ErrorCode.UNKNOWN_TOPIC_ID)


def test_metadata_by_topic_id_before_v12_is_refused(node: FakeServices) -> None:
    topic = made(node)
    for version in (10, 11):
        [refused] = metadata(node, [], ids=(topic.topic_id,), version=version).topics
        assert refused.error_code == ErrorCode.INVALID_REQUEST


def test_metadata_with_repeated_topic_returns_it_once(node: FakeServices) -> None:
    made(node)
    assert [topic.name for topic in metadata(node, ["plays", "plays"]).topics] == ["plays"]


@pytest.mark.parametrize(("name", "partitions"), [(OFFSETS_TOPIC, 3), (TRANSACTIONS_TOPIC, 50)])
def test_metadata_marks_coordinator_topics_as_internal(node: FakeServices, name: str, partitions: int) -> None:
    [topic] = metadata(node, [name]).topics
    assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (ErrorCode.NONE, True, partitions)
    [by_id] = metadata(node, [], version=12, ids=(topic.topic_id,)).topics
    assert by_id.name == name


def test_metadata_returns_all_authorized_operations_on_request(node: FakeServices) -> None:
    made(node)
    detailed = metadata(node, ["plays"], version=8, operations=True)
    assert (detailed.cluster_authorized_operations, detailed.topics[0].topic_authorized_operations) == (8096, 3576)
    default = metadata(node, ["plays"], version=8)
    operations = (default.cluster_authorized_operations, default.topics[0].topic_authorized_operations)
    assert operations == (-(2**31), -(2**31))


# CreateTopics and DeleteTopics ---------------------------------------------------------------------------------------

REFUSED_TOPICS: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "exists": ({"name": "plays"}, ErrorCode.TOPIC_ALREADY_EXISTS),
    "offsets topic": ({"name": OFFSETS_TOPIC}, ErrorCode.TOPIC_ALREADY_EXISTS),
    "internal topic": ({"name": "__cluster_metadata"}, ErrorCode.INVALID_REQUEST),
    "no partitions": ({"name": "new", "partitions": 0}, ErrorCode.INVALID_PARTITIONS),
    "negative partitions": ({"name": "new", "partitions": -2}, ErrorCode.INVALID_PARTITIONS),
    "too many partitions": ({"name": "new", "partitions": 10_001}, ErrorCode.POLICY_VIOLATION),
    "two replicas": ({"name": "new", "replicas": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
    "no replicas": ({"name": "new", "replicas": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
    "unknown setting": ({"name": "new", "configs": {"nonsense": "1"}}, ErrorCode.INVALID_CONFIG),
    "setting without value": ({"name": "new", "configs": {"retention.ms": None}}, ErrorCode.INVALID_CONFIG),
    "counts and assignment": ({"name": "new", "replicas": -1, "assignments": {0: (1,)}}, ErrorCode.INVALID_REQUEST),
}
REFUSED_ASSIGNMENTS: dict[str, dict[int, tuple[int, ...]]] = {
    "another broker": {0: (2,)},
    "missing partition": {1: (1,)},
    "no broker": {0: ()},
    "repeated broker": {0: (1, 1)},
}


@pytest.mark.parametrize(("new_topic", "code"), REFUSED_TOPICS.values(), ids=REFUSED_TOPICS)
def test_create_topics_refuses_invalid_topic(node: FakeServices, new_topic: dict[str, Any], code: ErrorCode) -> None:
    made(node)
    result = create_topics(node, new_topic)[new_topic["name"]]
    assert (result.error_code, result.topic_id, result.num_partitions) == (code, None, -1)
    assert result.error_message
    assert node.topics.get("new") is None


@pytest.mark.parametrize("assignments", REFUSED_ASSIGNMENTS.values(), ids=REFUSED_ASSIGNMENTS)
def test_create_topics_refuses_invalid_assignment(node: FakeServices, assignments: dict[int, tuple[int, ...]]) -> None:
    new_topic = {"name": "new", "partitions": -1, "replicas": -1, "assignments": assignments}
    assert create_topics(node, new_topic)["new"].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_create_topics_with_defaults_assignments_and_settings(node: FakeServices) -> None:
    results = create_topics(
        node,
        {"name": "default", "partitions": -1, "replicas": -1},
        {"name": "manual", "partitions": -1, "replicas": -1, "assignments": {1: (1,), 0: (1,), 2: (1,)}},
        {"name": "configured", "configs": {"retention.ms": "1000", "cleanup.policy": "compact"}},
    )
    assert {name: (result.error_code, result.num_partitions) for name, result in results.items()} == {
        "default": (0, node.settings.num_partitions),
        "manual": (0, 3),
        "configured": (0, 1),
    }


def test_create_topics_with_repeated_name_refuses_it_and_creates_others(node: FakeServices) -> None:
    results = create_topics(node, {"name": "twice"}, {"name": "twice"}, {"name": "once"})
    assert results["twice"].error_code == ErrorCode.INVALID_REQUEST
    assert results["once"].error_code == 0
    assert node.topics.get("twice") is None


def test_create_topics_limits_partitions_of_whole_request(node: FakeServices) -> None:
    results = create_topics(node, {"name": "half", "partitions": 6000}, {"name": "other", "partitions": 6000})
    assert {result.error_code for result in results.values()} == {ErrorCode.POLICY_VIOLATION}
    assert node.topics.get("half") is None


def test_create_topics_with_colliding_names_in_one_request(node: FakeServices) -> None:
    results = create_topics(node, {"name": "a.b"}, {"name": "a_b"})
    assert sorted(result.error_code for result in results.values()) == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_create_topics_validate_only_creates_nothing(node: FakeServices) -> None:
    made(node)
    results = create_topics(node, {"name": "new", "partitions": 4}, {"name": "plays"}, validate_only=True)
    assert (results["new"].error_code, results["new"].num_partitions) == (0, 4)
    assert results["plays"].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert node.topics.get("new") is None


def test_delete_topics_by_id_and_name_and_invalid_keys(node: FakeServices) -> None:
    first, second, third = (made(node, name) for name in ("first", "second", "third"))
    name_and_id = ("third", third.topic_id)
    assert [code for _, code in delete_topics(node, first.topic_id, "second", name_and_id, (None, None), uuid4())] == [
        0,
        0,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]
    assert [node.topics.by_id(topic.topic_id) for topic in (first, second, third)] == [None, None, third]


@pytest.mark.parametrize("version", [5, 6])
def test_delete_topics_with_repeated_topic_is_refused(node: FakeServices, version: int) -> None:
    topic = made(node)
    assert delete_topics(node, "plays", "plays", version=version) == [("plays", ErrorCode.INVALID_REQUEST)]
    if version == 6:
        assert {code for _, code in delete_topics(node, "plays", topic.topic_id)} == {ErrorCode.INVALID_REQUEST}
    assert node.topics.get("plays") is topic


@pytest.mark.parametrize("name", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
def test_delete_topics_of_coordinator_topics_is_refused(node: FakeServices, name: str) -> None:
    """Kafka deletes these topics, and with them all committed offsets."""
    assert delete_topics(node, name) == [(name, ErrorCode.INVALID_TOPIC_EXCEPTION)]
    assert not node.deleted_topics


# Produce -------------------------------------------------------------------------------------------------------------


def test_produce_to_invalid_topic_or_partition_is_refused(node: FakeServices) -> None:
    made(node)
    assert produce(node, "nobody", producer_batch(), version=12).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(node, "plays", producer_batch(), topic_id=uuid4()).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert produce(node, "nobody", producer_batch()).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    for partition in (2, -1):
        response = produce(node, "plays", producer_batch(), partition=partition)
        assert response.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for internal_topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        assert produce(node, internal_topic, producer_batch()).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (producer_batch(magic=1), ErrorCode.INVALID_RECORD),
        (producer_batch(value=b"x" * 1_048_600), ErrorCode.MESSAGE_TOO_LARGE),
        (producer_batch(attributes=TRANSACTIONAL_BIT), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_produce_with_invalid_records_is_refused(node: FakeServices, records: bytes | None, code: ErrorCode) -> None:
    topic = made(node)
    response = produce(node, "plays", records)
    assert (response.error_code, response.base_offset) == (code, -1)
    assert response.error_message
    assert topic.partitions[0].end_offset == 0


@pytest.mark.parametrize("acks", [2, -2])
def test_produce_with_invalid_acks_is_refused(node: FakeServices, acks: int) -> None:
    topic = made(node)
    assert produce(node, "plays", producer_batch(), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert topic.partitions[0].end_offset == 0


def test_produce_with_acks_0_gets_no_response(node: FakeServices) -> None:
    topic = made(node)
    call = produce_request(node, "plays", producer_batch(), acks=0)
    assert call.is_silent
    assert not call.connection.is_closed
    assert topic.partitions[0].end_offset == 1


def test_produce_error_with_acks_0_closes_connection(node: FakeServices) -> None:
    """A request with acks=0 has no response that could report the error."""
    call = produce_request(node, "nobody", producer_batch(), acks=0)
    assert call.is_silent
    assert call.connection.is_closed


def test_idempotent_produce_accepts_retry_and_refuses_sequence_gap(node: FakeServices) -> None:
    made(node)
    producer_id = init_producer_id(node).producer_id
    first, second, with_gap = (producer_batch(producer=(producer_id, 0, sequence)) for sequence in (0, 1, 7))
    assert [produce(node, "plays", batch).base_offset for batch in (first, second, first, second)] == [0, 1, 0, 1]
    refused = produce(node, "plays", with_gap)
    assert (refused.error_code, refused.base_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert len(records_of(node, "plays")) == 2 * BATCH_BYTES


def records_of(node: FakeServices, name: str) -> bytes:
    [partition] = fetch(node, (name, 0, 0))
    records: bytes = partition.records
    return records


@pytest.mark.parametrize(("transactional_id", "producer"), [("", (-1, -1)), (None, (5, -1)), (None, (-1, 5))])
def test_init_producer_id_with_invalid_request_is_refused(
    node: FakeServices, transactional_id: str | None, producer: tuple[int, int]
) -> None:
    assert init_producer_id(node, transactional_id, producer).error_code == ErrorCode.INVALID_REQUEST


def test_init_producer_id_for_next_epoch_returns_new_id(node: FakeServices) -> None:
    old = init_producer_id(node)
    new = init_producer_id(node, producer=(old.producer_id, old.producer_epoch))
    assert (new.error_code, new.producer_epoch) == (0, 0)
    assert new.producer_id > old.producer_id


# ListOffsets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("time", "first"), [(NEWEST, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 99)], ids=str)
def test_list_offsets_with_negative_timestamp_before_its_version(node: FakeServices, time: int, first: int) -> None:
    made(node).append(0, producer_batch(2, timestamps=[5, 4]))
    expected = {NEWEST: (5, 0, 0), -4: (-1, 0, 0), -5: (-1, -1, -1), -6: (-1, -1, -1)}
    for version in range(4, 12):
        response = list_offsets(node, "plays", time, version=version)
        result = (response.timestamp, response.offset, response.leader_epoch)
        if version < first:
            assert (response.error_code, result) == (ErrorCode.UNSUPPORTED_VERSION, (-1, -1, -1))
        else:
            assert (response.error_code, result) == (0, expected[time])


def test_list_offsets_of_empty_partition(node: FakeServices) -> None:
    made(node)
    for time, offset, epoch in ((LATEST, 0, 0), (EARLIEST, 0, 0), (NEWEST, -1, -1), (5, -1, -1)):
        response = list_offsets(node, "plays", time)
        assert (response.error_code, response.offset, response.leader_epoch) == (0, offset, epoch)


def test_list_offsets_of_invalid_partition_is_refused(node: FakeServices) -> None:
    made(node)
    assert list_offsets(node, "nobody", LATEST).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offsets(node, "plays", LATEST, partition=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offsets(node, "plays", LATEST, EARLIEST).error_code == ErrorCode.INVALID_REQUEST


# DescribeCluster -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("endpoint_type", "code"), [(2, 114), (3, 115)])
def test_describe_cluster_for_controllers_is_refused(node: FakeServices, endpoint_type: int, code: int) -> None:
    response = describe_cluster(node, endpoint_type)
    assert (response.error_code, response.cluster_id, response.brokers) == (code, "", ())
    assert response.error_message


def test_describe_cluster_returns_authorized_operations_on_request(node: FakeServices) -> None:
    assert describe_cluster(node, operations=True).cluster_authorized_operations == 8096
    assert describe_cluster(node).cluster_authorized_operations == -(2**31)
