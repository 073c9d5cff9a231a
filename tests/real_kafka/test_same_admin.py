"""Settings and partitions, asked of our server and of a real Kafka: the same answers where both have the setting.

Kafka's group settings cannot be changed while it runs, ours can; so what is compared is everything else: shapes,
defaults, types, sources, refusals.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from peers.waiting import wait_until
from topics_helpers import producer_batch

from .kafka import TEST_SETTINGS
from .paired_requests import metadata_values
from .side_by_side import PairedConnection, PairedValue, SideBySide

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
# What our topics, which lie in memory, have differently, or Kafka sets by itself for every cluster.
OTHER_TOPIC_SETTINGS = {"retention.bytes", "min.insync.replicas"}
# Some Kafka may change and we look at only once; and each has an address of its own.
OTHER_BROKER_SETTINGS = {"message.max.bytes", "log.flush.interval.ms", "log.roll.ms", "advertised.listeners"}


@pytest.fixture
def connection(side_by_side: SideBySide) -> PairedConnection:
    return side_by_side.connection()


@pytest.fixture
def topic(connection: PairedConnection) -> str:
    """A topic with two partitions that both servers have and show."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    new = {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    connection.ask("create_topics", 4, topics=[new], timeout=30_000, validate_only=False)
    is_shown(connection, name, 2)
    return name


def is_shown(connection: PairedConnection, topic: str, partitions: int) -> None:
    asked = metadata_values([{"name": topic}])

    def counts() -> list[int]:
        answers = connection.ask_uncompared("metadata", 9, **asked)
        return [len(side["topics"][0]["partitions"]) for side in (answers.ours, answers.theirs)]

    wait_until(counts, lambda found: found == [partitions] * 2, "the topic's partitions")


# DescribeConfigs -----------------------------------------------------------------------------------------------------


def describe(
    connection: PairedConnection, version: int, resource_type: int, name: Any, keys: list[str] | None = None
) -> PairedValue:
    """Both answers as they are; the documentation is each one's own."""
    asked = {"resource_type": resource_type, "resource_name": name, "configuration_keys": keys}
    answers = connection.ask_uncompared(
        "describe_configs", version, resources=[asked], include_synonyms=True, include_documentation=False
    )
    return PairedValue(*({**side, "results": list(side["results"])} for side in (answers.ours, answers.theirs)))


def compare_common(connection: PairedConnection, answers: PairedValue, without: set[str]) -> int:
    """Compare the settings that both have; returns how many."""
    tables = [{one["name"]: one for one in side["results"][0]["configs"]} for side in (answers.ours, answers.theirs)]
    common = (tables[0].keys() & tables[1].keys()) - without
    connection.compare("settings", PairedValue(*({name: table[name] for name in common} for table in tables)))
    return len(common)


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs_of_topic(connection: PairedConnection, topic: str, version: int) -> None:
    """All that Kafka has for a topic, with its defaults, types and synonyms."""
    answers = describe(connection, version, TOPIC, topic)
    names = [{one["name"] for one in side["results"][0]["configs"]} for side in (answers.ours, answers.theirs)]
    assert names[0] == names[1]
    assert compare_common(connection, answers, OTHER_TOPIC_SETTINGS) == len(names[0]) - len(OTHER_TOPIC_SETTINGS)


@pytest.mark.parametrize("version", range(5, 8))
@pytest.mark.parametrize("validate_only", [False, True])
def test_create_topics_returns_settings(connection: PairedConnection, version: int, validate_only: bool) -> None:
    """KIP-525. Who asks only whether it could be made hears the same."""
    new = {"num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    topics = [new | {"name": f"made-{uuid.uuid4().hex[:8]}"}, new | {"name": "not a name"}]
    answers = connection.ask_uncompared(
        "create_topics", version, topics=topics, timeout=30_000, validate_only=validate_only
    )
    sides = [{one["name"]: one["configs"] for one in side["topics"]} for side in (answers.ours, answers.theirs)]
    made, refused = ([side[topic["name"]] for side in sides] for topic in topics)
    tables = [{one["name"]: one for one in configs if one["name"] not in OTHER_TOPIC_SETTINGS} for configs in made]
    connection.compare("settings", PairedValue(*tables))
    assert len(tables[0]) > 20
    connection.compare("no settings", PairedValue(*({"configs": configs} for configs in refused)))


def is_described(answers: PairedValue) -> bool:
    return all(side["results"][0]["error_code"] == "NONE" for side in (answers.ours, answers.theirs))


@pytest.mark.parametrize(("key_type", "name"), [(0, "__consumer_offsets"), (1, "__transaction_state")])
def test_describe_configs_of_internal_topics(connection: PairedConnection, key_type: int, name: str) -> None:
    """They are compacted: nobody who looks may think that records go with time."""
    connection.ask_uncompared(
        "find_coordinator", 1, key="any", key_type=key_type
    )  # Kafka makes each when somebody needs it
    answers = wait_until(lambda: describe(connection, 4, TOPIC, name), is_described, "the topic")
    names = {one["name"] for one in answers.theirs["results"][0]["configs"]}
    assert compare_common(connection, answers, OTHER_TOPIC_SETTINGS) == len(names) - len(OTHER_TOPIC_SETTINGS)


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs_of_broker(connection: PairedConnection, version: int) -> None:
    """What cannot be changed in either; what a test's server is started with comes from its file."""
    answers = describe(connection, version, BROKER, "1")
    changeable = {one["name"] for one in answers.ours["results"][0]["configs"] if not one["read_only"]}
    unlike = changeable | OTHER_BROKER_SETTINGS | set(TEST_SETTINGS) | {"num.partitions"}
    assert compare_common(connection, answers, unlike) >= 7


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
    """Unknown names are left out; an empty list asks for all."""
    connection.compare("describe", describe(connection, 4, TOPIC, topic, ["cleanup.policy", "no.such.thing"]))
    connection.compare("describe", describe(connection, 4, BROKER, "1", ["no.such.thing"]))
    answers = describe(connection, 4, TOPIC, topic, [])
    assert len(answers.ours["results"][0]["configs"]) == len(answers.theirs["results"][0]["configs"])


# Changes -------------------------------------------------------------------------------------------------------------


def change(resource_type: int, name: str, *configs: tuple[str, int, str | None]) -> dict[str, Any]:
    made = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in configs]
    return {"resource_type": resource_type, "resource_name": name, "configs": made}


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
@pytest.mark.parametrize("asked", REFUSED, ids=str)
def test_incremental_alter_configs_refusals(connection: PairedConnection, version: int, asked: dict[str, Any]) -> None:
    connection.ask("incremental_alter_configs", version, resources=[asked], validate_only=False)


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("asked", [one for one in REFUSED if "'config_operation': 0" in str(one)], ids=str)
def test_alter_configs_refusals(connection: PairedConnection, version: int, asked: dict[str, Any]) -> None:
    connection.ask("alter_configs", version, resources=[asked], validate_only=False)


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
    asked = [{"name": name, "count": count, "assignments": assignments} for name, count, assignments in topics]
    connection.ask("create_partitions", version, topics=asked, timeout=30_000, validate_only=only_check)


@pytest.mark.parametrize("version", range(4))
def test_create_partitions(connection: PairedConnection, topic: str, version: int) -> None:
    brokers: tuple[list[int], ...] = ([1], [55], [])
    here, nowhere, none = ({"broker_ids": ids} for ids in brokers)
    grow(connection, version, (topic, 3, None), only_check=True)
    is_shown(connection, topic, 2)
    for count in (2, 1, 0, -1):
        grow(connection, version, (topic, count, None))
    for assignments in ([], [here], [here, here, here], [here, nowhere], [none, here]):
        grow(connection, version, (topic, 4, assignments))
    grow(connection, version, ("never-made", 3, None), ("", 3, None))
    grow(connection, version, (topic, 4, None), (topic, 5, None))
    grow(connection, version, (topic, 4, [here, here]))
    is_shown(connection, topic, 4)
    grow(connection, version, (topic, 5, None), ("never-made", 2, None))
    is_shown(connection, topic, 5)
    connection.ask("list_offsets", 7, replica_id=-1, isolation_level=0, topics=[ends_of(topic)])


def ends_of(topic: str) -> dict[str, Any]:
    parts = [{"partition_index": index, "current_leader_epoch": -1, "timestamp": -1} for index in (0, 4, 5)]
    return {"name": topic, "partitions": parts}


# DeleteRecords -------------------------------------------------------------------------------------------------------


def delete(connection: PairedConnection, version: int, *topics: tuple[str, dict[int, int]]) -> None:
    asked = [
        {"name": name, "partitions": [{"partition_index": index, "offset": offset} for index, offset in wanted.items()]}
        for name, wanted in topics
    ]
    connection.ask("delete_records", version, topics=asked, timeout=30_000)


def is_produced(answer: dict[str, Any]) -> bool:
    return bool(answer["responses"][0]["partition_responses"][0]["error_code"] == "NONE")


def first_of(topic: str) -> dict[str, Any]:
    return {"name": topic, "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -2}]}


@pytest.mark.parametrize("version", range(3))
def test_delete_records(connection: PairedConnection, topic: str, version: int) -> None:
    """The second half of a batch stays; beyond the end, below zero and where nothing is, nothing is done."""
    connection.ask_uncompared(
        "find_coordinator", 1, key="any", key_type=0
    )  # Kafka makes its own topic when somebody needs it
    records = {"name": topic, "partition_data": [{"index": 0, "records": producer_batch(4)}]}
    values = {"transactional_id": None, "acks": 1, "timeout": 30_000, "topic_data": [records]}
    connection.ask_until(is_produced, "produce", 7, **values)
    for offset in (2, 1, 0, 9, -2, 4, -1, -1):
        delete(connection, version, (topic, {0: offset}))
        connection.ask("list_offsets", 7, replica_id=-1, isolation_level=0, topics=[first_of(topic)])
    for name, partition in ((topic, 7), (topic, -1), ("never-made", 0), ("__consumer_offsets", 0)):
        delete(connection, version, (name, {partition: 0}))
