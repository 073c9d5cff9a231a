"""Settings of groups in DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources.

The answers are those of Kafka 4.3.1, which has settings of share groups and of Streams too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from authorizers import DenyingAuthorizer, Rule
from consumer_requests import beat, join
from harness import Client, async_test, running_node, versions

from callboard.runtime.security.resources import Operation, ResourceType

GROUP, TOPIC, BROKER, LOGGER, METRICS = 32, 2, 4, 8, 16
SET, DELETE, APPEND, SUBTRACT = range(4)
SESSION, HEARTBEAT, ASSIGNMENT = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)

Outcome = tuple[str, str | None]


async def alter(client: Client, *changes: tuple[str, int, str | None], group: str = "g", **values: Any) -> Outcome:
    configs = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in changes]
    resource = {"resource_type": GROUP, "resource_name": group, "configs": configs}
    values = {"validate_only": False, **values}
    [result] = (await client.ask("incremental_alter_configs", resources=[resource], **values))["responses"]
    return result["error_code"], result["error_message"]


async def replace(client: Client, **texts: str) -> Outcome:
    configs = [{"name": f"consumer.{name.replace('_', '.')}", "value": text} for name, text in texts.items()]
    resource = {"resource_type": GROUP, "resource_name": "g", "configs": configs}
    [result] = (await client.ask("alter_configs", resources=[resource], validate_only=False))["responses"]
    return result["error_code"], result["error_message"]


async def describe(client: Client, *keys: str, group: str = "g", version: int = 4) -> dict[str, Any]:
    resource = {"resource_type": GROUP, "resource_name": group, "configuration_keys": list(keys) or None}
    response = await client.ask(
        "describe_configs", version, resources=[resource], include_synonyms=True, include_documentation=True
    )
    [result] = response["results"]
    assert result["error_code"] == "NONE"
    return {config["name"]: config for config in result["configs"]}


async def values_of(client: Client) -> list[tuple[str, str, int]]:
    return [(name, each["value"], each["config_source"]) for name, each in (await describe(client)).items()]


@async_test
async def test_group_without_settings_has_those_of_the_server(tmp_path: Path) -> None:
    async with running_node(tmp_path, group_consumer_assignment_interval_ms=7) as harness:
        client = await harness.connect()
        expected = [(HEARTBEAT, "5000", 5), (SESSION, "45000", 5), (ASSIGNMENT, "7", 4)]
        assert await values_of(client) == expected
        for version in versions("describe_configs"):
            [shown] = (await describe(client, SESSION, version=version)).values()
            assert shown["synonyms"] == [{"name": f"group.{SESSION}", "value": "45000", "source": 5}]
            assert (shown["read_only"], shown.get("config_type", 3), shown["is_sensitive"]) == (False, 3, False)
        assert await describe(client, "nope") == {}


@async_test
async def test_settings_of_a_group_are_changed_described_and_kept(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        assert await alter(client, (SESSION, SET, " 50000 "), (HEARTBEAT, SET, "6000")) == ("NONE", None)
        await harness.restart()
        client = await harness.connect()
        own = (await describe(client, SESSION))[SESSION]
        assert (own["value"], own["config_source"]) == ("50000", 8)
        assert own["synonyms"] == [
            {"name": SESSION, "value": "50000", "source": 8},
            {"name": f"group.{SESSION}", "value": "45000", "source": 5},
        ]
        assert await replace(client, heartbeat_interval_ms="7000") == ("NONE", None)
        assert await values_of(client) == [(HEARTBEAT, "7000", 8), (SESSION, "45000", 5), (ASSIGNMENT, "1000", 5)]
        assert await alter(client, (HEARTBEAT, DELETE, None), ("nope", DELETE, None)) == ("NONE", None)
        assert await values_of(client) == [(HEARTBEAT, "5000", 5), (SESSION, "45000", 5), (ASSIGNMENT, "1000", 5)]


@async_test
async def test_invalid_changes_of_a_group_change_nothing(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        no_list = f"Can't APPEND to key {SESSION} because its type is not LIST."
        low = f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms"
        for changes, expected in (
            ([(HEARTBEAT, SET, "6000"), (SESSION, SET, "1000")], ("INVALID_CONFIG", low)),
            ([("nope", SET, "1")], ("INVALID_CONFIG", "Unknown group config name: nope")),
            (
                [(SESSION, APPEND, "1")],
                ("INVALID_CONFIG", no_list),
            ),
            ([(SESSION, SET, None)], ("INVALID_REQUEST", f"Null value not supported for : {SESSION}")),
        ):
            assert await alter(client, *changes) == expected
            assert await alter(client, *changes, validate_only=True) == expected
        assert await alter(client, (SESSION, SET, "50000"), group="") == (
            "INVALID_REQUEST",
            "Default group resources are not allowed.",
        )
        assert await alter(client, (SESSION, SET, "50000"), validate_only=True) == ("NONE", None)
        assert {source for _, _, source in await values_of(client)} == {5}
        [result] = (
            await client.ask(
                "describe_configs",
                resources=[{"resource_type": GROUP, "resource_name": "", "configuration_keys": None}],
                include_synonyms=True,
                include_documentation=True,
            )
        )["results"]
        assert (result["error_code"], result["error_message"]) == ("INVALID_REQUEST", "Group name must not be empty")


@async_test
async def test_settings_of_a_group_take_effect_at_once(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        for group in ("g", "h"):
            assert (await join(client, "a", "t", group_id=group))["heartbeat_interval"] == 5000
        assert await alter(client, (HEARTBEAT, SET, "6000"), (ASSIGNMENT, SET, "0")) == ("NONE", None)
        intervals = [(await beat(client, "a", 2, group_id=group))["heartbeat_interval"] for group in ("g", "h")]
        assert intervals == [6000, 5000]
        epochs = [(await join(client, "b", "t", group_id=group))["member_epoch"] for group in ("g", "h")]
        assert epochs == [3, 2], "the second group waits for its assignment interval"


@async_test
async def test_resources_with_settings_are_listed(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        await alter(client, (SESSION, SET, "50000"))

        async def listed(*types: int, version: int = 1) -> tuple[str, list[tuple[str, int | None]]]:
            answer = await client.ask("list_config_resources", version, resource_types=list(types))
            resources = [(each["resource_name"], each.get("resource_type")) for each in answer["config_resources"]]
            return answer["error_code"], resources

        topics = [(name, TOPIC) for name in ("__consumer_offsets", "__transaction_state", "t", "u")]
        groups, loggers, brokers = [("g", GROUP)], [("1", LOGGER)], [("1", BROKER)]
        error, everything = await listed()
        assert (error, everything[:3]) == ("NONE", [*groups, *loggers, *brokers])
        assert sorted(everything[3:]) == topics
        assert await listed(GROUP) == ("NONE", groups)
        assert await listed(BROKER, METRICS, GROUP) == ("NONE", [*groups, *brokers])
        assert await listed(GROUP, 99) == ("UNSUPPORTED_VERSION", [])
        assert await listed(version=0) == ("NONE", [])


@async_test
async def test_denied_client_gets_no_list_of_resources(tmp_path: Path) -> None:
    authorizer = DenyingAuthorizer(Rule(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER))
    async with running_node(tmp_path, authorizer=authorizer) as harness:
        client = await harness.connect()
        answer = await client.ask("list_config_resources", 1, resource_types=[])
        assert (answer["error_code"], answer["config_resources"]) == ("CLUSTER_AUTHORIZATION_FAILED", [])
