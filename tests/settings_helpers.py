"""Changing settings in tests, without a loop."""

from __future__ import annotations

from functools import partial

from callboard.runtime.disk.group_commit import at_once
from callboard.runtime.settings.dynamic import DynamicSettings, Table


def change(configs: DynamicSettings, broker: Table, all_brokers: Table) -> None:
    """Put these changes in place of those that hold. Raises BadValue and OSError."""
    failure = at_once(partial(configs.change, lambda _broker, _all_brokers: (broker, all_brokers)))
    if failure is not None:
        raise failure
