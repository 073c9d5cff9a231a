"""Dynamic settings: parsing, dangerous values, clients that may change them, and the log of a change."""

from __future__ import annotations

import json
import logging
import socket
import struct
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from authorizers import DenyingAuthorizer, Rule
from harness import Client, MemoryTransport, async_test, commit_values, frame, offsets, running_node
from peers.wire import FRAME_SIZE, encode
from program_helpers import refusal
from settings_helpers import change

from callboard.runtime.common.errors import StartError
from callboard.runtime.embed.coordinator import Coordinator
from callboard.runtime.kafka.connections.connection import Connection
from callboard.runtime.security.resources import Operation, ResourceType
from callboard.runtime.settings.address import is_loopback
from callboard.runtime.settings.dynamic import FILE_NAME, DynamicSettings, InvalidSetting, kafka_name, parse
from callboard.runtime.settings.load import load
from callboard.runtime.settings.rows import DYNAMIC
from callboard.runtime.settings.table import BY_NAME, SETTINGS, Settings, load_settings

BROKER, SET, DELETE = 4, 0, 1
RATIO = BY_NAME["log_cleaner_min_cleanable_ratio"]
UNSAFE = {
    "offsets_retention_minutes": 59,
    "offsets_retention_check_interval_ms": 999,
    "log_cleaner_backoff_ms": 999,
}


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def load_dynamic(
    folder: Path, given_by: dict[str, str] | None = None, *, ignore: bool = False, **static: Any
) -> DynamicSettings:
    configs = DynamicSettings(Settings(**static), given_by)
    configs.load(folder, ignore=ignore)
    return configs


async def alter_configs(
    client: Client, *change_lines: tuple[str, str | None], api: str = "incremental_alter_configs"
) -> tuple[str, str]:
    """Change settings of broker 1; a value of None deletes the change. Returns the error code and message."""
    operations = {} if api == "alter_configs" else {"config_operation": SET}
    configs = [{"name": name, "value": value, **operations} for name, value in change_lines]
    for config in configs:
        if config["value"] is None:
            config["config_operation"] = DELETE
    resource = {"resource_type": BROKER, "resource_name": "1", "configs": configs}
    response = await client.ask(api, resources=[resource], validate_only=False)
    [result] = response["responses"]
    return result["error_code"], result["error_message"] or ""


# One parser ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", [BY_NAME[name] for name in sorted(DYNAMIC)], ids=lambda setting: setting.name)
@pytest.mark.parametrize(
    "text", ["0", "1", "0.3", "0.30", "1.0", "-1", "60", "5000000", "1e3", "nan", "true", "", " 7 ", "x"]
)
def test_dynamic_value_is_parsed_like_static_value(setting: Any, text: str) -> None:
    """A value that the command line accepts has the same value and type as a dynamic value."""
    try:
        static: Any = getattr(load_settings({}, [f"{setting.name}={text}"]), setting.name)
    except StartError as error:
        if "is above" in str(error):
            return  # the two session timeouts contradict each other
        with pytest.raises(InvalidSetting):
            parse(setting, text)
        return
    dynamic = parse(setting, text)
    assert (dynamic, type(dynamic)) == (static, type(static))


@pytest.mark.parametrize(("text", "value"), [("0.3", 0.3), ("1", 1.0), ("0", 0.0)])
@async_test
async def test_dynamic_ratio_survives_a_restart(tmp_path: Path, text: str, value: float) -> None:
    async with running_node(tmp_path) as harness:
        assert await alter_configs(await harness.connect(), (kafka_name(RATIO.name), text)) == ("NONE", "")
        await harness.restart()
        assert harness.node.settings.log_cleaner_min_cleanable_ratio == value


def test_saved_whole_number_is_a_ratio(tmp_path: Path) -> None:
    """Earlier versions saved 1 and not 1.0; such a file is valid."""
    (tmp_path / FILE_NAME).write_text('{"version": 1, "broker": {"log_cleaner_min_cleanable_ratio": 1}, "default": {}}')
    assert load_dynamic(tmp_path).settings.log_cleaner_min_cleanable_ratio == 1


@pytest.mark.parametrize("value", ["NaN", "Infinity", "true", '"1"'])
def test_saved_value_that_is_no_ratio_is_refused(tmp_path: Path, value: str) -> None:
    saved = '{"version": 1, "broker": {"log_cleaner_min_cleanable_ratio": VALUE}, "default": {}}'
    (tmp_path / FILE_NAME).write_text(saved.replace("VALUE", value))
    with pytest.raises(StartError, match="are invalid"):
        load_dynamic(tmp_path)


# Dangerous values ----------------------------------------------------------------------------------------------------


def test_settings_with_a_safe_minimum() -> None:
    assert {setting.name: setting.safe_minimum for setting in SETTINGS if setting.safe_minimum is not None} == {
        name: value + 1 for name, value in UNSAFE.items()
    }


@pytest.mark.parametrize("name", UNSAFE)
@pytest.mark.parametrize("api", ["incremental_alter_configs", "alter_configs"])
@async_test
async def test_dynamic_value_below_safe_minimum_is_refused(tmp_path: Path, name: str, api: str) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        before = getattr(harness.node.settings, name)
        code, message = await alter_configs(client, (kafka_name(name), str(UNSAFE[name])), api=api)
        assert code == "INVALID_REQUEST"
        assert f"must be at least {UNSAFE[name] + 1} " in message and "--unsafe-settings" in message
        assert getattr(harness.node.settings, name) == before
        assert await alter_configs(client, (kafka_name(name), str(UNSAFE[name] + 1)), api=api) == ("NONE", "")


@pytest.mark.parametrize("name", UNSAFE)
@async_test
async def test_dynamic_value_below_safe_minimum_with_unsafe_settings_is_accepted(tmp_path: Path, name: str) -> None:
    async with running_node(tmp_path, {"unsafe_settings": True}) as harness:
        assert await alter_configs(await harness.connect(), (kafka_name(name), str(UNSAFE[name]))) == ("NONE", "")
        await harness.restart()
        assert getattr(harness.node.settings, name) == UNSAFE[name]


@pytest.mark.parametrize("name", UNSAFE)
def test_serve_with_value_below_safe_minimum_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "callboard.toml"
    path.write_text(f"[settings]\n{name} = {UNSAFE[name]}\n")
    for arguments in ({"overrides": [f"{name}={UNSAFE[name]}"]}, {"config": path}):
        with pytest.raises(
            StartError, match=f"{name}={UNSAFE[name]} is dangerous: expected at least {UNSAFE[name] + 1}"
        ):
            load(**arguments)
        settings, options = load(**arguments, unsafe_settings=True)
        assert getattr(settings, name) == UNSAFE[name]
        assert options.unsafe_settings


def test_serve_command_with_dangerous_setting_is_refused(tmp_path: Path) -> None:
    stderr = refusal("serve", "--listen", "127.0.0.1:0", "--set", "offsets_retention_minutes=1", folder=tmp_path)
    assert "offsets_retention_minutes=1 is dangerous: expected at least 60, or the option --unsafe-settings" in stderr


@pytest.mark.parametrize("name", UNSAFE)
def test_start_with_saved_value_below_safe_minimum_is_refused(tmp_path: Path, name: str) -> None:
    """Earlier versions accepted such values, and a minute after the start the offsets would be deleted."""
    (tmp_path / FILE_NAME).write_text(json.dumps({"version": 1, "broker": {name: UNSAFE[name]}, "default": {}}))
    with pytest.raises(StartError, match="--ignore-saved-settings") as raised:
        load_dynamic(tmp_path)
    assert f"{kafka_name(name)}: value must be at least {UNSAFE[name] + 1}" in str(raised.value)
    assert getattr(load_dynamic(tmp_path, ignore=True).settings, name) == BY_NAME[name].default


@async_test
async def test_embedded_coordinator_accepts_values_below_safe_minimum_at_creation(tmp_path: Path) -> None:
    """Values given by the program are trusted; later changes are checked unless ``unsafe_settings`` is set."""
    async with Coordinator(tmp_path, offsets_retention_minutes=1) as coordinator:
        with pytest.raises(StartError, match="must be at least 60"):
            await coordinator.set(offsets_retention_minutes=2)
    async with Coordinator(tmp_path, unsafe_settings=True) as coordinator:
        await coordinator.set(offsets_retention_minutes=2)


# Who may change settings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:127.3.2.1", True),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("128.0.0.1", False),
        ("0.0.0.0", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("no address", False),
    ],
)
def test_loopback_addresses(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("api", ["incremental_alter_configs", "alter_configs"])
@pytest.mark.parametrize(
    ("allowed", "is_local", "expected"),
    [
        ("local", True, "NONE"),
        ("local", False, "CLUSTER_AUTHORIZATION_FAILED"),
        ("all", True, "NONE"),
        ("all", False, "NONE"),
        ("none", True, "CLUSTER_AUTHORIZATION_FAILED"),
        ("none", False, "CLUSTER_AUTHORIZATION_FAILED"),
    ],
)
@async_test
async def test_dynamic_settings_option_decides_which_peers_may_change_settings(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    api: str,
    allowed: str,
    is_local: bool,
    expected: str,
) -> None:
    monkeypatch.setattr(Connection, "is_local", property(lambda _connection: is_local))
    async with running_node(tmp_path, {"dynamic_settings": allowed}) as harness:
        code, message = await alter_configs(await harness.connect(), ("group.max.size", "9"), api=api)
        assert code == expected
        assert (tmp_path / FILE_NAME).exists() is (expected == "NONE")
        if expected != "NONE":
            assert f"--dynamic-settings {allowed}" in message
            [line] = [line for line in caplog.messages if "refused" in line]
            assert "127.0.0.1:" in line and "wire" in line


@pytest.mark.parametrize("api", ["incremental_alter_configs", "alter_configs"])
@async_test
async def test_refused_request_with_many_resources_is_one_short_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, api: str
) -> None:
    """A client without permission must not fill the disk: one line per resource would be 640 MB for 200 kB."""
    resources = [{"resource_type": BROKER, "resource_name": str(number), "configs": []} for number in range(2000)]
    values = {"resources": resources, "validate_only": False}
    async with running_node(tmp_path, {"dynamic_settings": "none"}) as harness:
        client = await harness.connect()
        payload = encode(api, 1, values, client_id="c" * 32_000)
        client.write(FRAME_SIZE.pack(len(payload)) + payload)
        response = await client.receive(api, 1)
        assert {result["error_code"] for result in response["responses"]} == {"CLUSTER_AUTHORIZATION_FAILED"}
        [line] = [line for line in caplog.messages if "refused" in line]
        assert "resources=2000" in line and len(line) < 500


@pytest.mark.parametrize("api", ["incremental_alter_configs", "alter_configs"])
@async_test
async def test_denial_by_the_authorizer_is_not_logged_as_one_by_dynamic_settings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, api: str
) -> None:
    authorizer = DenyingAuthorizer(Rule(Operation.ALTER_CONFIGS, ResourceType.CLUSTER))
    async with running_node(tmp_path, authorizer=authorizer) as harness:
        code, _ = await alter_configs(await harness.connect(), ("group.max.size", "9"), api=api)
    assert code == "CLUSTER_AUTHORIZATION_FAILED"
    assert not [line for line in caplog.messages if "refused" in line]


@async_test
async def test_connection_from_another_machine_is_not_local(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:

        def is_local(peername: Any) -> bool:
            connection = harness.node.connections.new_connection()
            connection.connection_made(MemoryTransport(peername))
            connection.connection_lost(None)
            return connection.is_local

        assert not is_local(("192.0.2.7", 5000))
        assert not is_local(("2001:db8::1", 5000, 0, 0))
        assert is_local(("::1", 5000, 0, 0))
        assert not is_local(None)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux delivers data that was sent before a reset")
@async_test
async def test_change_of_a_client_that_resets_its_connection_before_it_is_accepted_is_refused(tmp_path: Path) -> None:
    """The peer address of such a connection is unknown, but the data that it has sent is read."""
    configs = [{"name": "group.max.size", "value": "9", "config_operation": SET}]
    resource = {"resource_type": BROKER, "resource_name": "1", "configs": configs}
    request = frame("incremental_alter_configs", resources=[resource], validate_only=False)
    async with running_node(tmp_path) as harness:
        # The loop does not run before the connection is reset.
        with socket.create_connection(("127.0.0.1", harness.port)) as client_socket:
            client_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client_socket.sendall(request)
        await offsets(await harness.connect(), "g")
        assert not (tmp_path / FILE_NAME).exists()
        assert harness.node.settings.group_max_size == Settings().group_max_size


def test_default_is_local_and_the_file_may_say_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "callboard.toml"
    path.write_text('dynamic_settings = "none"\n')
    assert load()[1].dynamic_settings == "local"
    assert load(config=path)[1].dynamic_settings == "none"
    assert load(config=path, dynamic_settings="all")[1].dynamic_settings == "all"
    with pytest.raises(StartError, match="bad dynamic settings 'some': expected one of local, all, none"):
        load(dynamic_settings="some")


# Log lines -----------------------------------------------------------------------------------------------------------


@async_test
async def test_change_is_logged_with_peer_and_both_values(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        assert await alter_configs(client, ("offsets.retention.minutes", "70")) == ("NONE", "")
        [line] = change_lines(caplog)
        for part in ("setting='offsets_retention_minutes'", "old='not set'", "new='70'", "in_effect_before='10080'"):
            assert part in line
        assert "in_effect_now='70'" in line and 'changed_by="127.0.0.1:' in line and "client id 'wire'" in line
        assert await alter_configs(client, ("offsets.retention.minutes", None)) == ("NONE", "")
        assert "old='70' new='not set' in_effect_before='70' in_effect_now='10080'" in change_lines(caplog)[1]
        assert await alter_configs(client, ("offsets.retention.minutes", "0")) != ("NONE", "")
        assert len(change_lines(caplog)) == 2


def change_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if line.startswith("a setting was changed")]


def test_saved_setting_that_overrides_a_given_one_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    change(load_dynamic(tmp_path), {"group_max_size": 9}, {"offsets_retention_minutes": 65})
    caplog.clear()
    given_by = {"group_max_size": "--set", "offsets_retention_minutes": "the configuration file 'x.toml'"}
    load_dynamic(tmp_path, given_by, group_max_size=100, num_partitions=3)
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in lines] == ["WARNING", "WARNING"]
    assert "setting='group_max_size' saved='9' given='100' given_by='--set'" in lines[0][1]
    assert "saved='65' given='10080' given_by=\"the configuration file 'x.toml'\"" in lines[1][1]
    caplog.clear()
    load_dynamic(tmp_path, {"group_max_size": "--set"}, group_max_size=9)
    assert caplog.messages == [], "the saved and the given value are equal"


def test_where_a_setting_was_given_is_known(tmp_path: Path) -> None:
    path = tmp_path / "callboard.toml"
    path.write_text("[settings]\ngroup_max_size = 1\nnum_partitions = 2\n")
    _, options = load(config=path, overrides=["group_max_size=5"])
    assert options.given == {"group_max_size": "--set", "num_partitions": f"the configuration file '{path}'"}


def test_ignored_saved_settings_stay_until_the_next_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    change(load_dynamic(tmp_path), {"group_max_size": 9}, {"offsets_retention_minutes": 65})
    before = (tmp_path / FILE_NAME).read_bytes()
    caplog.clear()
    configs = load_dynamic(tmp_path, group_max_size=100, ignore=True)
    assert (configs.settings.group_max_size, configs.settings.offsets_retention_minutes) == (100, 10_080)
    assert [("group_max_size" in line, "saved='65'" in line) for line in caplog.messages] == [
        (True, False),
        (False, True),
    ]
    assert (tmp_path / FILE_NAME).read_bytes() == before
    change(configs, {"offset_metadata_max_bytes": 5}, {})
    assert asdict(load_dynamic(tmp_path).settings) == asdict(Settings(offset_metadata_max_bytes=5))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("[]", "found a list, expected a JSON object"),
        ("{}", "found no field 'version'"),
        ('{"version": 1, "broker": [], "default": {}}', "found a list, expected a JSON object"),
    ],
)
def test_start_with_saved_settings_of_another_shape_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    with pytest.raises(StartError, match=reason):
        load_dynamic(tmp_path)
    assert asdict(load_dynamic(tmp_path, ignore=True).settings) == asdict(Settings())


def test_damaged_saved_settings_can_be_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE_NAME).write_text("{")
    assert asdict(load_dynamic(tmp_path, ignore=True).settings) == asdict(Settings())
    assert "the saved settings are ignored, and cannot be read" in caplog.text


@async_test
async def test_retention_scan_that_deletes_offsets_is_logged_with_its_setting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The line has the counts and the source of the setting. A scan without deletions logs nothing."""
    unsafe = {"unsafe_settings": True}
    async with running_node(tmp_path, unsafe) as harness:
        client = await harness.connect()
        for group in ("g", "h"):
            await client.ask("offset_commit", 4, **commit_values(group, retention_time=1))
        await client.ask("offset_commit", 8, **commit_values("young"))
        assert await alter_configs(client, ("offsets.retention.minutes", "77")) == ("NONE", "")
        assert scan_lines(caplog) == []
        assert await alter_configs(client, ("offsets.retention.check.interval.ms", "20")) == ("NONE", "")
        while sum(logged_counts(caplog, "offsets")) < 2:
            await offsets(client, "young")
        assert harness.node.groups.counters.expired == (2, 2, 2)
        assert await offsets(client, "young") == {("t", 0): 42}
    for line in scan_lines(caplog):
        assert "setting='offsets_retention_minutes' value=77 source='changed for this broker'" in line
    assert [sum(logged_counts(caplog, name)) for name in ("offsets", "groups", "deleted_groups")] == [2, 2, 2]


def logged_counts(caplog: pytest.LogCaptureFixture, name: str) -> list[int]:
    """The value of field ``name`` in the line of each retention scan."""
    return [int(line.partition(f" {name}=")[2].split()[0]) for line in scan_lines(caplog)]


def scan_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if line.startswith("old offsets were deleted")]
