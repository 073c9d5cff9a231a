"""The limits of single listeners, which may change while the server runs, as in Kafka.

``listener_name_NAME_max_connections`` is a row like that of ``max_connections``, for the listener NAME.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from .listener_settings import BY_NAME as LISTENER_SETTINGS
from .listener_settings import CREATION_RATE, MAX_CONNECTIONS, own_prefix
from .listeners import Listener
from .rows import INT_MAX, LISTENER_PREFIX, Setting, SettingValue
from .table import BY_NAME, find_setting

NAME: Final = re.compile(rf"{LISTENER_PREFIX}(.+)_({MAX_CONNECTIONS}|{CREATION_RATE})")
SEPARATORS: Final = re.compile(r"[.-]")


def find_limit(name: str) -> Setting | None:
    """The row with this name, which may have Kafka's form, whether the listener exists or not. None for another name.

    The minimum is Kafka's: a listener without a place would lock out those who could change it.
    """
    match = NAME.fullmatch(SEPARATORS.sub("_", name).lower())
    if match is None:
        return None
    return BY_NAME[match[2]]._replace(name=match[0], minimum=1, doc=LISTENER_SETTINGS[match[2]].doc)


def find_row(name: str) -> Setting:
    """The row of a setting of the server or of a limit of one listener. Raises StartError."""
    return find_limit(name) or find_setting(name)


def setting_of_all(limit: Setting) -> Setting:
    """The setting that limits the connections of all listeners together."""
    match = NAME.fullmatch(limit.name)
    assert match is not None
    return BY_NAME[match[2]]


def kafka_limit_name(name: str) -> str | None:
    """Kafka's name of a limit of one listener; None for another name."""
    match = NAME.fullmatch(name)
    return None if match is None else _kafka_name(match[1], match[2])


def is_limit(name: str) -> bool:
    return name.startswith(LISTENER_PREFIX)


class ListenerLimits:
    """The limits in effect: those that were changed, else those of the start.

    ``given``: those of the start, by name. ``rows``: of all listeners. Changes for a listener that does not exist, or
    no longer, are ignored.
    """

    def __init__(self, listeners: Sequence[Listener] = ()) -> None:
        self.listeners = tuple(listener.name for listener in listeners)
        self.given: dict[str, int] = {}
        self.rows: list[Setting] = []
        self._kafka_names: dict[str, str] = {}
        self._changed: Mapping[str, SettingValue] = {}
        self._in_effect: dict[tuple[str, str], int] = {}
        for listener in listeners:
            self._add(listener)
        self.change({})

    def _add(self, listener: Listener) -> None:
        values = {MAX_CONNECTIONS: listener.max_connections, CREATION_RATE: listener.max_connection_creation_rate}
        for limit, value in values.items():
            name = f"{own_prefix(listener.name)}{limit}"
            self._kafka_names[name] = _kafka_name(listener.name.lower(), limit)
            self.rows.append(find_row(name))
            if limit in listener.settings:
                self.given[name] = value

    def change(self, values: Mapping[str, SettingValue]) -> None:
        """Replace the changes, which may include other settings."""
        self._changed = {name: values[name] for name in self._kafka_names if name in values}
        self._in_effect = {
            (listener, limit): int(self.value(f"{own_prefix(listener)}{limit}"))
            for listener in self.listeners
            for limit in (MAX_CONNECTIONS, CREATION_RATE)
        }

    def max_connections(self, listener: str) -> int:
        return self._in_effect.get((listener, MAX_CONNECTIONS), INT_MAX)

    def creation_rate(self, listener: str) -> int:
        """Connections that may begin in a second."""
        return self._in_effect.get((listener, CREATION_RATE), INT_MAX)

    def value(self, name: str) -> SettingValue:
        return self._changed.get(name, self.given.get(name, INT_MAX))

    def values(self) -> dict[str, SettingValue]:
        return {row.name: self.value(row.name) for row in self.rows}

    def kafka_name(self, name: str) -> str:
        return self._kafka_names[name]

    def has(self, name: str) -> bool:
        """Whether it is a limit of a listener that exists."""
        return name in self._kafka_names

    def set_rows(self) -> Iterator[Setting]:
        """The rows of limits that were given or changed."""
        return (row for row in self.rows if row.name in self.given or row.name in self._changed)


def _kafka_name(listener: str, limit: str) -> str:
    return f"listener.name.{listener}.{limit.replace('_', '.')}"
