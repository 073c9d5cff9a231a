"""Dynamic settings: a change applies at once, survives a restart and is refused if it is invalid."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from harness import Client, NodeHarness, async_test, commit_values, join_values, offsets, running_node
from hypothesis import given
from hypothesis import strategies as st
from settings_helpers import change

from callboard.runtime.common.errors import StartError
from callboard.runtime.settings.dynamic import (
    FILE_NAME,
    ConfigSource,
    DynamicSettings,
    InvalidSetting,
    find_dynamic,
    kafka_name,
    parse,
)
from callboard.runtime.settings.rows import DYNAMIC
from callboard.runtime.settings.table import BY_NAME, SETTINGS, Settings

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
MAX_SIZE = BY_NAME["group_max_size"]


def load_settings(folder: Path, **static: Any) -> DynamicSettings:
    configs = DynamicSettings(Settings(**static))
    configs.load(folder)
    return configs


# Precedence and the file ---------------------------------------------------------------------------------------------


def test_dynamic_value_precedence_is_broker_all_brokers_static_default(tmp_path: Path) -> None:
    configs = load_settings(tmp_path, group_max_size=7)
    settings = configs.settings
    assert (settings.group_max_size, [synonym.value for synonym in configs.synonyms(MAX_SIZE)]) == (
        7,
        ["7", "2147483647"],
    )
    change(configs, {}, {"group_max_size": 8})
    assert settings.group_max_size == 8
    change(configs, {"group_max_size": 9}, {"group_max_size": 8})
    assert settings.group_max_size == 9, "the Settings object itself has changed"
    assert [(synonym.value, synonym.source) for synonym in configs.synonyms(MAX_SIZE)] == [
        ("9", ConfigSource.BROKER),
        ("8", ConfigSource.ALL_BROKERS),
        ("7", ConfigSource.STATIC),
        ("2147483647", ConfigSource.DEFAULT),
    ]
    change(configs, {}, {})
    assert settings.group_max_size == 7


def test_changes_survive_restart_with_other_command_line(tmp_path: Path) -> None:
    change(load_settings(tmp_path), {"group_max_size": 9}, {"offsets_retention_minutes": 65})
    again = load_settings(tmp_path, group_max_size=100, offsets_retention_minutes=100, num_partitions=3).settings
    assert (again.group_max_size, again.offsets_retention_minutes, again.num_partitions) == (9, 65, 3)


def test_rejected_change_has_no_effect(tmp_path: Path) -> None:
    """Neither memory nor the file changes. Each of the two values is valid alone, but they contradict each other."""
    configs = load_settings(tmp_path)
    change(configs, {"group_min_session_timeout_ms": 5000}, {})
    before = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(
        InvalidSetting, match="group_min_session_timeout_ms=5000 is above group_max_session_timeout_ms=4000"
    ):
        change(configs, configs.broker, {"group_max_session_timeout_ms": 4000})
    assert configs.settings.group_max_session_timeout_ms == 1_800_000
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_change_with_failed_write_has_no_effect(tmp_path: Path) -> None:
    configs = load_settings(tmp_path)
    (tmp_path / f"{FILE_NAME}.new").mkdir()
    with pytest.raises(OSError):
        change(configs, {"group_max_size": 9}, {})
    assert configs.settings.group_max_size == MAX_SIZE.default
    assert configs.broker == {}


def test_check_does_not_write_the_file(tmp_path: Path) -> None:
    configs = load_settings(tmp_path)
    configs.check({"group_max_size": 9}, {})
    assert configs.settings.group_max_size == MAX_SIZE.default
    assert list(tmp_path.iterdir()) == []


def test_saved_settings_with_any_flipped_bit_are_refused_or_the_same(tmp_path: Path) -> None:
    """A changed digit would be another valid value, and offsets could expire because of it."""
    change(load_settings(tmp_path), {"offsets_retention_minutes": 20160}, {})
    path = tmp_path / FILE_NAME
    data, refused_count = path.read_bytes(), 0
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            assert load_settings(tmp_path).settings.offsets_retention_minutes == 20160, f"bit {bit}"
        except StartError:
            refused_count += 1
    assert refused_count > 6 * len(data)


@pytest.mark.parametrize(
    ("content", "expected_text"),
    [
        ("", "are invalid"),
        ("{}", "'version'"),
        ('{"version": 4, "broker": {}, "default": {}}', "has version 4: expected at most 3"),
        ('{"version": 2, "broker": {}, "default": {}}', "found checksum None, expected '"),
        ('{"version": "x", "broker": {}, "default": {}}', "version 'x', expected 3"),
        ('{"version": 1, "broker": []}', "are invalid"),
        ('{"version": 1, "broker": {}, "default": {"group_max_sise": 3}}', "'group_max_sise' is not a dynamic setting"),
        ('{"version": 1, "broker": {"num_partitions": 3}, "default": {}}', "'num_partitions' is not a dynamic setting"),
        ('{"version": 1, "broker": {"group_max_size": "3"}, "default": {}}', "group_max_size is '3', expected a whole"),
        ('{"version": 1, "broker": {"group_max_size": true}, "default": {}}', "group_max_size is true, expected"),
        ('{"version": 1, "broker": {"group_max_size": 0}, "default": {}}', "must be at least 1"),
        ('{"version": 1, "broker": {"group_min_session_timeout_ms": 2000000}, "default": {}}', "is above group_max"),
    ],
)
def test_start_with_invalid_settings_file_is_refused(tmp_path: Path, content: str, expected_text: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    with pytest.raises(StartError) as raised:
        load_settings(tmp_path)
    assert str(tmp_path / FILE_NAME) in str(raised.value)
    assert expected_text in str(raised.value)


def test_start_with_unreadable_settings_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(StartError, match="cannot read the changed settings"):
        load_settings(tmp_path)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_find_dynamic_finds_dynamic_settings_only(setting: Any) -> None:
    assert find_dynamic(kafka_name(setting.name)) == (setting if setting.name in DYNAMIC else None)


@given(st.text(max_size=30) | st.integers().map(str))
def test_parse_checks_type_and_range(text: str) -> None:
    try:
        value = parse(MAX_SIZE, text)
    except InvalidSetting as error:
        assert str(error).startswith(f"invalid value {text[:80]} for configuration group.max.size: ")
    else:
        assert value == int(text)
        assert 1 <= value <= 2**31 - 1


# Requests ------------------------------------------------------------------------------------------------------------


async def alter_configs(client: Client, name: str, *changes: tuple[str, int, str | None]) -> str:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": BROKER, "resource_name": name, "configs": configs}
    response = await client.ask("incremental_alter_configs", resources=[resource], validate_only=False)
    [result] = response["responses"]
    code: str = result["error_code"]
    return code


async def describe_configs(client: Client, resource_type: int, name: str, *keys: str) -> dict[str, dict[str, Any]]:
    resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": list(keys) or None}
    response = await client.ask(
        "describe_configs", resources=[resource], include_synonyms=True, include_documentation=True
    )
    [result] = response["results"]
    assert result["error_code"] == "NONE"
    return {config["name"]: config for config in result["configs"]}


@async_test
async def test_incremental_alter_configs_applies_at_once_and_after_restart(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        assert await alter_configs(client, "1", ("group.min.session.timeout.ms", SET, "30001")) == "NONE"
        assert (await client.ask("join_group", **join_values("g")))["error_code"] == "INVALID_SESSION_TIMEOUT"
        await harness.restart()
        client = await harness.connect()
        assert (await client.ask("join_group", **join_values("g")))["error_code"] == "INVALID_SESSION_TIMEOUT"
        assert await alter_configs(client, "", ("group.min.session.timeout.ms", SET, "30000")) == "NONE"
        assert (await client.ask("join_group", **join_values("g")))["error_code"] == "INVALID_SESSION_TIMEOUT"
        assert await alter_configs(client, "1", ("group.min.session.timeout.ms", DELETE, None)) == "NONE"
        assert (await client.ask("join_group", **join_values("g")))["error_code"] == "MEMBER_ID_REQUIRED"
        assert json.loads((tmp_path / FILE_NAME).read_text()) == {
            "version": 2,
            "broker": {},
            "default": {"group_min_session_timeout_ms": 30000},
            "checksum": "7d0f3c82",
        }


@async_test
async def test_changed_retention_check_interval_applies_to_next_scan(tmp_path: Path) -> None:
    """The next retention scan, 20 ms later instead of 10 minutes, deletes an empty group without offsets."""
    async with running_node(tmp_path, {"unsafe_settings": True}) as harness:
        client = await harness.connect()
        await client.ask("offset_commit", 8, **commit_values("g"))
        topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
        await client.ask("offset_delete", group_id="g", topics=topics)
        assert await list_group_ids(client) == ["g"]
        assert await alter_configs(client, "1", ("offsets.retention.check.interval.ms", SET, "20")) == "NONE"
        while await list_group_ids(client):
            pass
        assert await offsets(client, "g") == {}


async def list_group_ids(client: Client) -> list[str]:
    response = await client.ask("list_groups", states_filter=[], types_filter=[])
    return [group["group_id"] for group in response["groups"]]


@async_test
async def test_describe_configs_returns_all_broker_settings(tmp_path: Path) -> None:
    """Each has Kafka's name, its source, its synonyms, its documentation and whether it is read-only."""
    async with running_node(tmp_path, num_partitions=5) as harness:
        client = await harness.connect()
        await alter_configs(client, "", ("group.max.size", SET, "8"))
        await alter_configs(client, "1", ("group.max.size", SET, "9"))
        configs = await describe_configs(client, BROKER, "1")
        assert configs.keys() == {
            "node.id",
            "advertised.listeners",
            *(kafka_name(setting.name) for setting in SETTINGS),
        }
        for setting in SETTINGS:
            config = configs[kafka_name(setting.name)]
            assert config["documentation"] == setting.doc
            assert config["read_only"] is not setting.is_dynamic
            assert config["synonyms"][-1]["value"] == str(setting.default).lower()
        max_size = configs["group.max.size"]
        assert (max_size["value"], max_size["config_source"], max_size["config_type"]) == ("9", ConfigSource.BROKER, 3)
        assert [synonym["value"] for synonym in max_size["synonyms"]] == ["9", "8", "2147483647"]
        partitions = configs["num.partitions"]
        assert (partitions["value"], partitions["config_source"], partitions["read_only"]) == (
            "5",
            ConfigSource.STATIC,
            True,
        )
        all_brokers = await describe_configs(client, BROKER, "")
        assert {name: config["value"] for name, config in all_brokers.items()} == {"group.max.size": "8"}
        assert list(await describe_configs(client, BROKER, "1", "group.max.size", "no.such")) == ["group.max.size"]


@async_test
async def test_describe_configs_of_topic_returns_server_settings(tmp_path: Path) -> None:
    async with running_node(tmp_path, topic_retention_bytes=1000, message_max_bytes=77) as harness:
        client = await harness.connect()
        configs = await describe_configs(client, TOPIC, "t")
        assert len(configs) == 33
        retention = configs["retention.bytes"]
        assert (retention["value"], retention["config_source"]) == ("1000", ConfigSource.STATIC)
        assert [synonym["name"] for synonym in retention["synonyms"]] == ["topic.retention.bytes"] * 2
        assert (configs["max.message.bytes"]["value"], configs["cleanup.policy"]["value"]) == ("77", "delete")


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("1", ("num.partitions", SET, "3"), "INVALID_REQUEST"),
        ("1", ("no.such.thing", SET, "3"), "INVALID_REQUEST"),
        ("1", ("group.max.size", SET, "x"), "INVALID_REQUEST"),
        ("1", ("group.max.size", SET, "0"), "INVALID_REQUEST"),
        ("1", ("group.max.size", SET, None), "INVALID_REQUEST"),
        ("1", ("group.max.size", 2, "1"), "INVALID_CONFIG"),
        ("1", ("group.max.size", 9, "1"), "INVALID_REQUEST"),
        ("1", ("group.max.session.timeout.ms", SET, "5999"), "INVALID_REQUEST"),
        ("2", ("group.max.size", SET, "3"), "INVALID_REQUEST"),
        ("one", ("group.max.size", SET, "3"), "INVALID_REQUEST"),
        ("0_1", ("group.max.size", SET, "3"), "INVALID_REQUEST"),
        (" 1", ("group.max.size", SET, "3"), "INVALID_REQUEST"),
        ("\u0661", ("group.max.size", SET, "3"), "INVALID_REQUEST"),
    ],
)
@async_test
async def test_alter_and_describe_configs_reject_invalid_requests(
    tmp_path: Path, name: str, change: tuple[str, int, str | None], code: str
) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        assert await alter_configs(client, name, change) == code
        before = Settings(group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=4)
        assert asdict(harness.node.settings) == asdict(before)
        assert not (tmp_path / FILE_NAME).exists()


LOGGER = 8


@pytest.mark.parametrize(
    ("resource_type", "name", "key", "code"),
    [
        (LOGGER, "1", None, "NONE"),
        (LOGGER, "1", "root", "INVALID_CONFIG"),
        (LOGGER, "2", "root", "INVALID_REQUEST"),
        (LOGGER, "x", None, "INVALID_REQUEST"),
        (LOGGER, "0_1", None, "INVALID_REQUEST"),
        (LOGGER, "", None, "INVALID_REQUEST"),
    ],
)
@async_test
async def test_describe_configs_of_loggers_is_empty(
    tmp_path: Path, resource_type: int, name: str, key: str | None, code: str
) -> None:
    """Configs that are not described cannot be changed either. Names are checked as Kafka checks them."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        if key is None:
            resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": None}
            response = await client.ask(
                "describe_configs", resources=[resource], include_synonyms=True, include_documentation=True
            )
            [result] = response["results"]
            assert (result["error_code"], result["configs"]) == (code, [])
        configs = [] if key is None else [{"name": key, "config_operation": SET, "value": "50000"}]
        change = {"resource_type": resource_type, "resource_name": name, "configs": configs}
        response = await client.ask("incremental_alter_configs", resources=[change], validate_only=False)
        assert response["responses"][0]["error_code"] == code


@async_test
async def test_describe_configs_shows_compact_policy_for_internal_topics_only(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        names = ("cleanup.policy", "retention.bytes", "segment.bytes")
        for topic in ("__consumer_offsets", "__transaction_state"):
            settings = await describe_configs(client, TOPIC, topic, *names)
            assert [settings[name]["value"] for name in names] == ["compact", "-1", "104857600"]
            assert {config["config_source"] for config in settings.values()} == {1}, "a config of the topic itself"
            assert settings["cleanup.policy"]["synonyms"][1]["value"] == "delete", "the default for other topics"
        assert (await describe_configs(client, TOPIC, "t", "cleanup.policy"))["cleanup.policy"]["value"] == "delete"


@async_test
async def test_alter_configs_replaces_all_changes(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        await alter_configs(client, "1", ("group.max.size", SET, "9"))
        configs = [{"name": "offsets.retention.minutes", "value": "65"}]
        resource = {"resource_type": BROKER, "resource_name": "1", "configs": configs}
        for validate_only in (True, False):
            assert harness.node.settings.group_max_size == 9
            response = await client.ask("alter_configs", resources=[resource], validate_only=validate_only)
            assert response["responses"][0]["error_code"] == "NONE"
        assert harness.node.settings.group_max_size == MAX_SIZE.default
        assert harness.node.settings.offsets_retention_minutes == 65


# Partitions ----------------------------------------------------------------------------------------------------------


async def create_partitions(client: Client, topic: str, count: int) -> str:
    new_partitions = {"name": topic, "count": count, "assignments": None}
    response = await client.ask("create_partitions", topics=[new_partitions], timeout=1000, validate_only=False)
    code: str = response["results"][0]["error_code"]
    return code


@async_test
async def test_create_partitions_applies_at_once_and_after_restart(tmp_path: Path) -> None:
    """The end offsets of the earlier partitions stay, although their slots in the file have moved."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        raise_ends(harness)
        assert await create_partitions(client, "t", 5) == "NONE"
        await client.ask("offset_commit", 8, **commit_values("g", topics=commits(4)))
        assert await offsets(client, "g") == {("t", 4): 42}
        assert ends(harness) == [7, 8, 9, 0, 0]
        assert await create_partitions(client, "u", 600) == "NONE"
        await harness.restart()
        assert ends(harness) == [7, 8, 9, 0, 42], "a topic ends at or above every committed offset"
        client = await harness.connect()
        assert await create_partitions(client, "t", 5) == "INVALID_PARTITIONS"
        assert await create_partitions(client, "t", 6) == "NONE"
        assert await create_partitions(client, "t", 10_001) == "POLICY_VIOLATION"
        assert await create_partitions(client, "__consumer_offsets", 100) == "INVALID_TOPIC_EXCEPTION"


def raise_ends(harness: NodeHarness) -> None:
    for partition in range(3):
        harness.node.topics.raise_end("t", partition, 7 + partition)


def ends(harness: NodeHarness) -> list[int]:
    topic = harness.node.topics.get("t")
    assert topic is not None
    return [log.end_offset for log in topic.partitions]


def commits(partition: int) -> list[dict[str, Any]]:
    commit = {
        "partition_index": partition,
        "committed_offset": 42,
        "committed_metadata": "",
        "committed_leader_epoch": -1,
    }
    return [{"name": "t", "partitions": [commit]}]


@async_test
async def test_create_partitions_with_failed_write_has_no_effect(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        raise_ends(harness)
        (tmp_path / "topics.json.new").mkdir()
        assert await create_partitions(client, "t", 5) == "KAFKA_STORAGE_ERROR"
        assert ends(harness) == [7, 8, 9]
        (tmp_path / "topics.json.new").rmdir()
        await harness.restart()
        assert ends(harness) == [7, 8, 9]
        assert await create_partitions(await harness.connect(), "t", 5) == "NONE"
