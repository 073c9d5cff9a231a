"""The admin clients of three libraries: settings, partitions, groups and offsets."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped, unused-ignore]
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin.config_resource import (  # type: ignore[import-untyped, unused-ignore]
    ConfigResource as AioResource,
)
from aiokafka.admin.config_resource import ConfigResourceType
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from kafka_python_marks import KAFKA_PYTHON

confluent: Any = import_module("confluent_kafka.admin")  # its stubs export nothing

# A server for each test: they change its settings, and list all its groups.
pytestmark = [*KAFKA_PYTHON, pytest.mark.usefixtures("server")]

GROUP, TOPIC = "group", "topic"
PATIENCE_S = 30


@pytest.fixture
def admin(bootstrap: str) -> Any:
    """librdkafka's admin client, and a topic with two partitions."""
    admin = confluent.AdminClient({"bootstrap.servers": bootstrap})
    settled(admin.create_topics([confluent.NewTopic(TOPIC, 2, 1)]))
    return admin


def settled(futures: Any) -> list[Any]:
    return [future.result(PATIENCE_S) for future in futures.values()]


def settings(admin: Any, kind: str, name: str) -> dict[str, Any]:
    [found] = settled(admin.describe_configs([confluent.ConfigResource(kind, name)]))
    return {name: entry.value for name, entry in found.items()}


def change(admin: Any, setting: str, value: str | None) -> None:
    operation = confluent.AlterConfigOpType.DELETE if value is None else confluent.AlterConfigOpType.SET
    entry = confluent.ConfigEntry(setting, value or "", incremental_operation=operation)
    settled(admin.incremental_alter_configs([confluent.ConfigResource("BROKER", "1", incremental_configs=[entry])]))


def moved(*offsets: int) -> ConsumerGroupTopicPartitions:
    places = [TopicPartition(TOPIC, partition, offset) for partition, offset in enumerate(offsets)]
    return ConsumerGroupTopicPartitions(GROUP, places)


def test_librdkafka_changes_and_resets_a_setting(admin: Any) -> None:
    assert settings(admin, "BROKER", "1")["group.max.size"] == "2147483647"
    change(admin, "group.max.size", "250")
    assert settings(admin, "BROKER", "1")["group.max.size"] == "250"
    change(admin, "group.max.size", None)
    assert settings(admin, "BROKER", "1")["group.max.size"] == "2147483647"
    with pytest.raises(KafkaException, match="Cannot update these configs dynamically"):
        change(admin, "num.partitions", "3")


def test_librdkafka_describes_a_topic_and_adds_partitions(admin: Any) -> None:
    assert settings(admin, "TOPIC", TOPIC)["cleanup.policy"] == "delete"
    settled(admin.create_partitions([confluent.NewPartitions(TOPIC, 5)]))
    assert len(admin.list_topics(TOPIC).topics[TOPIC].partitions) == 5


def test_librdkafka_lists_groups_resets_offsets_and_deletes_groups(admin: Any, bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 5)], asynchronous=False)
    consumer.close()
    for states, expected in ({ConsumerGroupState.EMPTY}, [GROUP]), ({ConsumerGroupState.STABLE}, []):
        listed = admin.list_consumer_groups(states=states).result(PATIENCE_S)
        assert [one.group_id for one in listed.valid] == expected
    settled(admin.alter_consumer_group_offsets([moved(3, 4)]))
    [found] = settled(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)]))
    assert sorted((one.partition, one.offset) for one in found.topic_partitions) == [(0, 3), (1, 4)]
    settled(admin.delete_consumer_groups([GROUP]))
    assert admin.list_consumer_groups().result(PATIENCE_S).valid == []


def test_aiokafka_changes_settings_and_adds_partitions(admin: Any, bootstrap: str) -> None:
    async def scenario() -> None:
        client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await client.start()
        try:
            broker = AioResource(ConfigResourceType.BROKER, "1", configs={"offsets.retention.minutes": "90"})
            await client.alter_configs([broker])
            [answer] = await client.describe_configs([AioResource(ConfigResourceType.BROKER, "1")])
            [(_code, _message, _type, _name, entries)] = answer.resources
            assert {entry[0]: entry[1] for entry in entries}["offsets.retention.minutes"] == "90"
            await client.create_partitions({TOPIC: AioNewPartitions(4)})
        finally:
            await client.close()

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S))
    assert settings(admin, "BROKER", "1")["offsets.retention.minutes"] == "90"
    assert len(admin.list_topics(TOPIC).topics[TOPIC].partitions) == 4


def test_kafka_python_changes_settings_topics_groups_and_offsets(admin: Any, bootstrap: str) -> None:
    kafka: Any = import_module("kafka")  # not at the top, since it raises deprecation warnings
    resource, client = kafka.admin.ConfigResource, kafka.admin.KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        client.alter_configs([resource("BROKER", "1", {"group.max.size": "9"})])
        found = client.describe_configs([resource("BROKER", "1", ["group.max.size"])])
        assert "'9'" in str(found)
        client.reset_configs([resource("BROKER", "1", ["group.max.size"])])
        assert settings(admin, "BROKER", "1")["group.max.size"] == "2147483647"
        client.create_partitions({TOPIC: 3})
        assert len(admin.list_topics(TOPIC).topics[TOPIC].partitions) == 3
        settled(admin.alter_consumer_group_offsets([moved(3)]))
        place = kafka.TopicPartition(TOPIC, 0)
        assert client.list_group_offsets(GROUP)[GROUP][place].offset == 3
        assert "NoError" in str(client.delete_group_offsets(GROUP, [place]))
        assert client.list_group_offsets(GROUP)[GROUP] == {}
    finally:
        client.close()
