"""Settings and partitions of our server and of a real Kafka: equal responses for settings that both have.

Our group settings can be changed at run time, Kafka's cannot; they are not compared. Everything else is: fields,
defaults, types, sources, errors.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from peers.waiting import wait_until
from topics_helpers import producer_batch

from .kafka import TEST_SETTINGS
from .paired_requests import create_topic, wait_until_led
from .side_by_side import PairedConnection, PairedValue, SideBySide

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
# These differ because our topics are in memory, or because Kafka sets them for every cluster.
OTHER_TOPIC_SETTINGS = {"retention.bytes", "min.insync.replicas"}
# Kafka can change some of these at run time, we read them only at the start; the addresses differ; Kafka does not limit
# the bytes of waiting requests by default; a smaller receive buffer ends an overload sooner (docs/limits.md).
OTHER_BROKER_SETTINGS = {
    *("message.max.bytes", "log.flush.interval.ms", "log.roll.ms", "advertised.listeners"),
    *("queued.max.request.bytes", "socket.receive.buffer.bytes"),
}


@pytest.fixture
def connection(side_by_side: SideBySide) -> PairedConnection:
    return side_by_side.connection()


@pytest.fixture
def topic(connection: PairedConnection) -> str:
    """A topic with two partitions on both servers, with leaders."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    create_topic(connection, name, partitions=2)
    return name


# DescribeConfigs -----------------------------------------------------------------------------------------------------


def describe(
    connection: PairedConnection, version: int, resource_type: int, name: Any, keys: list[str] | None = None
) -> PairedValue:
    """Return both responses, not compared and without documentation."""
    resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": keys}
    answers = connection.ask_uncompared(
        "describe_configs", version, resources=[resource], include_synonyms=True, include_documentation=False
    )
    return PairedValue(*({**side, "results": list(side["results"])} for side in (answers.ours, answers.theirs)))


def compare_common(connection: PairedConnection, answers: PairedValue, without: set[str]) -> int:
    """Compare the settings that both servers have; return their number."""
    tables = [
        {setting["name"]: setting for setting in side["results"][0]["configs"]}
        for side in (answers.ours, answers.theirs)
    ]
    common = (tables[0].keys() & tables[1].keys()) - without
    connection.compare("settings", PairedValue(*({name: table[name] for name in common} for table in tables)))
    return len(common)


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs_of_topic(connection: PairedConnection, topic: str, version: int) -> None:
    """All topic settings of Kafka, with defaults, types and synonyms."""
    answers = describe(connection, version, TOPIC, topic)
    names = [{setting["name"] for setting in side["results"][0]["configs"]} for side in (answers.ours, answers.theirs)]
    assert names[0] == names[1]
    assert compare_common(connection, answers, OTHER_TOPIC_SETTINGS) == len(names[0]) - len(OTHER_TOPIC_SETTINGS)


@pytest.mark.parametrize("version", range(5, 8))
@pytest.mark.parametrize("validate_only", [False, True])
def test_create_topics_returns_settings(connection: PairedConnection, version: int, validate_only: bool) -> None:
    """KIP-525. The same with validate_only."""
    new = {"num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    topics = [new | {"name": f"made-{uuid.uuid4().hex[:8]}"}, new | {"name": "not a name"}]
    answers = connection.ask_uncompared(
        "create_topics", version, topics=topics, timeout=30_000, validate_only=validate_only
    )
    sides = [{item["name"]: item["configs"] for item in side["topics"]} for side in (answers.ours, answers.theirs)]
    created, refused = ([side[topic["name"]] for side in sides] for topic in topics)
    tables = [
        {item["name"]: item for item in configs if item["name"] not in OTHER_TOPIC_SETTINGS} for configs in created
    ]
    connection.compare("settings", PairedValue(*tables))
    assert len(tables[0]) > 20
    connection.compare("no settings", PairedValue(*({"configs": configs} for configs in refused)))


def is_described(answers: PairedValue) -> bool:
    return all(side["results"][0]["error_code"] == "NONE" for side in (answers.ours, answers.theirs))


@pytest.mark.parametrize(("key_type", "name"), [(0, "__consumer_offsets"), (1, "__transaction_state")])
def test_describe_configs_of_internal_topics(connection: PairedConnection, key_type: int, name: str) -> None:
    """These topics are compacted, so their settings must not show a retention by time."""
    connection.ask_uncompared(
        "find_coordinator", 1, key="any", key_type=key_type
    )  # Kafka creates these topics on demand
    answers = wait_until(lambda: describe(connection, 4, TOPIC, name), is_described, "the topic")
    names = {setting["name"] for setting in answers.theirs["results"][0]["configs"]}
    assert compare_common(connection, answers, OTHER_TOPIC_SETTINGS) == len(names) - len(OTHER_TOPIC_SETTINGS)


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs_of_broker(connection: PairedConnection, version: int) -> None:
    """Settings that neither server can change, without those in the properties file of the test."""
    answers = describe(connection, version, BROKER, "1")
    changeable = {setting["name"] for setting in answers.ours["results"][0]["configs"] if not setting["read_only"]}
    excluded = changeable | OTHER_BROKER_SETTINGS | set(TEST_SETTINGS) | {"num.partitions"}
    assert compare_common(connection, answers, excluded) >= 7


@pytest.mark.parametrize(
    ("resource_type", "name"),
    [
        *[(BROKER, "9"), (BROKER, "x"), (TOPIC, "never-made"), (TOPIC, ""), (TOPIC, "a b"), (77, "x")],
        *[(LOGGER, "9"), (LOGGER, "x"), (LOGGER, ""), (GROUP, "")],
    ],
)
def test_describe_configs_of_unknown_resources(connection: PairedConnection, resource_type: int, name: str) -> None:
    connection.compare("describe", describe(connection, 4, resource_type, name))


def test_describe_configs_with_names(connection: PairedConnection, topic: str) -> None:
    """Unknown names are omitted; an empty list requests all settings."""
    connection.compare("describe", describe(connection, 4, TOPIC, topic, ["cleanup.policy", "no.such.thing"]))
    connection.compare("describe", describe(connection, 4, BROKER, "1", ["no.such.thing"]))
    answers = describe(connection, 4, TOPIC, topic, [])
    assert len(answers.ours["results"][0]["configs"]) == len(answers.theirs["results"][0]["configs"])


# Changes -------------------------------------------------------------------------------------------------------------


def change(resource_type: int, name: str, *configs: tuple[str, int, str | None]) -> dict[str, Any]:
    changes = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in configs]
    return {"resource_type": resource_type, "resource_name": name, "configs": changes}


REFUSED = [
    change(BROKER, "1", ("socket.request.max.bytes", SET, "5")),
    change(BROKER, "1", ("offsets.topic.num.partitions", SET, "5")),
    change(BROKER, "", ("offsets.topic.num.partitions", SET, "5")),
    change(BROKER, "9", ("message.max.bytes", SET, "5")),
    change(BROKER, "x", ("message.max.bytes", SET, "5")),
    change(BROKER, "1", ("message.max.bytes", SET, None)),
    change(BROKER, "1", ("message.max.bytes", APPEND, "5")),
    change(BROKER, "1", ("message.max.bytes", SUBTRACT, "5")),
    change(BROKER, "1", ("message.max.bytes", 7, "5")),
    change(BROKER, "1", ("message.max.bytes", SET, "5"), ("message.max.bytes", DELETE, None)),
    change(BROKER, "1"),
    change(TOPIC, "never-made", ("retention.ms", SET, "5")),
    change(TOPIC, "not a name", ("retention.ms", SET, "5")),
    change(TOPIC, "", ("retention.ms", SET, "5")),
    change(77, "x", ("retention.ms", SET, "5")),
    change(GROUP, "g", ("no.such", SET, "5")),
    change(GROUP, "g"),
    change(GROUP, "", ("consumer.session.timeout.ms", SET, "50000")),
    change(LOGGER, "1", ("no.such", SET, "DEBUG")),
    change(LOGGER, "1"),
    change(LOGGER, "9", ("root", SET, "INFO")),
    change(LOGGER, "", ("root", SET, "INFO")),
]


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("resource", REFUSED, ids=str)
def test_incremental_alter_configs_refusals(
    connection: PairedConnection, version: int, resource: dict[str, Any]
) -> None:
    connection.ask("incremental_alter_configs", version, resources=[resource], validate_only=False)


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("resource", [one for one in REFUSED if "'config_operation': 0" in str(one)], ids=str)
def test_alter_configs_refusals(connection: PairedConnection, version: int, resource: dict[str, Any]) -> None:
    connection.ask("alter_configs", version, resources=[resource], validate_only=False)


def test_alter_configs_with_repeated_resource(connection: PairedConnection) -> None:
    connection.ask(
        "incremental_alter_configs", 1, resources=[change(BROKER, "1"), change(BROKER, "1")], validate_only=False
    )
    connection.ask(
        "incremental_alter_configs", 1, resources=[change(BROKER, "1"), change(BROKER, "")], validate_only=False
    )
    connection.ask("incremental_alter_configs", 1, resources=[], validate_only=False)


def test_alter_configs_with_unknown_topic_setting(connection: PairedConnection, topic: str) -> None:
    connection.ask(
        "incremental_alter_configs", 1, resources=[change(TOPIC, topic, ("nope", SET, "5"))], validate_only=False
    )
    connection.ask("incremental_alter_configs", 1, resources=[change(TOPIC, topic)], validate_only=False)


# CreatePartitions ----------------------------------------------------------------------------------------------------


def grow(
    connection: PairedConnection, version: int, *topics: tuple[str, int, list[Any] | None], only_check: bool = False
) -> None:
    request_topics = [{"name": name, "count": count, "assignments": assignments} for name, count, assignments in topics]
    connection.ask("create_partitions", version, topics=request_topics, timeout=30_000, validate_only=only_check)


@pytest.mark.parametrize("version", range(4))
def test_create_partitions(connection: PairedConnection, topic: str, version: int) -> None:
    brokers: tuple[list[int], ...] = ([1], [55], [])
    known, unknown, empty = ({"broker_ids": ids} for ids in brokers)
    grow(connection, version, (topic, 3, None), only_check=True)
    wait_until_led(connection, topic, 2)
    for count in (2, 1, 0, -1):
        grow(connection, version, (topic, count, None))
    for assignments in ([], [known], [known, known, known], [known, unknown], [empty, known]):
        grow(connection, version, (topic, 4, assignments))
    grow(connection, version, ("never-made", 3, None), ("", 3, None))
    grow(connection, version, (topic, 4, None), (topic, 5, None))
    grow(connection, version, (topic, 4, [known, known]))
    wait_until_led(connection, topic, 4)
    grow(connection, version, (topic, 5, None), ("never-made", 2, None))
    wait_until_led(connection, topic, 5)
    connection.ask("list_offsets", 7, replica_id=-1, isolation_level=0, topics=[ends_of(topic)])


def ends_of(topic: str) -> dict[str, Any]:
    partitions = [{"partition_index": index, "current_leader_epoch": -1, "timestamp": -1} for index in (0, 4, 5)]
    return {"name": topic, "partitions": partitions}


# DeleteRecords -------------------------------------------------------------------------------------------------------


def delete(connection: PairedConnection, version: int, *topics: tuple[str, dict[int, int]]) -> None:
    request_topics = [
        {
            "name": name,
            "partitions": [{"partition_index": index, "offset": offset} for index, offset in offsets.items()],
        }
        for name, offsets in topics
    ]
    connection.ask("delete_records", version, topics=request_topics, timeout=30_000)


def is_produced(answer: dict[str, Any]) -> bool:
    return bool(answer["responses"][0]["partition_responses"][0]["error_code"] == "NONE")


def first_of(topic: str) -> dict[str, Any]:
    return {"name": topic, "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -2}]}


@pytest.mark.parametrize("version", range(3))
def test_delete_records(connection: PairedConnection, topic: str, version: int) -> None:
    """Part of a batch may be deleted. Offsets beyond the end or below -1 and unknown partitions are refused."""
    connection.ask_uncompared("find_coordinator", 1, key="any", key_type=0)  # Kafka creates its offsets topic on demand
    records = {"name": topic, "partition_data": [{"index": 0, "records": producer_batch(4)}]}
    values = {"transactional_id": None, "acks": 1, "timeout": 30_000, "topic_data": [records]}
    connection.ask_until(is_produced, "produce", 7, **values)
    for offset in (2, 1, 0, 9, -2, 4, -1, -1):
        delete(connection, version, (topic, {0: offset}))
        connection.ask("list_offsets", 7, replica_id=-1, isolation_level=0, topics=[first_of(topic)])
    for name, partition in ((topic, 7), (topic, -1), ("never-made", 0), ("__consumer_offsets", 0)):
        delete(connection, version, (name, {partition: 0}))
