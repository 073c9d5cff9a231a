"""Limits of single listeners change while the server runs, by Kafka's names."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from harness import Client, async_test, running_node

from callboard.runtime.settings.dynamic import FILE_NAME, ConfigSource, find_dynamic, kafka_name
from callboard.runtime.settings.listener_limits import find_limit
from callboard.runtime.settings.listeners import Listener

BROKER, SET, DELETE = 4, 0, 1
LIMIT, RATE = "max_connections", "max_connection_creation_rate"
OWN_LIMIT = "listener.name.sasl_ssl.max.connections"
OWN_RATE = "listener.name.sasl_ssl.max.connection.creation.rate"
OF_MY_OWN = "listener.name.my-own.max.connections"
LISTENERS = (
    Listener(settings={}),
    Listener("SASL_SSL", settings={LIMIT: "5"}),
    Listener("MY-OWN", settings={RATE: "6"}),
)
OPTIONS: Any = {"listeners": LISTENERS}


async def alter(client: Client, *changes: tuple[str, str | None], resource: str = "1") -> tuple[str, str]:
    """Change settings; None deletes a change. Returns the error code and message."""
    configs = [
        {"name": name, "config_operation": DELETE if value is None else SET, "value": value} for name, value in changes
    ]
    resources = [{"resource_type": BROKER, "resource_name": resource, "configs": configs}]
    answer: Any = await client.ask("incremental_alter_configs", resources=resources, validate_only=False)
    [result] = answer["responses"]
    return result["error_code"], result["error_message"] or ""


async def described(client: Client, *names: str, resource: str = "1") -> dict[str, Any]:
    resources = [{"resource_type": BROKER, "resource_name": resource, "configuration_keys": list(names) or None}]
    answer: Any = await client.ask(
        "describe_configs", resources=resources, include_synonyms=True, include_documentation=True
    )
    [result] = answer["results"]
    return {config["name"]: config for config in result["configs"] if config["name"].startswith("listener.name.")}


def in_effect(harness: Any) -> tuple[int, int]:
    limits = harness.node.configs.listener_limits
    return limits.max_connections("SASL_SSL"), limits.creation_rate("SASL_SSL")


@pytest.mark.parametrize("name", [OWN_LIMIT, "listener_name_sasl_ssl_max_connections"])
def test_limit_of_a_listener_is_found_by_kafkas_name_and_ours(name: str) -> None:
    row = find_dynamic(name)
    assert row is not None and row.is_dynamic
    assert (row.name, kafka_name(row.name)) == ("listener_name_sasl_ssl_max_connections", OWN_LIMIT)


@pytest.mark.parametrize(
    "name", ["listener.name.max.connections", "listener.name.a.ssl.client.auth", "max.connections", "listener.name.a."]
)
def test_other_names_are_no_limits_of_listeners(name: str) -> None:
    assert find_limit(name) is None


@async_test
async def test_change_of_a_limit_is_in_effect_and_survives_a_restart_until_it_is_deleted(tmp_path: Path) -> None:
    async with running_node(tmp_path, OPTIONS) as harness:
        assert in_effect(harness)[0] == 5
        client = await harness.connect()
        assert await alter(client, (OWN_LIMIT, "70"), (OWN_RATE, "80")) == ("NONE", "")
        assert in_effect(harness) == (70, 80)
        await harness.restart()
        assert in_effect(harness) == (70, 80)
        client = await harness.connect()
        assert await alter(client, (OWN_LIMIT, None), (OWN_RATE, None)) == ("NONE", "")
        assert in_effect(harness) == (5, 2**31 - 1)


@async_test
async def test_change_for_this_broker_overrides_that_for_all_brokers(tmp_path: Path) -> None:
    async with running_node(tmp_path, OPTIONS) as harness:
        client = await harness.connect()
        assert await alter(client, (OWN_LIMIT, "8"), resource="") == ("NONE", "")
        assert in_effect(harness)[0] == 8
        assert await alter(client, (OWN_LIMIT, "9")) == ("NONE", "")
        assert in_effect(harness)[0] == 9
        config = (await described(client, OWN_LIMIT))[OWN_LIMIT]
        assert (config["value"], config["config_source"], config["config_type"]) == ("9", ConfigSource.BROKER, 3)
        assert config["read_only"], "as a real Kafka 4.3.1 says"
        assert [(each["name"], each["value"], each["source"]) for each in config["synonyms"]] == [
            (OWN_LIMIT, "9", ConfigSource.BROKER),
            (OWN_LIMIT, "8", ConfigSource.ALL_BROKERS),
            (OWN_LIMIT, "5", ConfigSource.STATIC),
            ("max.connections", "2147483647", ConfigSource.DEFAULT),
        ]
        assert (await described(client, resource=""))[OWN_LIMIT]["value"] == "8"


@async_test
async def test_limits_that_were_given_or_changed_are_described(tmp_path: Path) -> None:
    async with running_node(tmp_path, OPTIONS) as harness:
        client = await harness.connect()
        rate = "listener.name.my-own.max.connection.creation.rate"
        assert set(await described(client)) == {OWN_LIMIT, rate}
        assert await alter(client, (OF_MY_OWN, "3")) == ("NONE", "")
        assert set(await described(client)) == {OWN_LIMIT, rate, OF_MY_OWN}
        assert harness.node.configs.listener_limits.max_connections("MY-OWN") == 3


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (OWN_LIMIT, "0", f"invalid value 0 for configuration {OWN_LIMIT}: value must be at least 1"),
        (OWN_RATE, "0", f"invalid value 0 for configuration {OWN_RATE}: value must be at least 1"),
        (OWN_LIMIT, "few", "not a number of type INT"),
        (OWN_LIMIT, "2147483648", "value must be no more than 2147483647"),
        ("listener.name.other.max.connections", "4", "expected one of the listeners PLAINTEXT, SASL_SSL, MY-OWN"),
        ("listener.name.sasl_ssl.ssl.client.auth", "none", "Cannot update these configs dynamically"),
    ],
)
@async_test
async def test_bad_change_of_a_limit_is_refused(tmp_path: Path, name: str, value: str, message: str) -> None:
    async with running_node(tmp_path, OPTIONS) as harness:
        code, text = await alter(await harness.connect(), ("group.max.size", "7"), (name, value))
        assert code == "INVALID_REQUEST" and message in text
        assert in_effect(harness)[0] == 5
        assert harness.node.settings.group_max_size != 7, "nothing of a refused request is changed"


@async_test
async def test_saved_limit_of_a_listener_that_is_gone_is_logged_and_can_be_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with running_node(tmp_path, OPTIONS) as harness:
        assert await alter(await harness.connect(), (OWN_LIMIT, "70")) == ("NONE", "")
    caplog.clear()
    async with running_node(tmp_path) as harness:
        assert "is of a listener that does not exist" in caplog.text
        client = await harness.connect()
        assert await alter(client, ("group.max.size", "7")) == ("NONE", "")
        assert await described(client) == {}
        assert await alter(client, (OWN_LIMIT, None)) == ("NONE", "")
        assert OWN_LIMIT not in (tmp_path / FILE_NAME).read_text()
        assert json.loads((tmp_path / FILE_NAME).read_text())["broker"] == {"group_max_size": 7}


@async_test
async def test_saved_limit_that_overrides_the_given_one_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with running_node(tmp_path, OPTIONS) as harness:
        assert await alter(await harness.connect(), (OWN_LIMIT, "70")) == ("NONE", "")
        assert "in_effect_before='5' in_effect_now='70'" in caplog.text
        caplog.clear()
        await harness.restart()
        assert "a saved setting overrides the given one" in caplog.text
        assert "listener_name_sasl_ssl_max_connections" in caplog.text
