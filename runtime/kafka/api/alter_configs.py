"""AlterConfigs (33): the old way to change settings. What is not named goes back to where it came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...settings.dynamic import SettingValues, parse
from ..call import Call
from .incremental_alter_configs import alter, dynamic_setting


def handle(call: Call) -> None:
    alter(call, replaced, "AlterConfigsResponse")


def replaced(_table: SettingValues, asked: Sequence[Any]) -> dict[str, float | bool]:
    """The values that are asked for, and no others. Raises InvalidSetting."""
    settings = [(dynamic_setting(one.name), one.value) for one in asked]
    return {setting.name: parse(setting, value) for setting, value in settings}
