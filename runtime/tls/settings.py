"""The settings of TLS of one listener, checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from ssl import CERT_NONE, CERT_OPTIONAL, CERT_REQUIRED, TLSVersion, VerifyMode
from typing import Final, NamedTuple

from ..common.errors import StartError
from ..settings.listener_settings import ListenerValues, value_of
from ..settings.paths import parse_path
from .pem import read_pem
from .principal_rules import Rule, parse_rules

VERSIONS: Final = {"TLSv1.2": TLSVersion.TLSv1_2, "TLSv1.3": TLSVersion.TLSv1_3}
CLIENT_AUTH: Final[dict[str, VerifyMode]] = {
    "none": CERT_NONE,
    "requested": CERT_OPTIONAL,
    "required": CERT_REQUIRED,
}


class PemSource(NamedTuple):
    """PEM in a file or in a setting. ``setting``: its name, for errors. ``path``: None if ``text`` has it."""

    setting: str
    path: Path | None
    text: str = ""
    is_private: bool = False

    def __repr__(self) -> str:
        return f"PemSource({self.setting!r}, {self.path!r})"  # the text may be a private key

    @property
    def name(self) -> str:
        """What to call it in errors."""
        return self.setting if self.path is None else f"{self.setting} '{self.path}'"

    def read(self) -> str:
        """Raises StartError."""
        return self.text if self.path is None else read_pem(self.setting, self.path, is_private=self.is_private)


class TlsSettings(NamedTuple):
    """``authorities``: whose certificates are trusted; None if none is given. ``password``: of the private key."""

    keystore: PemSource | None
    authorities: PemSource | None
    client_auth: VerifyMode = CERT_NONE
    password: str | None = None
    versions: tuple[TLSVersion, ...] = tuple(VERSIONS.values())
    ciphers: str = ""
    rules: Sequence[Rule] = (Rule(),)
    allows_name_changes: bool = False
    allows_alternative_name_changes: bool = False

    def __repr__(self) -> str:
        return f"TlsSettings({self.keystore!r}, {self.authorities!r})"  # without the password

    def paths(self) -> Iterator[Path]:
        """The files that it depends on."""
        for source in (self.keystore, self.authorities):
            if source is not None and source.path is not None:
                yield source.path


def parse_tls(values: ListenerValues) -> TlsSettings:
    """Raises StartError for the first setting that is wrong. What is needed depends on the side: see ``contexts``."""
    return TlsSettings(
        keystore=_keystore(values),
        authorities=_source(values, "ssl_truststore_location", "ssl_truststore_certificates"),
        client_auth=CLIENT_AUTH[value_of(values, "ssl_client_auth")],
        password=value_of(values, "ssl_key_password") or None,
        versions=_versions(value_of(values, "ssl_enabled_protocols")),
        ciphers=value_of(values, "ssl_cipher_suites").replace(",", ":").replace(" ", ""),
        rules=parse_rules(value_of(values, "ssl_principal_mapping_rules")),
        allows_name_changes=value_of(values, "ssl_allow_dn_changes") == "true",
        allows_alternative_name_changes=value_of(values, "ssl_allow_san_changes") == "true",
    )


def _keystore(values: ListenerValues) -> PemSource | None:
    chain = value_of(values, "ssl_keystore_certificate_chain")
    key = value_of(values, "ssl_keystore_key")
    if bool(chain) != bool(key):
        raise StartError("ssl_keystore_key and ssl_keystore_certificate_chain belong together: expected both or none")
    source = _source(values, "ssl_keystore_location", "ssl_keystore_key", is_private=True)
    return source._replace(text=f"{key}\n{chain}") if source and key else source


def _source(values: ListenerValues, location: str, text: str, *, is_private: bool = False) -> PemSource | None:
    path, given_text = value_of(values, location), value_of(values, text)
    if path and given_text:
        raise StartError(f"both {location} and {text} are given: expected one of them")
    if path:
        return PemSource(location, parse_path(location, path), is_private=is_private)
    return PemSource(text, None, given_text, is_private) if given_text else None


def _versions(text: str) -> tuple[TLSVersion, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or any(word not in VERSIONS for word in words):
        raise StartError(f"bad ssl_enabled_protocols '{text}': expected one or more of {', '.join(VERSIONS)}")
    return tuple(VERSIONS[word] for word in words)
