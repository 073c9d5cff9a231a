"""Settings that change while the server runs, and the file that keeps the changes: ``settings.json``.

Where a value comes from is Kafka's: what was set for this broker wins over what was set for all brokers, that over the
command line and the configuration file, those over the default. So ``--set`` gives the value that holds until somebody
changes it with IncrementalAlterConfigs, and again when the change is deleted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from .config import BY_NAME, LONG_MAX, NUMBER, SETTINGS, Setting, Settings, shown
from .errors import StartError
from .file_work import FileWork, OnCaller
from .group_commit import GroupCommit
from .log.disk import Disk, read_file, replace_file

FILE_NAME = "settings.json"
VERSION = 1
ALL_BROKERS = "default"  # and "broker": the keys in the file

Table = Mapping[str, int | bool]
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


class SettingsDraft:
    """Changes that share a write."""

    def __init__(self, broker: Table, all_brokers: Table) -> None:
        self.broker = broker
        self.all_brokers = all_brokers


class DynamicSettings:
    """The changes, on top of what the server was started with. ``settings`` is always what holds now."""

    def __init__(self, static: Settings) -> None:
        self._static = static
        self._path = Path()
        self._disk = Disk()
        self.broker: Table = {}
        self.all_brokers: Table = {}
        self.settings = LiveSettings(**_values(static))
        self._changes: GroupCommit[SettingsDraft] = GroupCommit(self, OnCaller())

    def run_on(self, files: FileWork) -> None:
        """From now on write the file there; until then it is done on the caller's thread."""
        self._changes.files = files

    def load(self, folder: Path, disk: Disk | None = None) -> None:
        """Read the changes that are kept in a data folder. Raises StartError when the file is damaged or too new."""
        self._path = folder / FILE_NAME
        self._disk = disk or self._disk
        try:
            found = json.loads(read_file(self._disk, self._path))
            self._check_version(found["version"])
            broker, all_brokers = _checked(found["broker"]), _checked(found[ALL_BROKERS])
            self._apply(broker, all_brokers)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StartError(f"cannot read the changed settings '{self._path}': {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError, BadValue) as error:
            raise StartError(
                f"the changed settings '{self._path}' make no sense: {error!r}; correct the file, or delete it to go "
                f"back to what --set and the configuration file say"
            ) from error

    def _check_version(self, version: object) -> None:
        if type(version) is not int or version < 1:
            raise BadValue(f"version {shown(version)}, expected {VERSION}")
        if version > VERSION:
            raise StartError(
                f"'{self._path}' has version {version}: expected at most {VERSION}; a later Callboard wrote it, use "
                f"that one"
            )

    def check(self, broker: Table, all_brokers: Table) -> None:
        """Raise BadValue unless these could take the place of the changes that hold."""
        self._effective(broker, all_brokers)

    def change(self, make: Change, done: Callable[[Exception | None], None]) -> None:
        """Take what ``make`` returns in place of the changes that hold, durably, then call ``done``.

        It hears what ``make`` has raised, BadValue, or OSError when the file cannot be written: nothing has changed.
        """

        def apply(draft: SettingsDraft) -> bool:
            broker, all_brokers = make(draft.broker, draft.all_brokers)
            self.check(broker, all_brokers)
            draft.broker, draft.all_brokers = broker, all_brokers
            return True

        self._changes.submit(apply, done)

    def draft(self) -> SettingsDraft:
        """See ``group_commit.Table``, as for the following three."""
        return SettingsDraft(self.broker, self.all_brokers)

    def write(self, draft: SettingsDraft) -> None:
        whole = {"version": VERSION, "broker": draft.broker, ALL_BROKERS: draft.all_brokers}
        replace_file(self._disk, self._path, json.dumps(whole, indent=1).encode() + b"\n")

    def publish(self, draft: SettingsDraft) -> None:
        self._apply(draft.broker, draft.all_brokers)

    def discard(self, draft: SettingsDraft) -> None:
        pass

    def synonyms(self, setting: Setting) -> list[Synonym]:
        """All values that a setting has, the one that holds first."""
        name = setting.name
        found: list[tuple[Any, Source]] = [(self.broker[name], Source.BROKER)] if name in self.broker else []
        found += [(self.all_brokers[name], Source.ALL_BROKERS)] if name in self.all_brokers else []
        static = getattr(self._static, name)
        found += [(static, Source.STATIC)] if static != setting.default else []
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


def parse(setting: Setting, text: str) -> int | bool:
    """A value as Kafka's clients write it. Raises BadValue."""
    what = f"invalid value {text[:80]} for configuration {kafka_name(setting.name)}"
    word = text.strip()
    if setting.type is bool:
        if word.lower() not in ("true", "false"):
            raise BadValue(f"{what}: expected true or false")
        return word.lower() == "true"
    if not NUMBER.fullmatch(word):
        raise BadValue(f"{what}: not a number of type {type_of(setting).name}")
    _check_range(setting, int(word), what)
    return int(word)


def _check_range(setting: Setting, value: Any, what: str) -> None:
    if setting.minimum is not None and value < setting.minimum:
        raise BadValue(f"{what}: value must be at least {setting.minimum}")
    if setting.maximum is not None and value > setting.maximum:
        raise BadValue(f"{what}: value must be no more than {setting.maximum}")


def _values(settings: Settings) -> dict[str, Any]:
    return {setting.name: getattr(settings, setting.name) for setting in SETTINGS}


def _checked(table: Mapping[str, Any]) -> Table:
    """A table as it stands in the file. Raises BadValue."""
    for name, value in table.items():
        setting = BY_NAME.get(name)
        if setting is None or not setting.is_dynamic:
            raise BadValue(f"'{name}' is no setting that changes while the server runs")
        if type(value) is not setting.type:
            raise BadValue(f"{name} is {shown(value)}, expected {setting.expected}")
        _check_range(setting, value, f"{name} is {shown(value)}")
    return table
