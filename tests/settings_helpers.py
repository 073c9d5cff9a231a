"""Changing settings in tests, without a loop."""

from __future__ import annotations

from functools import partial

from callboard.runtime.disk.group_commit import immediate_outcome
from callboard.runtime.settings.dynamic import DynamicSettings, SettingValues


def change(configs: DynamicSettings, broker: SettingValues, all_brokers: SettingValues) -> None:
    """Put these changes in place of those that hold. Raises InvalidSetting and OSError."""
    failure = immediate_outcome(partial(configs.change, lambda _broker, _all_brokers: (broker, all_brokers)))
    if failure is not None:
        raise failure
