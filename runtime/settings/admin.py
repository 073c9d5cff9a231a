"""SettingsAdmin: the only place that changes settings while the coordinator runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ..common.errors import StartError
from .dynamic import OURSELVES, Change, DynamicSettings, InvalidSetting, SettingValues, find_dynamic, parse
from .group_configs import ChangeTexts
from .listener_limits import find_row
from .rows import Setting, SettingValue
from .table import check_range


class GroupConfigAdmin:
    """Changes the settings of single groups."""

    def __init__(self, configs: DynamicSettings) -> None:
        self._configs = configs

    def check_alter(self, group_id: str, change: ChangeTexts) -> None:
        """Raise CoordinatorError, with Kafka's error code, unless the settings of a group can change so."""
        self._configs.groups.check_alter(group_id, change)

    def alter(self, group_id: str, change: ChangeTexts, done: Callable[[Exception | None], None]) -> None:
        """Change the settings of a group durably, then call ``done`` with None, or a CoordinatorError or OSError."""
        self._configs.change_group(group_id, change, done)


class SettingsAdmin:
    """Checks a change, saves it, logs its author and notifies the users of settings, in this order.

    ``groups`` changes the settings of single groups.
    """

    def __init__(self, configs: DynamicSettings, groups: GroupConfigAdmin | None = None) -> None:
        """``groups``: None to keep them in the same file."""
        self.configs = configs
        self.groups = groups or GroupConfigAdmin(configs)
        self._users: list[Callable[[], None]] = []

    def on_change(self, use: Callable[[], None]) -> None:
        """Call ``use`` after each change of the server's settings."""
        self._users.append(use)

    def check(self, make: Change) -> None:
        """Raise InvalidSetting, or what ``make`` raises, if ``change`` would refuse this change now."""
        self.configs.check(*make(self.configs.broker, self.configs.all_brokers))

    def change(self, make: Change, done: Callable[[Exception | None], None], *, changed_by: str = OURSELVES) -> None:
        """Replace the changed settings durably by the result of ``make``, then call ``done``.

        ``done`` gets None or an error: that of ``make``, InvalidSetting, or OSError if the file cannot be written.
        After an error nothing has changed. ``changed_by``: the author, for the log.
        """
        self.configs.change(make, partial(self._finish, done), changed_by=changed_by)

    def _finish(self, done: Callable[[Exception | None], None], failure: Exception | None) -> None:
        if failure is None:
            for use in self._users:
                use()
        done(failure)

    def set(self, values: Mapping[str, SettingValue | None], done: Callable[[Exception | None], None]) -> None:
        """Change settings of this broker, given by name with underscores; None restores the start value.

        Raises StartError for an unknown name and a value out of range. ``done``: as for ``change``.
        """
        for name, value in values.items():
            setting = find_row(name)
            if not setting.is_dynamic:
                raise StartError(f"setting '{name}' cannot change while the coordinator runs: set it at the start")
            if value is not None:
                check_range(setting, value)
        self.change(partial(_with_changes, values), done)


def dynamic_setting(name: str) -> Setting:
    """Return the dynamic setting with this name of Kafka's. Raises InvalidSetting."""
    setting = find_dynamic(name)
    if setting is None:
        raise InvalidSetting(f"Cannot update these configs dynamically: [{name}]")
    return setting


def parse_change(name: str, text: str) -> tuple[str, SettingValue]:
    """Return the name and the value of a setting from a request of a Kafka client. Raises InvalidSetting."""
    setting = dynamic_setting(name)
    return setting.name, parse(setting, text)


def _with_changes(
    values: Mapping[str, SettingValue | None], broker: SettingValues, all_brokers: SettingValues
) -> tuple[SettingValues, SettingValues]:
    return {name: value for name, value in {**broker, **values}.items() if value is not None}, all_brokers
