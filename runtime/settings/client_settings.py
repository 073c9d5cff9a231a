"""Security settings of clients: of commands, members, and nodes of a cluster that connect to each other.

A file has lines of NAME=VALUE with Kafka's names, like the ``--command-config`` of Kafka's tools. The environment
variable of a setting is its name in upper case, with underscores and ``CALLBOARD_`` before it. The file overrides it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ...actors.text import did_you_mean
from ..common.errors import StartError
from .listener_settings import BY_NAME, ENDPOINT_CHECK, OWN_WORDS, TLS_WORDS, ListenerSetting, ListenerValues
from .listeners import PLAINTEXT, SSL, TLS_PROTOCOLS

CLIENT_PROTOCOLS: Final = (PLAINTEXT, SSL)
PROTOCOL: Final = ListenerSetting(
    "security_protocol", PLAINTEXT, "The protocol of the servers' listener.", tuple(map(str.lower, CLIENT_PROTOCOLS))
)
ONLY_OF_LISTENERS: Final = frozenset(
    {"ssl_client_auth", "ssl_principal_mapping_rules", "ssl_allow_dn_changes", "ssl_allow_san_changes"}
)
CLIENT_SETTINGS: Final = {
    setting.name: setting
    for setting in (PROTOCOL, *BY_NAME.values())
    if setting is PROTOCOL or (setting.name.startswith(TLS_WORDS) and setting.name not in ONLY_OF_LISTENERS)
}
WORDS: Final = ("security_", *OWN_WORDS)
"""The beginnings of the names. Other lines of a file are for other programs."""


class ClientSettings(NamedTuple):
    """``values``: the given ones by name."""

    protocol: str = PLAINTEXT
    values: ListenerValues = {}

    @property
    def has_tls(self) -> bool:
        return self.protocol in TLS_PROTOCOLS

    @property
    def checks_host(self) -> bool:
        """Whether the server's certificate must have the name by which the client connects."""
        return bool(self.values.get(ENDPOINT_CHECK, BY_NAME[ENDPOINT_CHECK].default).strip())


def load_client_settings(file: Path | None, environment: Mapping[str, str]) -> ClientSettings:
    """Raises StartError for a file that cannot be read, an unknown name, and a value that is not valid."""
    return parse_client_settings({} if file is None else read_properties(file), environment, f"in '{file}'")


def parse_client_settings(
    given: Mapping[str, str], environment: Mapping[str, str], place: str = "of a client"
) -> ClientSettings:
    """``given``: values by Kafka's names. ``place``: where they are, for errors. Raises StartError."""
    values = {
        setting.name: setting.checked(environment[setting.variable], setting.variable)
        for setting in CLIENT_SETTINGS.values()
        if setting.variable in environment
    }
    for name, value in given.items():
        values |= _checked(place, name, value)
    return make_client_settings(values)


def make_client_settings(values: Mapping[str, str]) -> ClientSettings:
    """``values``: checked ones. Raises StartError if settings of TLS are given, but not its protocol."""
    settings = ClientSettings(values.get(PROTOCOL.name, PLAINTEXT).upper(), values)
    tls = [name for name in values if name.startswith(TLS_WORDS) and not CLIENT_SETTINGS[name].is_secret]
    if tls and not settings.has_tls:
        raise StartError(
            f"{tls[0]} is given, but {PROTOCOL.name} is {settings.protocol}: expected one of"
            f" {', '.join(sorted(TLS_PROTOCOLS))}"
        )
    return settings


def read_properties(path: Path) -> dict[str, str]:
    """The settings in a file of NAME=VALUE. Raises StartError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StartError(f"cannot read the client's settings '{path}': {reason}") from error
    lines = [line.strip() for line in text.replace("\\\n", "").splitlines()]
    values: dict[str, str] = {}
    for line in lines:
        if line and not line.startswith(("#", "!")):
            name, _, value = line.partition("=")
            values[name.strip()] = value.strip().replace("\\n", "\n")
    return values


def _checked(place: str, name: str, value: object) -> dict[str, str]:
    """One setting; nothing if it is not about security."""
    own_name = name.replace(".", "_").lower()
    setting = CLIENT_SETTINGS.get(own_name)
    if setting is not None:
        return {own_name: setting.checked(value, name)}
    if own_name.startswith(WORDS):
        known = [each.replace("_", ".") for each in CLIENT_SETTINGS]
        raise StartError(f"unknown setting '{name}' {place}:{did_you_mean(name, known)} known are {', '.join(known)}")
    return {}
