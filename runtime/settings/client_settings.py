"""Security settings of clients: of commands, members, and nodes of a cluster that connect to each other.

A file has lines of NAME=VALUE with Kafka's names, like the ``--command-config`` of Kafka's tools. The environment
variable of a setting is its name in upper case, with underscores and ``CALLBOARD_`` before it. The file overrides it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ...actors.text import did_you_mean
from ..common.errors import StartError
from .listener_settings import (
    BY_NAME,
    ENDPOINT_CHECK,
    OWN_WORDS,
    SASL_MECHANISM,
    SASL_PASSWORD,
    SASL_USERNAME,
    TLS_WORDS,
    TOKEN_CLIENT_ID,
    TOKEN_CLIENT_SECRET,
    TOKEN_ENDPOINT,
    TOKEN_SCOPE,
    ListenerSetting,
    ListenerValues,
    value_of,
)
from .listeners import PLAINTEXT, PROTOCOLS, SASL_PROTOCOLS, TLS_PROTOCOLS
from .properties import parse_properties
from .urls import check_url

PROTOCOL: Final = ListenerSetting(
    "security_protocol", PLAINTEXT, "The protocol of the servers' listener.", tuple(map(str.lower, PROTOCOLS))
)
ONLY_OF_LISTENERS: Final = frozenset(
    {"ssl_client_auth", "ssl_principal_mapping_rules", "ssl_allow_dn_changes", "ssl_allow_san_changes"}
)
JAAS_CONFIG: Final = ListenerSetting(
    "sasl_jaas_config", "", "User and password as for Java's clients: ...LoginModule required ...", is_secret=True
)
JAAS_OPTION: Final = re.compile(
    r"""\b(?P<name>username|password|clientId|clientSecret|scope)\s*=\s*"""
    r"""(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<bare>[^\s;"']+))"""
)
ONLY_OF_JAVA: Final = frozenset({"sasl_login_callback_handler_class"})
"""Names classes. Other clients have no use for them."""
OAUTHBEARER: Final = "OAUTHBEARER"
CLIENT_SETTINGS: Final = {
    setting.name: setting
    for setting in (
        PROTOCOL,
        *(BY_NAME[name] for name in (SASL_MECHANISM, SASL_USERNAME, SASL_PASSWORD)),
        *(BY_NAME[name] for name in (TOKEN_ENDPOINT, TOKEN_CLIENT_ID, TOKEN_CLIENT_SECRET, TOKEN_SCOPE)),
        JAAS_CONFIG,
        *(row for row in BY_NAME.values() if row.name.startswith(TLS_WORDS) and row.name not in ONLY_OF_LISTENERS),
    )
}
WORDS: Final = ("security_", *OWN_WORDS)
"""The beginnings of the names. Other lines of a file are for other programs."""


class Login(NamedTuple):
    """As whom a client authenticates by SASL. ``password``: with OAUTHBEARER the token, which names the user."""

    mechanism: str
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.mechanism}, {self.user!r})"  # no secrets in log lines

    @property
    def subject(self) -> str:
        """For errors."""
        return "the owner of the token" if self.mechanism == OAUTHBEARER else f"user '{self.user}'"


class TokenSource(NamedTuple):
    """Where a client has its tokens from, for OAUTHBEARER. ``url``: a file, or an endpoint with ``https``.

    ``client_id``, ``client_secret``, ``scope``: for an endpoint. ``scope``: "" for its default.
    """

    url: str
    client_id: str = ""
    client_secret: str = ""
    scope: str = ""

    def __repr__(self) -> str:
        return f"TokenSource({self.url!r}, {self.client_id!r})"  # no secrets in log lines

    @property
    def is_file(self) -> bool:
        return self.url.startswith("file:")


class ClientSettings(NamedTuple):
    """``values``: the given ones by name."""

    protocol: str = PLAINTEXT
    values: ListenerValues = {}

    @property
    def has_tls(self) -> bool:
        return self.protocol in TLS_PROTOCOLS

    @property
    def credentials(self) -> Login | TokenSource | None:
        """None without SASL. Raises StartError if one of them is missing."""
        if self.protocol not in SASL_PROTOCOLS:
            return None
        mechanism = value_of(self.values, SASL_MECHANISM).upper()
        if mechanism == OAUTHBEARER:
            return self._token_source()
        user, password = self._with_jaas(SASL_USERNAME, "username"), self._with_jaas(SASL_PASSWORD, "password")
        if not user or not password:
            raise self._missing(SASL_PASSWORD if user else SASL_USERNAME, "a user and a password")
        return Login(mechanism, user, password)

    def _token_source(self) -> TokenSource:
        source = TokenSource(
            self.values.get(TOKEN_ENDPOINT, ""),
            self._with_jaas(TOKEN_CLIENT_ID, "clientId"),
            self._with_jaas(TOKEN_CLIENT_SECRET, "clientSecret"),
            self._with_jaas(TOKEN_SCOPE, "scope"),
        )
        if not source.url:
            raise self._missing(TOKEN_ENDPOINT, "tokens")
        try:
            check_url(source.url)
        except ValueError as error:
            raise StartError(f"bad value '{source.url}' for setting '{TOKEN_ENDPOINT}': {error}") from None
        if not source.is_file and not (source.client_id and source.client_secret):
            missing = TOKEN_CLIENT_SECRET if source.client_id else TOKEN_CLIENT_ID
            raise self._missing(missing, "the id and the secret of the client")
        return source

    def _with_jaas(self, name: str, option: str) -> str:
        """The value of a setting, or else of an option of ``sasl.jaas.config``."""
        return self.values.get(name) or _jaas_options(self.values.get(JAAS_CONFIG.name, "")).get(option, "")

    def _missing(self, name: str, what: str) -> StartError:
        return StartError(
            f"the protocol {self.protocol} needs {what}: expected {name.replace('_', '.')} in the settings, or the"
            f" environment variable {BY_NAME[name].variable}"
        )

    @property
    def checks_host(self) -> bool:
        """Whether the server's certificate must have the name by which the client connects."""
        return bool(self.values.get(ENDPOINT_CHECK, BY_NAME[ENDPOINT_CHECK].default).strip())


def load_client_settings(file: Path | None, environment: Mapping[str, str]) -> ClientSettings:
    """Raises StartError for a file that cannot be read, an unknown name, and a value that is not valid."""
    return parse_client_settings({} if file is None else read_properties(file), environment, f"in '{file}'")


def path_of_settings(security: object) -> Path:
    """What a program gives instead of settings by name. Raises StartError for another type, without the value."""
    if isinstance(security, str | Path):
        return Path(security)
    raise StartError(
        f"bad security of type {type(security).__name__}: expected a path, or settings by name, as in"
        " {'security.protocol': 'SSL'}"
    )


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
    if values.get(SASL_USERNAME) and settings.protocol not in SASL_PROTOCOLS:
        raise StartError(
            f"{SASL_USERNAME} is given, but {PROTOCOL.name} is {settings.protocol}: expected one of"
            f" {', '.join(sorted(SASL_PROTOCOLS))}"
        )
    return settings


def _jaas_options(text: str) -> dict[str, str]:
    """The options of a login module by name. A value may have either kind of quotation marks, or none, as in Java."""
    return {
        match["name"]: match["bare"] or re.sub(r"\\(.)", r"\1", match["double"] or match["single"] or "")
        for match in JAAS_OPTION.finditer(text)
    }


def read_properties(path: Path) -> dict[str, str]:
    """The settings in a file of NAME=VALUE. Raises StartError."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors on Windows may write a byte order mark
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StartError(f"cannot read the client's settings '{path}': {reason}") from error
    return {name: value.strip() for name, value in parse_properties(text).items()}


def _checked(place: str, name: object, value: object) -> dict[str, str]:
    """One setting; nothing if it is not about security."""
    if not isinstance(name, str):
        raise StartError(f"bad name {name!r} of a setting {place}: expected a text, as in 'security.protocol'")
    own_name = name.replace(".", "_").lower()
    setting = CLIENT_SETTINGS.get(own_name)
    if setting is not None:
        return {own_name: setting.checked(value, name)}
    if own_name.startswith(WORDS) and own_name not in ONLY_OF_JAVA:
        known = [each.replace("_", ".") for each in CLIENT_SETTINGS]
        raise StartError(f"unknown setting '{name}' {place}:{did_you_mean(name, known)} known are {', '.join(known)}")
    return {}
