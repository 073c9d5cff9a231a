"""ClientSecurity: how connections to servers are secured."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...actors.callboard_error import CallboardError
from ..settings.client_settings import (
    ClientSettings,
    TokenSource,
    load_client_settings,
    parse_client_settings,
    path_of_settings,
)
from ..tls.file_stamps import FileStamp, stamps_of
from .login_session import Credentials, LoginSession, Password

if TYPE_CHECKING:
    from ssl import SSLContext

    from ..tls.settings import TlsSettings

COMMAND_CONFIG: Final = "CALLBOARD_COMMAND_CONFIG"

log = logging.getLogger("callboard.runtime")


def _make_credentials(settings: ClientSettings) -> Credentials | None:
    """None without SASL."""
    given = settings.credentials
    if not isinstance(given, TokenSource):
        return given if given is None else Password(given)
    from .tokens import Tokens  # with the client of HTTP

    return Tokens(given)


class ClientSecurity:
    """The security of all connections that one command, connector or node opens."""

    def __init__(self, settings: ClientSettings | None = None) -> None:
        """Reads keys and certificates. Raises StartError if they cannot be used."""
        self.settings = settings or ClientSettings()
        self._credentials = _make_credentials(self.settings)
        self._tls = _parse_tls(self.settings) if self.settings.has_tls else None
        self._context: SSLContext | None = None
        self._stamps: tuple[FileStamp, ...] = ()
        self.tls_context()

    def tls_context(self) -> SSLContext | None:
        """The context for a new connection; None without TLS. Changed files are read again.

        While they cannot be used, the last ones stay in use: certificate and key are seldom replaced at one instant.
        """
        if self._tls is None:
            return None
        stamps = stamps_of(self._tls.paths())
        if self._context is None or stamps != self._stamps:
            try:
                self._context = self._make_context(self._tls)
                self._stamps = stamps
            except CallboardError as error:
                if self._context is None:
                    raise
                log.error("the old TLS certificates stay in use: %s", error)
        return self._context

    def new_session(self) -> LoginSession | None:
        """The authentication of a new connection; None without SASL."""
        return None if self._credentials is None else LoginSession(self._credentials)

    def _make_context(self, tls: TlsSettings) -> SSLContext:
        from ..tls.contexts import make_client_context

        return make_client_context(tls, checks_host=self.settings.checks_host)


NO_SECURITY: Final = ClientSecurity()
"""Connections without TLS."""

Security = str | Path | Mapping[str, str] | ClientSecurity
"""A file of NAME=VALUE, or values, by Kafka's names of the settings of a client."""


def load_security(security: Security | None = None, environment: Mapping[str, str] = os.environ) -> ClientSecurity:
    """From a file or values, which override environment variables. Raises StartError."""
    if isinstance(security, ClientSecurity):
        return security
    if isinstance(security, Mapping):
        return ClientSecurity(parse_client_settings(security, environment))
    return ClientSecurity(load_client_settings(None if security is None else path_of_settings(security), environment))


def command_security(environment: Mapping[str, str] = os.environ) -> ClientSecurity:
    """The security of a command: from the file that CALLBOARD_COMMAND_CONFIG names, and environment variables.

    Raises StartError.
    """
    return load_security(command_config(environment), environment)


def command_config(environment: Mapping[str, str] = os.environ) -> str | None:
    """The path of the file of a command's security settings; None if there is none."""
    return environment.get(COMMAND_CONFIG) or None


def _parse_tls(settings: ClientSettings) -> TlsSettings:
    from ..tls.settings import parse_tls  # without TLS nothing of it is imported

    return parse_tls(settings.values)


def advice_for(error: OSError, security: ClientSecurity) -> str:
    """What to do about a server that has not answered yet, after "; ". Nothing if the reason is one of TLS."""
    if _tls_reason(error) is not None:
        return ""
    if isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError):
        return "" if security.settings.has_tls else "; it may expect TLS (security.protocol=SSL or SASL_SSL)"
    return "; is a server running there?"


def describe_connection_error(error: OSError) -> str:
    """Why a server cannot be reached. The reason of a failed TLS handshake in words."""
    return _tls_reason(error) or error.strerror or str(error)


def _tls_reason(error: OSError) -> str | None:
    if "ssl" not in sys.modules:
        return None
    from ..tls.failures import describe_client_failure

    return describe_client_failure(error)
