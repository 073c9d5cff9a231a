"""Settings of groups: valid values with Kafka's errors, the file, the bounds of the server, and limits.

The errors are those of Kafka 4.3.1.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.checksum import with_checksum
from callboard.runtime.disk.group_commit import immediate_outcome
from callboard.runtime.settings.dynamic import FILE_NAME, DynamicSettings
from callboard.runtime.settings.group_configs import (
    BY_NAME,
    GROUP_ID_CHARS_MAX,
    GROUP_SETTINGS,
    GROUPS_MAX,
    GroupConfigs,
    Overrides,
    check_texts,
)
from callboard.runtime.settings.table import BY_NAME as SERVER_SETTINGS
from callboard.runtime.settings.table import Settings

SESSION, HEARTBEAT, ASSIGNMENT = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (SESSION, "1000", f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms"),
        (SESSION, "70000", f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms"),
        (SESSION, "abc", f"Invalid value abc for configuration {SESSION}: Not a number of type INT"),
        (SESSION, "", f"Invalid value  for configuration {SESSION}: Not a number of type INT"),
        (SESSION, "99999999999", f"Invalid value 99999999999 for configuration {SESSION}: Not a number of type INT"),
        (SESSION, "0", f"Invalid value 0 for configuration {SESSION}: Value must be at least 1"),
        (HEARTBEAT, "100", f"{HEARTBEAT} must be greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        (HEARTBEAT, "20000", f"{HEARTBEAT} must be less than or equal to group.consumer.max.heartbeat.interval.ms"),
        (ASSIGNMENT, "-1", f"Invalid value -1 for configuration {ASSIGNMENT}: Value must be at least 0"),
        (ASSIGNMENT, "16000", f"{ASSIGNMENT} must be less than or equal to group.consumer.max.assignment.interval.ms"),
        ("nope", "1", "Unknown group config name: nope"),
        ("share.session.timeout.ms", "50000", "Unknown group config name: share.session.timeout.ms"),
    ],
)
def test_invalid_setting_of_group_is_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(CoordinatorError) as caught:
        check_texts({name: text}, Settings())
    assert (caught.value.code, str(caught.value)) == (ErrorCode.INVALID_CONFIG, message)


def test_session_timeout_has_to_be_greater_than_heartbeat_interval() -> None:
    settings = Settings(group_consumer_min_session_timeout_ms=1, group_consumer_session_timeout_ms=6000)
    for given in ({SESSION: "5000"}, {HEARTBEAT: "6000"}, {SESSION: "8000", HEARTBEAT: "8000"}):
        with pytest.raises(CoordinatorError, match=f"{SESSION} must be greater than {HEARTBEAT}"):
            check_texts(given, settings)
    assert check_texts({SESSION: " 9000 ", HEARTBEAT: "8000"}, settings) == {SESSION: 9000, HEARTBEAT: 8000}


def test_each_setting_of_groups_has_a_default_and_bounds_of_the_server() -> None:
    for setting in GROUP_SETTINGS:
        assert {setting.default, setting.low, setting.high} <= SERVER_SETTINGS.keys()
        assert setting.doc.endswith(".")
    assert list(BY_NAME) == [HEARTBEAT, SESSION, ASSIGNMENT]


def test_values_are_limited_by_the_bounds_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    """The bounds may have changed since the values were set."""
    groups = GroupConfigs(Settings())
    groups.load({"g": {SESSION: 5000, ASSIGNMENT: 20_000}, "h": {HEARTBEAT: 6000}})
    assert groups.effective == {"g": {SESSION: 45_000, ASSIGNMENT: 15_000}, "h": {HEARTBEAT: 6000}}
    assert groups.given["g"] == {SESSION: 5000, ASSIGNMENT: 20_000}
    assert caplog.text.count("a setting of a group is limited") == 2


def test_number_of_groups_with_settings_and_their_ids_are_limited() -> None:
    groups = GroupConfigs(Settings())
    draft: dict[str, Overrides] = {f"g{number}": {ASSIGNMENT: 0} for number in range(GROUPS_MAX)}
    for group_id in ("one more", "x" * (GROUP_ID_CHARS_MAX + 1)):
        with pytest.raises(CoordinatorError) as caught:
            groups.alter(dict(draft), group_id, lambda own: {ASSIGNMENT: "0"})
        assert caught.value.code is ErrorCode.POLICY_VIOLATION
    assert groups.alter(draft, "g0", lambda own: {ASSIGNMENT: "1"})
    assert groups.alter(draft, "g0", lambda own: {})
    assert groups.alter(draft, "one more", lambda own: {ASSIGNMENT: "0"})
    assert not groups.alter(draft, "one more", lambda own: own)


def load(folder: Path, *, ignore: bool = False) -> DynamicSettings:
    configs = DynamicSettings(Settings())
    configs.load(folder, ignore=ignore)
    return configs


def set_text(configs: DynamicSettings, group_id: str, **texts: str) -> object:
    wanted = {f"consumer.{name.replace('_', '.')}": text for name, text in texts.items()}
    return immediate_outcome(partial(configs.change_group, group_id, lambda own: wanted))


def test_settings_of_groups_are_saved_beside_those_of_the_server(tmp_path: Path) -> None:
    configs = load(tmp_path)
    live = configs.groups.effective
    assert set_text(configs, "g", session_timeout_ms="50000") is None
    assert set_text(configs, "ü", heartbeat_interval_ms="6000") is None
    assert live == {"g": {SESSION: 50_000}, "ü": {HEARTBEAT: 6000}}
    assert isinstance(set_text(configs, "g", session_timeout_ms="1"), CoordinatorError)
    assert load(tmp_path).groups.given == configs.groups.given == {"g": {SESSION: 50_000}, "ü": {HEARTBEAT: 6000}}
    assert set_text(configs, "g") is None
    assert live == load(tmp_path).groups.given == {"ü": {HEARTBEAT: 6000}}


def test_file_without_settings_of_groups_can_be_read_by_an_earlier_version(tmp_path: Path) -> None:
    configs = load(tmp_path)
    for texts in ({"session_timeout_ms": "50000"}, {}):
        assert set_text(configs, "g", **texts) is None
        content = json.loads((tmp_path / FILE_NAME).read_text())
        assert (content["version"], "groups" in content) == ((3, True) if texts else (2, False))


def test_saved_settings_of_groups_can_be_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    set_text(load(tmp_path), "g", session_timeout_ms="50000")
    assert load(tmp_path, ignore=True).groups.given == {}
    assert "the saved settings of a group are ignored group='g'" in caplog.text


@pytest.mark.parametrize(
    ("groups", "problem"),
    [
        ([], "expected a JSON object"),
        ({"g": 5}, "expected a JSON object"),
        ({"g": {"nope": 5}}, "'nope' of group 'g' is not a setting of groups"),
        ({"g": {SESSION: "5"}}, f"{SESSION} of group 'g' is '5', expected a whole number from 1"),
        ({"g": {SESSION: True}}, f"{SESSION} of group 'g' is true, expected"),
        ({"g": {ASSIGNMENT: -1}}, f"{ASSIGNMENT} of group 'g' is -1, expected a whole number from 0"),
    ],
)
def test_file_with_invalid_settings_of_groups_is_refused(tmp_path: Path, groups: object, problem: str) -> None:
    content = with_checksum({"version": 3, "broker": {}, "default": {}, "groups": groups})
    (tmp_path / FILE_NAME).write_text(json.dumps(content))
    with pytest.raises(StartError, match=problem):
        load(tmp_path)
