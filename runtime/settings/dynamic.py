"""Dynamic settings, which change while the server runs, and the file that stores the changes: ``settings.json``.

The precedence is Kafka's: a change for this broker overrides a change for all brokers, which overrides the command line
and the configuration file, which override the default. So the value of ``--set`` is in effect until a change with
IncrementalAlterConfigs, and again after that change is deleted. A saved change that overrides such a value is logged at
the start. Every change while the server runs is logged with its author.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from ..common.errors import StartError
from ..common.json_files import parse_json
from ..common.logs import get_logger
from ..disk.checksum import verify_checksum, with_checksum
from ..disk.disk import Disk, read_file, replace_file
from ..disk.file_work import FileWork, InlineFileWork
from ..disk.group_commit import GroupCommit
from .group_configs import BY_NAME as GROUP_SETTINGS
from .group_configs import AllOverrides, ChangeTexts, GroupConfigs, Overrides
from .listener_limits import ListenerLimits, find_limit, is_limit, kafka_limit_name, setting_of_all
from .listeners import Listener
from .rows import INT_MAX, LONG_MAX, Setting, SettingValue
from .table import BY_NAME, SETTINGS, Settings, format_value, is_unsafe, parse_value

FILE_NAME = "settings.json"
VERSION = 3
"""1: without a checksum. 2: with a checksum, which detects a changed digit of a value. 3: with settings of groups.

A file without settings of groups has version 2, so that an earlier Callboard reads it.
"""

CHECKSUM_FROM, GROUPS_FROM = 2, 3

ALL_BROKERS = "default"  # and "broker" and "groups": the keys in the file

NOT_SET = "not set"
OURSELVES = "the program itself"
"""The source of a setting, or the author of a change, that is the host program."""
AT_START = "--set or the configuration file"
"""The source of a setting of one listener."""

log = get_logger("callboard.runtime")

SettingValues = Mapping[str, SettingValue]
"""Values by the name of their setting, with underscores."""

Change = Callable[[SettingValues, SettingValues], tuple[SettingValues, SettingValues]]
"""Maps the current changes for this broker and for all brokers to the new ones. It may raise to reject the change."""


class ConfigSource(IntEnum):
    """Where a value comes from. The numbers are those of Kafka's ConfigSource."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC = 4
    DEFAULT = 5
    GROUP = 8


class ConfigType(IntEnum):
    """The type of a value. The numbers are those of Kafka's ConfigType."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Synonym(NamedTuple):
    """One of the values of a setting, in effect or overridden, under Kafka's name for it."""

    name: str
    value: str
    source: ConfigSource


class InvalidSetting(Exception):
    """An invalid change of a setting. The text says why."""


class LiveSettings(Settings):
    """Settings that change in place, so that all their users see the change."""

    __slots__ = ()

    def update_from(self, other: Settings) -> None:
        for field in fields(other):
            object.__setattr__(self, field.name, getattr(other, field.name))


class SettingsChange(NamedTuple):
    """One change, for the log: its author, and the values before and after it."""

    changed_by: str
    broker: SettingValues
    all_brokers: SettingValues
    new_broker: SettingValues
    new_all_brokers: SettingValues


class SettingsDraft:
    """The values after several changes that share one write of the file."""

    def __init__(self, broker: SettingValues, all_brokers: SettingValues, groups: dict[str, Overrides]) -> None:
        self.broker = broker
        self.all_brokers = all_brokers
        self.groups = groups
        self.changes: list[SettingsChange] = []


class SavedSettings(NamedTuple):
    """The content of ``settings.json``."""

    broker: SettingValues = {}
    all_brokers: SettingValues = {}
    groups: AllOverrides = {}


class DynamicSettings:
    """The changes, on top of the settings of the start. ``settings`` are always the values that are in effect.

    ``groups``: the settings of single groups. In a cluster they are not in the file, but in the store.
    ``given``: the source of each setting that was given at the start, by name ("--set"). ``allows_unsafe``: changes
    may go below a safe minimum. ``listener_limits``: those of single listeners that are in effect.
    """

    def __init__(
        self,
        static: Settings,
        given: Mapping[str, str] | None = None,
        *,
        allows_unsafe: bool = False,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self._static = static
        self._given = dict.fromkeys(_not_default(static), OURSELVES) | dict(given or {})
        self._allows_unsafe = allows_unsafe
        self._path = Path()
        self._disk = Disk()
        self.broker: SettingValues = {}
        self.all_brokers: SettingValues = {}
        self.settings = LiveSettings(**_values(static))
        self.groups = GroupConfigs(self.settings)
        self.listener_limits = ListenerLimits(listeners)
        self._changes: GroupCommit[SettingsDraft] = GroupCommit(self, InlineFileWork())

    def run_on(self, files: FileWork) -> None:
        """Write the file with ``files`` from now on. Before, it is written on the caller's thread."""
        self._changes.files = files

    def load(self, folder: Path, disk: Disk | None = None, *, ignore: bool = False) -> None:
        """Read the saved changes of a data folder. Raises StartError if the file is damaged or too new.

        ``ignore``: log the saved changes, but use none of them. The file stays until the next change replaces it.
        """
        self._path = folder / FILE_NAME
        self._disk = disk or self._disk
        if ignore:
            self._log_ignored()
            return
        saved = self._read()
        try:
            self._check_safe(saved.broker, saved.all_brokers)
            self._apply(saved.broker, saved.all_brokers)
        except InvalidSetting as error:
            raise self._invalid_file_error(error) from error
        self.groups.load(saved.groups)
        self._warn_of_overridden()
        self._warn_of_missing_listeners()

    def _read(self) -> SavedSettings:
        try:
            return decode_settings(read_file(self._disk, self._path))
        except FileNotFoundError:
            return SavedSettings()
        except TooNew as error:
            raise StartError(f"'{self._path}' has {error}") from error
        except OSError as error:
            raise StartError(f"cannot read the changed settings '{self._path}': {error.strerror}") from error
        except (ValueError, KeyError, InvalidSetting) as error:
            raise self._invalid_file_error(error) from error

    def _invalid_file_error(self, error: Exception) -> StartError:
        return StartError(
            f"the changed settings '{self._path}' are invalid: {_reason(error)}; correct the file and its checksum, "
            f"or start with --ignore-saved-settings to use the values of --set and the configuration file"
        )

    def _log_ignored(self) -> None:
        try:
            saved = self._read()
        except StartError as error:
            log.warning("the saved settings are ignored, and cannot be read", reason=str(error))
            return
        for resource, table in (("broker", saved.broker), ("all brokers", saved.all_brokers)):
            for name, value in table.items():
                log.warning("a saved setting is ignored", setting=name, saved=format_value(value), saved_for=resource)
        for group_id, own in saved.groups.items():
            log.warning("the saved settings of a group are ignored", group=group_id, saved=dict(own))

    def _warn_of_overridden(self) -> None:
        """Log each given value that a saved change overrides, so that users find the reason."""
        in_effect = self.values()
        for name, (given_value, source) in self._given_values().items():
            value = in_effect[name]
            if (name in self.broker or name in self.all_brokers) and value != given_value:
                log.warning(
                    "a saved setting overrides the given one; delete the change with IncrementalAlterConfigs, or"
                    " start with --ignore-saved-settings",
                    setting=name,
                    saved=format_value(value),
                    given=format_value(given_value),
                    given_by=source,
                )

    def _given_values(self) -> dict[str, tuple[Any, str]]:
        """Each value that was given at the start, with its source."""
        given = {name: (getattr(self._static, name), source) for name, source in self._given.items()}
        return given | {name: (value, AT_START) for name, value in self.listener_limits.given.items()}

    def _warn_of_missing_listeners(self) -> None:
        for name in sorted({*self.broker, *self.all_brokers}):
            if is_limit(name) and not self.listener_limits.has(name):
                log.warning(
                    "a saved setting is of a listener that does not exist, and has no effect; delete the change with"
                    " IncrementalAlterConfigs",
                    setting=name,
                )

    def check(self, broker: SettingValues, all_brokers: SettingValues) -> None:
        """Raise InvalidSetting if these values cannot replace the current changes."""
        self._check_safe(broker, all_brokers)
        self._check_listeners(broker, all_brokers)
        self._effective(broker, all_brokers)

    def change(self, make: Change, done: Callable[[Exception | None], None], *, changed_by: str = OURSELVES) -> None:
        """Replace the current changes durably by the result of ``make``, then call ``done``.

        ``changed_by``: the author, for the log. ``done`` gets None or an error: that of ``make``, InvalidSetting, or
        OSError if the file cannot be written. After an error nothing has changed.
        """

        def apply(draft: SettingsDraft) -> bool:
            broker, all_brokers = make(draft.broker, draft.all_brokers)
            self.check(broker, all_brokers)
            draft.changes.append(SettingsChange(changed_by, draft.broker, draft.all_brokers, broker, all_brokers))
            draft.broker, draft.all_brokers = broker, all_brokers
            return True

        self._changes.submit(apply, done)

    def change_group(self, group_id: str, change: ChangeTexts, done: Callable[[Exception | None], None]) -> None:
        """Change the settings of a group durably, then call ``done``, with None or the CoordinatorError or OSError."""
        self._changes.submit(lambda draft: self.groups.alter(draft.groups, group_id, change), done)

    def draft(self) -> SettingsDraft:
        """See ``group_commit.ReplacedFile``, also for the next three methods."""
        return SettingsDraft(self.broker, self.all_brokers, dict(self.groups.given))

    def write(self, draft: SettingsDraft) -> None:
        content = encode_settings(SavedSettings(draft.broker, draft.all_brokers, draft.groups))
        replace_file(self._disk, self._path, content)

    def publish(self, draft: SettingsDraft) -> None:
        self.groups.replace(draft.groups)
        before = self.values()
        self._apply(draft.broker, draft.all_brokers)
        for change in draft.changes:
            self._log_change(change, before)

    def discard(self, draft: SettingsDraft) -> None:
        pass

    def _check_safe(self, *tables: SettingValues) -> None:
        for name, value in [] if self._allows_unsafe else [item for table in tables for item in table.items()]:
            setting = BY_NAME.get(name)
            if setting is not None and is_unsafe(setting, value):
                raise InvalidSetting(
                    f"invalid value {kafka_text(value)} for configuration {kafka_name(name)}: value must be at least"
                    f" {setting.safe_minimum} (a server that is started with --unsafe-settings takes less)"
                )

    def _check_listeners(self, *tables: SettingValues) -> None:
        """Limits of listeners that no longer exist may stay. Raises InvalidSetting for a new one."""
        for name in (name for table in tables for name in table if is_limit(name)):
            if not (self.listener_limits.has(name) or name in self.broker or name in self.all_brokers):
                raise InvalidSetting(
                    f"{kafka_name(name)} is of a listener that does not exist: expected one of the listeners"
                    f" {', '.join(self.listener_limits.listeners)}"
                )

    def values(self) -> dict[str, Any]:
        """The values in effect, also of the limits of single listeners."""
        return _values(self.settings) | self.listener_limits.values()

    def _log_change(self, change: SettingsChange, effective: Mapping[str, Any]) -> None:
        """Log one line per setting and resource, with the values before and after the change."""
        effective_now = self.values()
        pairs = (change.broker, change.new_broker), (change.all_brokers, change.new_all_brokers)
        for resource, (old, new) in zip(("broker", "all brokers"), pairs, strict=True):
            for name in sorted(old.keys() | new.keys()):
                if old.get(name) != new.get(name):
                    log.warning(
                        "a setting was changed",
                        setting=name,
                        changed_for=resource,
                        old=_shown_or_not(old.get(name)),
                        new=_shown_or_not(new.get(name)),
                        in_effect_before=_shown_or_not(effective.get(name)),
                        in_effect_now=_shown_or_not(effective_now.get(name)),
                        changed_by=change.changed_by,
                    )

    def origin(self, name: str) -> str:
        """Where the value in effect comes from, for the log."""
        if name in self.broker:
            return "changed for this broker"
        if name in self.all_brokers:
            return "changed for all brokers"
        return self._given.get(name, "default")

    def synonyms(self, setting: Setting) -> list[Synonym]:
        """All values of a setting, the one in effect first. A limit of a listener also has those of all listeners."""
        name = setting.name
        if is_limit(name):
            return self._synonyms_of_limit(setting)
        values: list[tuple[Any, ConfigSource]] = []
        if name in self.broker:
            values.append((self.broker[name], ConfigSource.BROKER))
        if name in self.all_brokers:
            values.append((self.all_brokers[name], ConfigSource.ALL_BROKERS))
        if name in self._given:
            values.append((getattr(self._static, name), ConfigSource.STATIC))
        values.append((setting.default, ConfigSource.DEFAULT))
        return [Synonym(kafka_name(name), kafka_text(value), source) for value, source in values]

    def _synonyms_of_limit(self, limit: Setting) -> list[Synonym]:
        kafkas = self.listener_limits.kafka_name(limit.name)
        sources = (
            (self.broker, ConfigSource.BROKER),
            (self.all_brokers, ConfigSource.ALL_BROKERS),
            (self.listener_limits.given, ConfigSource.STATIC),
        )
        own = ((table.get(limit.name), source) for table, source in sources)
        given = [Synonym(kafkas, kafka_text(value), source) for value, source in own if value is not None]
        return given + self.synonyms(setting_of_all(limit))

    def _effective(self, broker: SettingValues, all_brokers: SettingValues) -> Settings:
        try:
            changed = {name: value for name, value in {**all_brokers, **broker}.items() if not is_limit(name)}
            return Settings(**{**_values(self._static), **changed})
        except StartError as error:  # each value is valid, but two contradict each other
            raise InvalidSetting(str(error)) from error

    def _apply(self, broker: SettingValues, all_brokers: SettingValues) -> None:
        self.settings.update_from(self._effective(broker, all_brokers))
        self.broker, self.all_brokers = dict(broker), dict(all_brokers)
        self.listener_limits.change({**all_brokers, **broker})


class TooNew(ValueError):
    """A file of a later version."""


def encode_settings(saved: SavedSettings) -> bytes:
    """The content of the file."""
    groups = {"groups": {group_id: dict(own) for group_id, own in saved.groups.items()}} if saved.groups else {}
    version = GROUPS_FROM if saved.groups else CHECKSUM_FROM
    content = {"version": version, "broker": saved.broker, ALL_BROKERS: saved.all_brokers, **groups}
    return json.dumps(with_checksum(content), indent=1).encode() + b"\n"


def decode_settings(data: bytes) -> SavedSettings:
    """Raises ValueError, KeyError or InvalidSetting if it is damaged, and TooNew."""
    content = parse_json(data)
    _check_object(content)
    version = content["version"]
    if type(version) is not int or version < 1:
        raise InvalidSetting(f"version {format_value(version)}, expected {VERSION}")
    if version > VERSION:
        raise TooNew(f"version {version}: expected at most {VERSION}; a later Callboard wrote it, use that one")
    verify_checksum(content, CHECKSUM_FROM)
    groups = _checked_groups(content["groups"]) if version >= GROUPS_FROM else {}
    return SavedSettings(_checked(content["broker"]), _checked(content[ALL_BROKERS]), groups)


def kafka_name(name: str) -> str:
    """Kafka's name of a setting, with dots."""
    return kafka_limit_name(name) or name.replace("_", ".")


def find_dynamic(name: str) -> Setting | None:
    """The dynamic setting with this name of Kafka's; None if there is none. Not whether its listener exists."""
    setting = find_limit(name) or BY_NAME.get(name.replace(".", "_"))
    return setting if setting is not None and setting.is_dynamic else None


def config_type_of(setting: Setting) -> ConfigType:
    if setting.type is bool:
        return ConfigType.BOOLEAN
    if setting.type is str:
        return ConfigType.STRING if setting.choices or setting.form else ConfigType.LIST
    if setting.type is float:
        return ConfigType.DOUBLE
    return ConfigType.LONG if setting.maximum == LONG_MAX else ConfigType.INT


def kafka_text(value: SettingValue) -> str:
    return value if isinstance(value, str) else str(value).lower()


def parse(setting: Setting, text: str) -> SettingValue:
    """Parse a value from a request of a Kafka client. Raises InvalidSetting."""
    message = f"invalid value {text[:80]} for configuration {kafka_name(setting.name)}"
    value = parse_value(setting, text.strip())
    if value is None:
        type_name = config_type_of(setting).name
        expected = "expected true or false" if setting.type is bool else f"not a number of type {type_name}"
        raise InvalidSetting(f"{message}: {expected}")
    _check_range(setting, value, message)
    return value


def _check_range(setting: Setting, value: Any, message: str) -> None:
    """Raise InvalidSetting, with ``message`` before the reason. NaN, which JSON may contain, is out of every range."""
    if setting.minimum is not None and not value >= setting.minimum:
        raise InvalidSetting(f"{message}: value must be at least {setting.minimum}")
    if setting.maximum is not None and not value <= setting.maximum:
        raise InvalidSetting(f"{message}: value must be no more than {setting.maximum}")
    if isinstance(value, str) and not setting.fits(value):
        raise InvalidSetting(f"{message}: expected {setting.expected}")


def _check_object(value: object) -> None:
    if not isinstance(value, dict):
        raise InvalidSetting(f"found a {type(value).__name__}, expected a JSON object")


def _reason(error: Exception) -> str:
    return f"found no field {error}" if isinstance(error, KeyError) else str(error)


def _values(settings: Settings) -> dict[str, Any]:
    return {setting.name: getattr(settings, setting.name) for setting in SETTINGS}


def _not_default(settings: Settings) -> list[str]:
    return [setting.name for setting in SETTINGS if getattr(settings, setting.name) != setting.default]


def _shown_or_not(value: SettingValue | None) -> str:
    return NOT_SET if value is None else format_value(value)


def _checked(table: Mapping[str, Any]) -> SettingValues:
    """The values of a table in the file, checked. Raises InvalidSetting."""
    _check_object(table)
    for name, value in table.items():
        setting = find_dynamic(name)
        if setting is None or setting.name != name:
            raise InvalidSetting(f"'{name}' is not a dynamic setting")
        if not setting.has_type(value):
            raise InvalidSetting(f"{name} is {format_value(value)}, expected {setting.expected}")
        _check_range(setting, value, f"{name} is {format_value(value)}")
    return table


def _checked_groups(table: Mapping[str, Any]) -> AllOverrides:
    """The settings of groups in the file, checked. Raises InvalidSetting."""
    _check_object(table)
    for group_id, own in table.items():
        _check_object(own)
        for name, value in own.items():
            setting = GROUP_SETTINGS.get(name)
            if setting is None:
                raise InvalidSetting(f"'{name}' of group '{group_id}' is not a setting of groups")
            if type(value) is not int or not setting.minimum <= value <= INT_MAX:
                expected = f"expected a whole number from {setting.minimum} to {INT_MAX}"
                raise InvalidSetting(f"{name} of group '{group_id}' is {format_value(value)}, {expected}")
    return table
