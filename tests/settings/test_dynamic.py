"""Settings that change while the server runs: at once, durably, and never to what makes no sense."""

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
from callboard.runtime.settings.table import BY_NAME, DYNAMIC, SETTINGS, Settings

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
MAX_SIZE = BY_NAME["group_max_size"]


def opened(folder: Path, **static: Any) -> DynamicSettings:
    configs = DynamicSettings(Settings(**static))
    configs.load(folder)
    return configs


# Where a value comes from --------------------------------------------------------------------------------------------


def test_dynamic_value_precedence_is_broker_all_brokers_static_default(tmp_path: Path) -> None:
    configs = opened(tmp_path, group_max_size=7)
    settings = configs.settings
    assert (settings.group_max_size, [one.value for one in configs.synonyms(MAX_SIZE)]) == (7, ["7", "2147483647"])
    change(configs, {}, {"group_max_size": 8})
    assert settings.group_max_size == 8
    change(configs, {"group_max_size": 9}, {"group_max_size": 8})
    assert settings.group_max_size == 9, "whoever holds the settings sees the change"
    assert [(one.value, one.source) for one in configs.synonyms(MAX_SIZE)] == [
        ("9", ConfigSource.BROKER),
        ("8", ConfigSource.ALL_BROKERS),
        ("7", ConfigSource.STATIC),
        ("2147483647", ConfigSource.DEFAULT),
    ]
    change(configs, {}, {})
    assert settings.group_max_size == 7


def test_changes_survive_restart_with_other_command_line(tmp_path: Path) -> None:
    change(opened(tmp_path), {"group_max_size": 9}, {"offsets_retention_minutes": 65})
    again = opened(tmp_path, group_max_size=100, offsets_retention_minutes=100, num_partitions=3).settings
    assert (again.group_max_size, again.offsets_retention_minutes, again.num_partitions) == (9, 65, 3)


def test_rejected_change_has_no_effect(tmp_path: Path) -> None:
    """Neither in memory nor in the file. Alone each is fine: two contradict each other."""
    configs = opened(tmp_path)
    change(configs, {"group_min_session_timeout_ms": 5000}, {})
    before = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(
        InvalidSetting, match="group_min_session_timeout_ms=5000 is above group_max_session_timeout_ms=4000"
    ):
        change(configs, configs.broker, {"group_max_session_timeout_ms": 4000})
    assert configs.settings.group_max_session_timeout_ms == 1_800_000
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_change_with_failed_write_has_no_effect(tmp_path: Path) -> None:
    configs = opened(tmp_path)
    (tmp_path / f"{FILE_NAME}.new").mkdir()
    with pytest.raises(OSError):
        change(configs, {"group_max_size": 9}, {})
    assert configs.settings.group_max_size == MAX_SIZE.default
    assert configs.broker == {}


def test_check_does_not_write_the_file(tmp_path: Path) -> None:
    configs = opened(tmp_path)
    configs.check({"group_max_size": 9}, {})
    assert configs.settings.group_max_size == MAX_SIZE.default
    assert list(tmp_path.iterdir()) == []


def test_saved_settings_with_any_flipped_bit_are_refused_or_the_same(tmp_path: Path) -> None:
    """A changed digit would be another setting: offsets may expire by it."""
    change(opened(tmp_path), {"offsets_retention_minutes": 20160}, {})
    path = tmp_path / FILE_NAME
    data, refused = path.read_bytes(), 0
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            assert opened(tmp_path).settings.offsets_retention_minutes == 20160, f"bit {bit}"
        except StartError:
            refused += 1
    assert refused > 6 * len(data)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "are invalid"),
        ("{}", "'version'"),
        ('{"version": 3, "broker": {}, "default": {}}', "has version 3: expected at most 2"),
        ('{"version": 2, "broker": {}, "default": {}}', "found checksum None, expected '"),
        ('{"version": "x", "broker": {}, "default": {}}', "version 'x', expected 2"),
        ('{"version": 1, "broker": []}', "are invalid"),
        ('{"version": 1, "broker": {}, "default": {"group_max_sise": 3}}', "'group_max_sise' is not a dynamic setting"),
        ('{"version": 1, "broker": {"num_partitions": 3}, "default": {}}', "'num_partitions' is not a dynamic setting"),
        ('{"version": 1, "broker": {"group_max_size": "3"}, "default": {}}', "group_max_size is '3', expected a whole"),
        ('{"version": 1, "broker": {"group_max_size": true}, "default": {}}', "group_max_size is true, expected"),
        ('{"version": 1, "broker": {"group_max_size": 0}, "default": {}}', "must be at least 1"),
        ('{"version": 1, "broker": {"group_min_session_timeout_ms": 2000000}, "default": {}}', "is above group_max"),
    ],
)
def test_start_with_invalid_settings_file_is_refused(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    with pytest.raises(StartError) as caught:
        opened(tmp_path)
    assert str(tmp_path / FILE_NAME) in str(caught.value)
    assert says in str(caught.value)


def test_start_with_unreadable_settings_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(StartError, match="cannot read the changed settings"):
        opened(tmp_path)


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


# Through the front door ----------------------------------------------------------------------------------------------


async def alter(client: Client, name: str, *changes: tuple[str, int, str | None]) -> str:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": BROKER, "resource_name": name, "configs": configs}
    answer = await client.ask("incremental_alter_configs", resources=[resource], validate_only=False)
    [one] = answer["responses"]
    code: str = one["error_code"]
    return code


async def described(client: Client, resource_type: int, name: str, *keys: str) -> dict[str, dict[str, Any]]:
    resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": list(keys) or None}
    answer = await client.ask(
        "describe_configs", resources=[resource], include_synonyms=True, include_documentation=True
    )
    [result] = answer["results"]
    assert result["error_code"] == "NONE"
    return {one["name"]: one for one in result["configs"]}


@async_test
async def test_incremental_alter_configs_applies_at_once_and_after_restart(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        assert await alter(client, "1", ("group.min.session.timeout.ms", SET, "30001")) == "NONE"
        assert (await client.ask("join_group", **join_values("g")))["error_code"] == "INVALID_SESSION_TIMEOUT"
        await harness.restart()
        client = await harness.connect()
        assert (await client.ask("join_group", **join_values("g")))["error_code"] == "INVALID_SESSION_TIMEOUT"
        assert await alter(client, "", ("group.min.session.timeout.ms", SET, "30000")) == "NONE"
        assert (await client.ask("join_group", **join_values("g")))["error_code"] == "INVALID_SESSION_TIMEOUT"
        assert await alter(client, "1", ("group.min.session.timeout.ms", DELETE, None)) == "NONE"
        assert (await client.ask("join_group", **join_values("g")))["error_code"] == "MEMBER_ID_REQUIRED"
        assert json.loads((tmp_path / FILE_NAME).read_text()) == {
            "version": 2,
            "broker": {},
            "default": {"group_min_session_timeout_ms": 30000},
            "checksum": "7d0f3c82",
        }


@async_test
async def test_changed_retention_check_interval_applies_to_next_scan(tmp_path: Path) -> None:
    """An empty group without offsets goes with the next sweep: soon, and not in ten minutes."""
    async with running_node(tmp_path, {"unsafe_settings": True}) as harness:
        client = await harness.connect()
        await client.ask("offset_commit", 8, **commit_values("g"))
        place = [{"name": "t", "partitions": [{"partition_index": 0}]}]
        await client.ask("offset_delete", group_id="g", topics=place)
        assert await listed(client) == ["g"]
        assert await alter(client, "1", ("offsets.retention.check.interval.ms", SET, "20")) == "NONE"
        while await listed(client):
            pass
        assert await offsets(client, "g") == {}


async def listed(client: Client) -> list[str]:
    answer = await client.ask("list_groups", states_filter=[], types_filter=[])
    return [one["group_id"] for one in answer["groups"]]


@async_test
async def test_describe_configs_returns_all_broker_settings(tmp_path: Path) -> None:
    """All of them, with Kafka's names, where they come from, whether they change, and what they are for."""
    async with running_node(tmp_path, num_partitions=5) as harness:
        client = await harness.connect()
        await alter(client, "", ("group.max.size", SET, "8"))
        await alter(client, "1", ("group.max.size", SET, "9"))
        found = await described(client, BROKER, "1")
        assert found.keys() == {"node.id", "advertised.listeners", *(kafka_name(setting.name) for setting in SETTINGS)}
        for setting in SETTINGS:
            one = found[kafka_name(setting.name)]
            assert one["documentation"] == setting.doc
            assert one["read_only"] is not setting.is_dynamic
            assert one["synonyms"][-1]["value"] == str(setting.default).lower()
        size = found["group.max.size"]
        assert (size["value"], size["config_source"], size["config_type"]) == ("9", ConfigSource.BROKER, 3)
        assert [one["value"] for one in size["synonyms"]] == ["9", "8", "2147483647"]
        partitions = found["num.partitions"]
        assert (partitions["value"], partitions["config_source"], partitions["read_only"]) == (
            "5",
            ConfigSource.STATIC,
            True,
        )
        for_all = await described(client, BROKER, "")
        assert {name: one["value"] for name, one in for_all.items()} == {"group.max.size": "8"}
        assert list(await described(client, BROKER, "1", "group.max.size", "no.such")) == ["group.max.size"]


@async_test
async def test_describe_configs_of_topic_returns_server_settings(tmp_path: Path) -> None:
    async with running_node(tmp_path, topic_retention_bytes=1000, message_max_bytes=77) as harness:
        client = await harness.connect()
        found = await described(client, TOPIC, "t")
        assert len(found) == 33
        kept = found["retention.bytes"]
        assert (kept["value"], kept["config_source"]) == ("1000", ConfigSource.STATIC)
        assert [one["name"] for one in kept["synonyms"]] == ["topic.retention.bytes"] * 2
        assert (found["max.message.bytes"]["value"], found["cleanup.policy"]["value"]) == ("77", "delete")


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
    ],
)
@async_test
async def test_alter_and_describe_configs_reject_invalid_requests(
    tmp_path: Path, name: str, change: tuple[str, int, str | None], code: str
) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        assert await alter(client, name, change) == code
        before = Settings(group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=4)
        assert asdict(harness.node.settings) == asdict(before)
        assert not (tmp_path / FILE_NAME).exists()


GROUP, LOGGER = 32, 8


@pytest.mark.parametrize(
    ("resource_type", "name", "key", "code"),
    [
        (GROUP, "g", None, "NONE"),
        (GROUP, "g", "consumer.session.timeout.ms", "INVALID_CONFIG"),
        (GROUP, "", None, "INVALID_REQUEST"),
        (LOGGER, "1", None, "NONE"),
        (LOGGER, "1", "root", "INVALID_CONFIG"),
        (LOGGER, "2", "root", "INVALID_REQUEST"),
        (LOGGER, "x", None, "INVALID_REQUEST"),
        (LOGGER, "", None, "INVALID_REQUEST"),
    ],
)
@async_test
async def test_describe_configs_of_groups_and_loggers_is_empty(
    tmp_path: Path, resource_type: int, name: str, key: str | None, code: str
) -> None:
    """What is not described cannot be changed either; names are looked at as Kafka does."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        if key is None:
            asked = {"resource_type": resource_type, "resource_name": name, "configuration_keys": None}
            answer = await client.ask(
                "describe_configs", resources=[asked], include_synonyms=True, include_documentation=True
            )
            [result] = answer["results"]
            assert (result["error_code"], result["configs"]) == (code, [])
        configs = [] if key is None else [{"name": key, "config_operation": SET, "value": "50000"}]
        change = {"resource_type": resource_type, "resource_name": name, "configs": configs}
        answer = await client.ask("incremental_alter_configs", resources=[change], validate_only=False)
        assert answer["responses"][0]["error_code"] == code


@async_test
async def test_describe_configs_shows_compact_policy_for_internal_topics_only(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        wanted = ("cleanup.policy", "retention.bytes", "segment.bytes")
        for topic in ("__consumer_offsets", "__transaction_state"):
            settings = await described(client, TOPIC, topic, *wanted)
            assert [settings[name]["value"] for name in wanted] == ["compact", "-1", "104857600"]
            assert {one["config_source"] for one in settings.values()} == {1}, "a topic's own"
            assert settings["cleanup.policy"]["synonyms"][1]["value"] == "delete", "what other topics have"
        assert (await described(client, TOPIC, "t", "cleanup.policy"))["cleanup.policy"]["value"] == "delete"


@async_test
async def test_alter_configs_replaces_all_changes(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        await alter(client, "1", ("group.max.size", SET, "9"))
        configs = [{"name": "offsets.retention.minutes", "value": "65"}]
        resource = {"resource_type": BROKER, "resource_name": "1", "configs": configs}
        for validate_only in (True, False):
            assert harness.node.settings.group_max_size == 9
            answer = await client.ask("alter_configs", resources=[resource], validate_only=validate_only)
            assert answer["responses"][0]["error_code"] == "NONE"
        assert harness.node.settings.group_max_size == MAX_SIZE.default
        assert harness.node.settings.offsets_retention_minutes == 65


# Partitions ----------------------------------------------------------------------------------------------------------


async def grow(client: Client, topic: str, count: int) -> str:
    asked = {"name": topic, "count": count, "assignments": None}
    answer = await client.ask("create_partitions", topics=[asked], timeout=1000, validate_only=False)
    code: str = answer["results"][0]["error_code"]
    return code


@async_test
async def test_create_partitions_applies_at_once_and_after_restart(tmp_path: Path) -> None:
    """And those that were there end where they ended, though their ends have moved in the file."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        raise_ends(harness)
        assert await grow(client, "t", 5) == "NONE"
        await client.ask("offset_commit", 8, **commit_values("g", topics=commits(4)))
        assert await offsets(client, "g") == {("t", 4): 42}
        assert ends(harness) == [7, 8, 9, 0, 0]
        assert await grow(client, "u", 600) == "NONE"
        await harness.restart()
        assert ends(harness) == [7, 8, 9, 0, 42], "a committed offset was once read"
        client = await harness.connect()
        assert await grow(client, "t", 5) == "INVALID_PARTITIONS"
        assert await grow(client, "t", 6) == "NONE"
        assert await grow(client, "t", 10_001) == "POLICY_VIOLATION"
        assert await grow(client, "__consumer_offsets", 100) == "INVALID_TOPIC_EXCEPTION"


def raise_ends(harness: NodeHarness) -> None:
    for partition in range(3):
        harness.node.topics.raise_end("t", partition, 7 + partition)


def ends(harness: NodeHarness) -> list[int]:
    topic = harness.node.topics.get("t")
    assert topic is not None
    return [log.end_offset for log in topic.partitions]


def commits(partition: int) -> list[dict[str, Any]]:
    one = {"partition_index": partition, "committed_offset": 42, "committed_metadata": "", "committed_leader_epoch": -1}
    return [{"name": "t", "partitions": [one]}]


@async_test
async def test_create_partitions_with_failed_write_has_no_effect(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        raise_ends(harness)
        (tmp_path / "topics.json.new").mkdir()
        assert await grow(client, "t", 5) == "KAFKA_STORAGE_ERROR"
        assert ends(harness) == [7, 8, 9]
        (tmp_path / "topics.json.new").rmdir()
        await harness.restart()
        assert ends(harness) == [7, 8, 9]
        assert await grow(await harness.connect(), "t", 5) == "NONE"
