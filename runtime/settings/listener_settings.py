"""Settings of listeners: TLS, and what else may differ between the listeners of one server.

Names and values are Kafka's. A name holds for all listeners; with ``listener.name.NAME.`` before it, NAME in lower
case, for one. Dots may be underscores, as in the names of all settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...actors.text import did_you_mean
from ..common.errors import StartError
from .rows import INT_MAX, LISTENER_PREFIX

TLS_WORDS: Final = ("ssl_",)
OWN_WORDS: Final = (*TLS_WORDS, "sasl_")
"""The beginnings of names that only settings of listeners have."""
SECRET_VARIABLE: Final = "CALLBOARD_"
NOT_FOR_NAMES: Final = re.compile(r"[.-]")
NUMBER: Final = re.compile(r"[0-9]{1,10}")


class Secret(str):
    """A text that must not be shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'(hidden)'"


class ListenerSetting(NamedTuple):
    """One setting. ``default``: "" for none. ``choices``: the valid values; empty for any text.

    ``is_secret``: it is never shown, and not taken from a command line. ``is_own``: it is given for single listeners
    only; without their prefix the name is that of a setting of the server.
    """

    name: str
    default: str
    doc: str
    choices: tuple[str, ...] = ()
    is_secret: bool = False
    is_own: bool = False

    @property
    def is_dynamic(self) -> bool:
        """Whether it may change while the server runs."""
        return self.name in (MAX_CONNECTIONS, CREATION_RATE)

    @property
    def variable(self) -> str:
        """The environment variable of a secret."""
        return f"{SECRET_VARIABLE}{self.name.upper()}"

    def checked(self, value: object, given_as: str) -> str:
        """Raises StartError for a value that is no text, or not valid."""
        if isinstance(value, int):
            value = str(value).lower()
        if not isinstance(value, str):
            shown = f"of type {type(value).__name__}" if self.is_secret else repr(value)
            raise StartError(f"bad value {shown} for setting '{given_as}': expected a text")
        word = value.strip().lower() if self.choices else value
        if self.choices and word not in self.choices:
            raise StartError(f"bad value '{value}' for setting '{given_as}': expected one of {', '.join(self.choices)}")
        return Secret(word) if self.is_secret else word


BOOLEAN: Final = ("true", "false")

ENDPOINT_CHECK: Final = "ssl_endpoint_identification_algorithm"

MAX_CONNECTIONS: Final = "max_connections"
CREATION_RATE: Final = "max_connection_creation_rate"
SASL_MECHANISM: Final = "sasl_mechanism"
SASL_USERNAME: Final = "sasl_username"
SASL_PASSWORD: Final = "sasl_password"
TOKEN_ENDPOINT: Final = "sasl_oauthbearer_token_endpoint_url"
TOKEN_CLIENT_ID: Final = "sasl_oauthbearer_client_credentials_client_id"
TOKEN_CLIENT_SECRET: Final = "sasl_oauthbearer_client_credentials_client_secret"
TOKEN_SCOPE: Final = "sasl_oauthbearer_scope"

LISTENER_SETTINGS: Final = (
    ListenerSetting(
        "ssl_keystore_location",
        "",
        "A PEM file with the server's private key and its certificates, its own first. It is read again when it"
        " changes, and on SIGHUP.",
    ),
    ListenerSetting("ssl_keystore_type", "pem", "The form of the keystore.", ("pem",)),
    ListenerSetting(
        "ssl_keystore_key", "", "The private key as PEM text, instead of ssl_keystore_location.", is_secret=True
    ),
    ListenerSetting("ssl_keystore_certificate_chain", "", "The certificates that belong to ssl_keystore_key, as PEM."),
    ListenerSetting("ssl_key_password", "", "The password of the private key.", is_secret=True),
    ListenerSetting(
        "ssl_truststore_location",
        "",
        "A PEM file with the certificates of the authorities whose clients are trusted. It is read again like the"
        " keystore.",
    ),
    ListenerSetting("ssl_truststore_type", "pem", "The form of the truststore.", ("pem",)),
    ListenerSetting("ssl_truststore_certificates", "", "The same as PEM text, instead of ssl_truststore_location."),
    ListenerSetting(
        "ssl_client_auth",
        "none",
        "Whether clients need a certificate. A client without one, where it is requested, is User:ANONYMOUS.",
        ("none", "requested", "required"),
    ),
    ListenerSetting("ssl_enabled_protocols", "TLSv1.2,TLSv1.3", "The versions of TLS: TLSv1.2, TLSv1.3, or both."),
    ListenerSetting(
        "ssl_cipher_suites",
        "",
        "The ciphers of TLSv1.2, by OpenSSL's names; OpenSSL's choice if empty. Those of TLSv1.3 are always OpenSSL's.",
    ),
    ListenerSetting(
        "ssl_principal_mapping_rules",
        "DEFAULT",
        "Rules that make the name of a client from the name in its certificate: RULE:PATTERN/REPLACEMENT/[LU] or"
        " DEFAULT, with commas.",
    ),
    ListenerSetting(
        ENDPOINT_CHECK,
        "https",
        "Whether a client, and so a node that connects to another one, checks that the certificate has the name that"
        " it connects to: https, or empty not to check.",
    ),
    ListenerSetting(
        "ssl_allow_dn_changes", "false", "Whether a changed certificate may have another distinguished name.", BOOLEAN
    ),
    ListenerSetting(
        "ssl_allow_san_changes", "false", "Whether a changed certificate may lack alternative names.", BOOLEAN
    ),
    ListenerSetting(
        "sasl_enabled_mechanisms",
        "SCRAM-SHA-256,SCRAM-SHA-512",
        "The mechanisms by which clients may authenticate: SCRAM-SHA-256, SCRAM-SHA-512, PLAIN, OAUTHBEARER.",
    ),
    ListenerSetting(
        "allow_plain_without_tls",
        "false",
        "Whether PLAIN and OAUTHBEARER may be enabled without TLS: then passwords and tokens can be read on the"
        " network. Not in Kafka.",
        BOOLEAN,
    ),
    ListenerSetting(
        "sasl_server_max_receive_size", "524288", "The largest request of a client that is not authenticated yet."
    ),
    ListenerSetting(
        "connection_failed_authentication_delay_ms",
        "100",
        "After this time a failed authentication is answered, and the connection closed.",
    ),
    ListenerSetting(
        "authentication_timeout_ms",
        "30000",
        "A client that has not authenticated by SASL after this time is disconnected. In Kafka"
        " connections.max.idle.ms is the only limit.",
    ),
    ListenerSetting(
        "connections_max_reauth_ms",
        "0",
        "A client that has not authenticated again after this time is disconnected at its next request (KIP-368);"
        " 0: never.",
    ),
    ListenerSetting(
        MAX_CONNECTIONS,
        str(INT_MAX),
        "The maximum number of connections of one listener that are served; further ones wait.",
        is_own=True,
    ),
    ListenerSetting(
        CREATION_RATE,
        str(INT_MAX),
        "The maximum number of connections of one listener that begin in a second; further ones wait.",
        is_own=True,
    ),
    ListenerSetting(
        SASL_MECHANISM,
        "scram-sha-512",
        "The mechanism by which a client, and so a node that connects to another one, authenticates.",
        ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer"),
    ),
    ListenerSetting(SASL_USERNAME, "", "The user name of a client, or of a node that connects to another one."),
    ListenerSetting(SASL_PASSWORD, "", "The password of that user.", is_secret=True),
    ListenerSetting(
        TOKEN_ENDPOINT,
        "",
        "Where the tokens of a client, or of a node that connects to another one, are: file:///PATH, which is read for"
        " each login, or https://HOST/PATH, which is asked for them with client credentials.",
    ),
    ListenerSetting(TOKEN_CLIENT_ID, "", "The id of the client, for an endpoint with https."),
    ListenerSetting(TOKEN_CLIENT_SECRET, "", "The secret of the client, for an endpoint with https.", is_secret=True),
    ListenerSetting(TOKEN_SCOPE, "", "The scope that tokens are asked for; that of the endpoint if empty."),
    ListenerSetting(
        "sasl_oauthbearer_jwks_endpoint_url",
        "",
        "Where the public keys of tokens are: file:///PATH or https://HOST/PATH. Needed for OAUTHBEARER.",
    ),
    ListenerSetting(
        "sasl_oauthbearer_jwks_endpoint_refresh_ms", "3600000", "How often the public keys of tokens are read again."
    ),
    ListenerSetting(
        "sasl_oauthbearer_expected_audience", "", "Tokens must be for one of these audiences; any if empty."
    ),
    ListenerSetting("sasl_oauthbearer_expected_issuer", "", "Tokens must be of this issuer; any if empty."),
    ListenerSetting(
        "sasl_oauthbearer_clock_skew_seconds", "30", "By how much the clock of the issuer may differ from the server's."
    ),
    ListenerSetting("sasl_oauthbearer_sub_claim_name", "sub", "The claim of tokens that has the name of the user."),
    ListenerSetting("sasl_oauthbearer_scope_claim_name", "scope", "The claim of tokens that has the scopes."),
    ListenerSetting("sasl_oauthbearer_required_scope", "", "Tokens must have this scope; any if empty. Not in Kafka."),
    ListenerSetting(
        "sasl_oauthbearer_allow_unsigned",
        "false",
        "Takes tokens without a signature, which anybody can make: only for tests. Kafka's default.",
        BOOLEAN,
    ),
)
"""The rows. Those of one listener are in ``Listener.settings``."""
BY_NAME: Final = {setting.name: setting for setting in LISTENER_SETTINGS}

ListenerValues = Mapping[str, str]
"""Given values by name."""


class GivenSettings(NamedTuple):
    """``listeners``: the given settings of listeners. The others are settings of the server."""

    listeners: dict[str, str]
    table: dict[str, Any]
    overrides: list[str]


def split_settings(table: Mapping[str, object], overrides: Sequence[str]) -> GivenSettings:
    """Divide the settings of a file, and those of ``--set``, which override them. Raises StartError."""
    given: dict[str, str] = {}
    others: dict[str, Any] = {}
    for name, value in table.items():
        if (setting := find_listener_setting(name)) is None:
            others[name] = value
        else:
            given[_normal(name)] = setting.checked(value, name)
    other_overrides = []
    for text in overrides:
        name, equals, word = text.partition("=")
        if (setting := find_listener_setting(name.strip())) is None or not equals:
            other_overrides.append(text)
        elif setting.is_secret:
            raise StartError(
                f"'{setting.name}' is a secret, and others can see a command line: expected it in the configuration"
                f" file, or in the environment variable {setting.variable}"
            )
        else:
            given[_normal(name.strip())] = setting.checked(word.strip(), name.strip())
    return GivenSettings(given, others, other_overrides)


def find_listener_setting(name: str) -> ListenerSetting | None:
    """The setting with this name, which may have the prefix of a listener. None if it is no setting of listeners."""
    normal = _normal(name)
    if not normal.startswith(LISTENER_PREFIX):
        if normal.startswith(OWN_WORDS) and normal not in BY_NAME:
            raise StartError(f"unknown setting '{name}':{did_you_mean(normal, BY_NAME)} `callboard settings` lists all")
        row = BY_NAME.get(normal)
        return None if row is None or row.is_own else row
    found = [setting for setting in LISTENER_SETTINGS if normal.endswith(f"_{setting.name}")]
    if not found:
        raise StartError(
            f"unknown setting '{name}': expected {LISTENER_PREFIX}NAME_SETTING, with one of {', '.join(BY_NAME)}"
        )
    return max(found, key=lambda setting: len(setting.name))


def values_of_listener(given: Mapping[str, str], listener: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The given values that hold for a listener: its own, else those for all, else secrets of the environment."""
    secrets = {
        setting.name: Secret(environment[setting.variable])
        for setting in LISTENER_SETTINGS
        if setting.is_secret and environment.get(setting.variable)
    }
    common = {name: value for name, value in given.items() if not name.startswith(LISTENER_PREFIX)}
    prefix = own_prefix(listener)
    own = {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}
    return secrets | common | {name: value for name, value in own.items() if name in BY_NAME}


def check_listener_names(given: Iterable[str], listeners: Sequence[str]) -> None:
    """Raise StartError for a setting of a listener that does not exist."""
    valid = {f"{own_prefix(listener)}{name}" for listener in listeners for name in BY_NAME}
    for name in given:
        if name.startswith(LISTENER_PREFIX) and name not in valid:
            raise StartError(
                f"setting '{name}' is of a listener that does not exist: expected one of the prefixes"
                f" {', '.join(own_prefix(listener) for listener in listeners)}"
            )


def own_prefix(listener: str) -> str:
    return f"{LISTENER_PREFIX}{_normal(listener)}_"


def value_of(values: ListenerValues, name: str) -> str:
    """The given value of a setting, or its default."""
    return values.get(name) or BY_NAME[name].default


def number_of(values: ListenerValues, name: str) -> int:
    """The same as a number. Raises StartError if it is none."""
    word = value_of(values, name)
    if not NUMBER.fullmatch(word) or int(word) > INT_MAX:
        raise StartError(f"bad value '{word}' for setting '{name}': expected a whole number from 0 to {INT_MAX}")
    return int(word)


def _normal(name: str) -> str:
    return NOT_FOR_NAMES.sub("_", name).lower()
