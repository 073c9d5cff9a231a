"""Changing settings in tests, without a loop."""

from __future__ import annotations

from functools import partial

from callboard.runtime.disk.group_commit import immediate_outcome
from callboard.runtime.settings.dynamic import DynamicSettings, SettingValues


def change(configs: DynamicSettings, broker: SettingValues, all_brokers: SettingValues) -> None:
    """Replace the current changes by these. Raises InvalidSetting and OSError."""
    failure = immediate_outcome(partial(configs.change, lambda _broker, _all_brokers: (broker, all_brokers)))
    if failure is not None:
        raise failure
