"""TLS of one listener: its context, which is replaced when the files change, and the names of its clients."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from typing import NamedTuple

from ..common.errors import StartError
from ..common.logs import get_logger
from .contexts import make_server_context, peer_certificate
from .der import Certificate
from .distinguished_name import format_name
from .file_stamps import stamps_of
from .principal_rules import apply_rules
from .settings import TlsSettings

log = get_logger("callboard.runtime")


class TlsPeer(NamedTuple):
    """Who a client is by its certificate. ``name``: what the rules have made of its distinguished name."""

    name: str
    certificate_serial: int


class ListenerTls:
    """``context``: for connections that are accepted from now on. Those that are open keep theirs."""

    def __init__(self, listener: str, settings: TlsSettings) -> None:
        """Raises StartError, with the name of the listener, if keys or certificates cannot be used."""
        self.listener = listener
        self.settings = settings
        self._stamps = stamps_of(settings.paths())
        try:
            self.context, self._certificate = make_server_context(settings)
        except StartError as error:
            raise StartError(f"listener {listener}: {error}") from error
        self._warn_if_invalid()

    @property
    def expires(self) -> datetime:
        """When the server's certificate expires."""
        return self._certificate.not_after

    def peer(self, tls: ssl.SSLObject) -> TlsPeer | None:
        """Who a client is after the handshake; None without a certificate.

        Raises NoRuleMatches, and BadCertificate.
        """
        certificate = peer_certificate(tls)
        if certificate is None:
            return None
        return TlsPeer(apply_rules(self.settings.rules, format_name(certificate.subject)), certificate.serial)

    def reload_if_changed(self) -> None:
        """Read the files again if one of them has changed. May be called in a thread."""
        if stamps_of(self.settings.paths()) != self._stamps:
            self.reload()

    def reload(self) -> None:
        """Read the files again. If they cannot be used, the context stays, and a line in the log says why."""
        self._stamps = stamps_of(self.settings.paths())  # first: what is written meanwhile is read the next time
        try:
            context, certificate = make_server_context(self.settings)
            check_change(self._certificate, certificate, self.settings)
        except StartError as error:
            log.error("the old TLS certificate stays in use", listener=self.listener, reason=str(error))
            return
        self.context, self._certificate = context, certificate
        log.info(
            "new TLS certificates are used for new connections",
            listener=self.listener,
            serial=f"{certificate.serial:x}",
            expires=certificate.not_after.isoformat(),
        )
        self._warn_if_invalid()

    def _warn_if_invalid(self) -> None:
        """Nothing else would say it: clients end the handshake, and most do not send the reason."""
        certificate, now = self._certificate, datetime.now(UTC)
        if certificate.not_before <= now <= certificate.not_after:
            return
        log.warning(
            "the TLS certificate is not valid now, so clients refuse it: replace it, or set the clock",
            listener=self.listener,
            valid_from=certificate.not_before.isoformat(),
            expires=certificate.not_after.isoformat(),
        )


def check_change(old: Certificate, new: Certificate, settings: TlsSettings) -> None:
    """Kafka's checks of a new certificate (SslFactory.CertificateEntries). Raises StartError."""
    if old.subject != new.subject and not settings.allows_name_changes:
        raise StartError(
            f"the new certificate is of '{format_name(new.subject)}', expected '{format_name(old.subject)}': start with"
            " ssl_allow_dn_changes=true to allow it"
        )
    if old.alternative_names - new.alternative_names and not settings.allows_alternative_name_changes:
        raise StartError(
            "the new certificate lacks alternative names of the old one: start with ssl_allow_san_changes=true to"
            " allow it"
        )
