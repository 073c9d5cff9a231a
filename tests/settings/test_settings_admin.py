"""SettingsAdmin: a setting is changed in one place, which also notifies the users of settings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.group_commit import immediate_outcome
from callboard.runtime.settings.admin import SettingsAdmin, parse_change
from callboard.runtime.settings.dynamic import DynamicSettings, InvalidSetting
from callboard.runtime.settings.table import Settings


class Changes:
    """A SettingsAdmin that counts notifications."""

    def __init__(self, folder: Path) -> None:
        self.configs = DynamicSettings(Settings())
        self.configs.load(folder)
        self.notifications = 0
        self.admin = SettingsAdmin(self.configs)
        self.admin.on_change(self._count)

    def _count(self) -> None:
        self.notifications += 1

    def set(self, **values: float | bool | None) -> Exception | None:
        failure: Exception | None = immediate_outcome(partial(self.admin.set, values))
        return failure


def test_settings_admin_set_saves_and_notifies(tmp_path: Path) -> None:
    changes = Changes(tmp_path)
    assert changes.set(group_max_size=9) is None
    assert (changes.configs.settings.group_max_size, changes.notifications) == (9, 1)
    assert changes.set(group_max_size=None) is None
    assert changes.configs.settings.group_max_size == Settings().group_max_size
    assert changes.notifications == 2
    assert (tmp_path / "settings.json").exists()


@pytest.mark.parametrize("values", [{"no_such_setting": 1}, {"offsets_topic_num_partitions": 3}, {"group_max_size": 0}])
def test_settings_admin_set_of_invalid_value_changes_nothing(tmp_path: Path, values: Mapping[str, int]) -> None:
    changes = Changes(tmp_path)
    with pytest.raises(StartError):
        changes.set(**values)
    assert (changes.configs.broker, changes.notifications) == ({}, 0)


def test_settings_admin_refused_change_does_not_notify(tmp_path: Path) -> None:
    """The two limits contradict each other, which only the check of all settings notices."""
    changes = Changes(tmp_path)
    failure = changes.set(group_min_session_timeout_ms=9000, group_max_session_timeout_ms=8000)
    assert isinstance(failure, InvalidSetting)
    assert changes.notifications == 0


def test_parse_change_of_unknown_and_static_setting_is_refused() -> None:
    assert parse_change("group.max.size", "7") == ("group_max_size", 7)
    for name in ("no.such.setting", "offsets.topic.num.partitions"):
        with pytest.raises(InvalidSetting, match="dynamically"):
            parse_change(name, "7")
