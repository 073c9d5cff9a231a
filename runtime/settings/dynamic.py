"""Settings that change while the server runs, and the file that keeps the changes: ``settings.json``.

Where a value comes from is Kafka's: what was set for this broker wins over what was set for all brokers, that over the
command line and the configuration file, those over the default. So ``--set`` gives the value that holds until somebody
changes it with IncrementalAlterConfigs, and again when the change is deleted. At the start a saved change that hides
such a value is logged, and so is each change while the server runs, with whoever made it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from ..common.errors import StartError
from ..common.json_files import parse_json
from ..common.logs import get_logger
from ..disk.checksum import refuse_wrong, with_checksum
from ..disk.disk import Disk, read_file, replace_file
from ..disk.file_work import FileWork, OnCaller
from ..disk.group_commit import GroupCommit
from .table import BY_NAME, LONG_MAX, SETTINGS, Setting, Settings, has_type, is_unsafe, parse_value, shown

FILE_NAME = "settings.json"
VERSION = 2
"""1: without a checksum. 2: with one; without it one changed digit would be another setting."""

ALL_BROKERS = "default"  # and "broker": the keys in the file

NOT_SET = "not set"
OURSELVES = "the program itself"

log = get_logger("callboard.runtime")

Table = Mapping[str, float | bool]
"""Values by the names that they have here, with underscores."""

Change = Callable[[Table, Table], tuple[Table, Table]]
"""From the changes for this broker and for all brokers to others. It may raise its refusal."""


class Source(IntEnum):
    """Where a value comes from; the numbers are Kafka's (ConfigSource)."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC = 4
    DEFAULT = 5


class Type(IntEnum):
    """What a value is; the numbers are Kafka's (ConfigType)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Synonym(NamedTuple):
    """One of the values that a setting has, under Kafka's name for it."""

    name: str
    value: str
    source: Source


class BadValue(Exception):
    """A change that cannot be: the text says why."""


class LiveSettings(Settings):
    """Settings that change in place, so that whoever holds them sees the change."""

    __slots__ = ()

    def become(self, other: Settings) -> None:
        for field in fields(other):
            object.__setattr__(self, field.name, getattr(other, field.name))


class SettingsChange(NamedTuple):
    """One change, for the log: who made it, and the tables before and after it."""

    changed_by: str
    broker: Table
    all_brokers: Table
    new_broker: Table
    new_all_brokers: Table


class SettingsDraft:
    """Changes that share a write."""

    def __init__(self, broker: Table, all_brokers: Table) -> None:
        self.broker = broker
        self.all_brokers = all_brokers
        self.changes: list[SettingsChange] = []


class Saved(NamedTuple):
    """The changes that ``settings.json`` keeps."""

    broker: Table
    all_brokers: Table


class DynamicSettings:
    """The changes, on top of what the server was started with. ``settings`` is always what holds now.

    ``given``: where each setting of the start was given, by its name ("--set"). ``allows_unsafe``: changes may go below
    a safe minimum.
    """

    def __init__(
        self, static: Settings, given: Mapping[str, str] | None = None, *, allows_unsafe: bool = False
    ) -> None:
        self._static = static
        self._given = dict.fromkeys(_not_default(static), OURSELVES) | dict(given or {})
        self._allows_unsafe = allows_unsafe
        self._path = Path()
        self._disk = Disk()
        self.broker: Table = {}
        self.all_brokers: Table = {}
        self.settings = LiveSettings(**_values(static))
        self._changes: GroupCommit[SettingsDraft] = GroupCommit(self, OnCaller())

    def run_on(self, files: FileWork) -> None:
        """From now on write the file there; until then it is done on the caller's thread."""
        self._changes.files = files

    def load(self, folder: Path, disk: Disk | None = None, *, ignore: bool = False) -> None:
        """Read the changes that are kept in a data folder. Raises StartError when the file is damaged or too new.

        ``ignore``: log what the file says, and use none of it. The file stays until the next change replaces it.
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
        except BadValue as error:
            raise self._no_sense(error) from error
        self._warn_of_hidden()

    def _read(self) -> Saved:
        try:
            content = parse_json(read_file(self._disk, self._path))
            _check_object(content)
            self._check_version(content["version"])
            refuse_wrong(content, VERSION)
            return Saved(_checked(content["broker"]), _checked(content[ALL_BROKERS]))
        except FileNotFoundError:
            return Saved({}, {})
        except OSError as error:
            raise StartError(f"cannot read the changed settings '{self._path}': {error.strerror}") from error
        except (ValueError, KeyError, BadValue) as error:
            raise self._no_sense(error) from error

    def _no_sense(self, error: Exception) -> StartError:
        return StartError(
            f"the changed settings '{self._path}' make no sense: {_reason(error)}; correct the file and its checksum, "
            f"or start with --ignore-saved-settings to go back to what --set and the configuration file say"
        )

    def _check_version(self, version: object) -> None:
        if type(version) is not int or version < 1:
            raise BadValue(f"version {shown(version)}, expected {VERSION}")
        if version > VERSION:
            raise StartError(
                f"'{self._path}' has version {version}: expected at most {VERSION}; a later Callboard wrote it, use "
                f"that one"
            )

    def _log_ignored(self) -> None:
        try:
            saved = self._read()
        except StartError as error:
            log.warning("the saved settings are ignored, and cannot be read", reason=str(error))
            return
        for resource, table in (("broker", saved.broker), ("all brokers", saved.all_brokers)):
            for name, value in table.items():
                log.warning("a saved setting is ignored", setting=name, saved=shown(value), saved_for=resource)

    def _warn_of_hidden(self) -> None:
        """Whoever gives ``--set`` and finds another value at work should not have to search for the reason."""
        for name, where in self._given.items():
            given, value = getattr(self._static, name), getattr(self.settings, name)
            if (name in self.broker or name in self.all_brokers) and value != given:
                log.warning(
                    "a saved setting hides the one that was given; delete the change with IncrementalAlterConfigs, or"
                    " start with --ignore-saved-settings",
                    setting=name,
                    saved=shown(value),
                    given=shown(given),
                    given_by=where,
                )

    def check(self, broker: Table, all_brokers: Table) -> None:
        """Raise BadValue unless these could take the place of the changes that hold."""
        self._check_safe(broker, all_brokers)
        self._effective(broker, all_brokers)

    def change(self, make: Change, done: Callable[[Exception | None], None], *, changed_by: str = OURSELVES) -> None:
        """Take what ``make`` returns in place of the changes that hold, durably, then call ``done``.

        ``changed_by``: for the log. ``done`` gets None, or the error: what ``make`` has raised, BadValue, or OSError
        when the file cannot be written. After an error nothing has changed.
        """

        def apply(draft: SettingsDraft) -> bool:
            broker, all_brokers = make(draft.broker, draft.all_brokers)
            self.check(broker, all_brokers)
            draft.changes.append(SettingsChange(changed_by, draft.broker, draft.all_brokers, broker, all_brokers))
            draft.broker, draft.all_brokers = broker, all_brokers
            return True

        self._changes.submit(apply, done)

    def draft(self) -> SettingsDraft:
        """See ``group_commit.Table``, as for the following three."""
        return SettingsDraft(self.broker, self.all_brokers)

    def write(self, draft: SettingsDraft) -> None:
        whole = {"version": VERSION, "broker": draft.broker, ALL_BROKERS: draft.all_brokers}
        replace_file(self._disk, self._path, json.dumps(with_checksum(whole), indent=1).encode() + b"\n")

    def publish(self, draft: SettingsDraft) -> None:
        before = _values(self.settings)
        self._apply(draft.broker, draft.all_brokers)
        for change in draft.changes:
            self._log_change(change, before)

    def discard(self, draft: SettingsDraft) -> None:
        pass

    def _check_safe(self, *tables: Table) -> None:
        for name, value in [] if self._allows_unsafe else [item for table in tables for item in table.items()]:
            setting = BY_NAME[name]
            if is_unsafe(setting, value):
                raise BadValue(
                    f"invalid value {written(value)} for configuration {kafka_name(name)}: value must be at least"
                    f" {setting.safe_minimum} (a server that is started with --unsafe-settings takes less)"
                )

    def _log_change(self, change: SettingsChange, effective: Mapping[str, Any]) -> None:
        """One line for each setting of each resource, with the values before and what holds now."""
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
                        in_effect_before=shown(effective[name]),
                        in_effect_now=shown(getattr(self.settings, name)),
                        changed_by=change.changed_by,
                    )

    def origin(self, name: str) -> str:
        """Where the value that holds comes from, for the log."""
        if name in self.broker:
            return "changed for this broker"
        if name in self.all_brokers:
            return "changed for all brokers"
        return self._given.get(name, "default")

    def synonyms(self, setting: Setting) -> list[Synonym]:
        """All values that a setting has, the one that holds first."""
        name = setting.name
        found: list[tuple[Any, Source]] = [(self.broker[name], Source.BROKER)] if name in self.broker else []
        found += [(self.all_brokers[name], Source.ALL_BROKERS)] if name in self.all_brokers else []
        static = getattr(self._static, name)
        found += [(static, Source.STATIC)] if name in self._given else []
        found.append((setting.default, Source.DEFAULT))
        return [Synonym(kafka_name(name), written(value), source) for value, source in found]

    def _effective(self, broker: Table, all_brokers: Table) -> Settings:
        try:
            return Settings(**{**_values(self._static), **all_brokers, **broker})
        except StartError as error:  # of their own each is fine: two contradict each other
            raise BadValue(str(error)) from error

    def _apply(self, broker: Table, all_brokers: Table) -> None:
        self.settings.become(self._effective(broker, all_brokers))
        self.broker, self.all_brokers = dict(broker), dict(all_brokers)


def kafka_name(name: str) -> str:
    """A setting's name as Kafka writes it: with dots."""
    return name.replace("_", ".")


def find_dynamic(name: str) -> Setting | None:
    """The setting of Kafka's name that may change while the server runs; None if there is no such."""
    setting = BY_NAME.get(name.replace(".", "_"))
    return setting if setting is not None and setting.is_dynamic else None


def type_of(setting: Setting) -> Type:
    if setting.type is bool:
        return Type.BOOLEAN
    if setting.type is float:
        return Type.DOUBLE
    return Type.LONG if setting.maximum == LONG_MAX else Type.INT


def written(value: float | bool) -> str:
    return str(value).lower()


def parse(setting: Setting, text: str) -> float | bool:
    """A value as Kafka's clients write it. Raises BadValue."""
    what = f"invalid value {text[:80]} for configuration {kafka_name(setting.name)}"
    value = parse_value(setting, text.strip())
    if value is None:
        expected = "expected true or false" if setting.type is bool else f"not a number of type {type_of(setting).name}"
        raise BadValue(f"{what}: {expected}")
    _check_range(setting, value, what)
    return value


def _check_range(setting: Setting, value: Any, what: str) -> None:
    """NaN, which JSON may have, is in no range."""
    if setting.minimum is not None and not value >= setting.minimum:
        raise BadValue(f"{what}: value must be at least {setting.minimum}")
    if setting.maximum is not None and not value <= setting.maximum:
        raise BadValue(f"{what}: value must be no more than {setting.maximum}")


def _check_object(value: object) -> None:
    if not isinstance(value, dict):
        raise BadValue(f"found a {type(value).__name__}, expected a JSON object")


def _reason(error: Exception) -> str:
    return f"found no field {error}" if isinstance(error, KeyError) else str(error)


def _values(settings: Settings) -> dict[str, Any]:
    return {setting.name: getattr(settings, setting.name) for setting in SETTINGS}


def _not_default(settings: Settings) -> list[str]:
    return [setting.name for setting in SETTINGS if getattr(settings, setting.name) != setting.default]


def _shown_or_not(value: float | bool | None) -> str:
    return NOT_SET if value is None else shown(value)


def _checked(table: Mapping[str, Any]) -> Table:
    """A table as it stands in the file. Raises BadValue."""
    _check_object(table)
    for name, value in table.items():
        setting = BY_NAME.get(name)
        if setting is None or not setting.is_dynamic:
            raise BadValue(f"'{name}' is no setting that changes while the server runs")
        if not has_type(setting, value):
            raise BadValue(f"{name} is {shown(value)}, expected {setting.expected}")
        _check_range(setting, value, f"{name} is {shown(value)}")
    return table
