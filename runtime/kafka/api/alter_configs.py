"""AlterConfigs (33): replace the changed settings of a resource. The others return to their defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....actors.steps import Steps
from ...settings.admin import parse_change
from ...settings.dynamic import SettingValues
from ...settings.rows import SettingValue
from ...topics.setting_values import Overrides
from ..call import Call
from .incremental_alter_configs import ALTER_CHECKS, Changes, alter


def handle(call: Call) -> Steps[None]:
    changes = Changes(replace_values, replace_texts, has_loggers=False)
    return alter(call, changes, ALTER_CHECKS, "AlterConfigsResponse")


def replace_values(_table: SettingValues, configs: Sequence[Any]) -> dict[str, SettingValue]:
    """Return the requested values, and no others. Raises InvalidSetting."""
    return dict(parse_change(config.name, config.value) for config in configs)


def replace_texts(configs: Sequence[Any], _overrides: Overrides) -> Overrides:
    """Return the requested settings of a topic or a group, and no others."""
    return {config.name: config.value for config in configs}
