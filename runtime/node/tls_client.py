"""TlsClient: the connection of a client as TLS sees it."""

from __future__ import annotations

from typing import Final

from ..kafka.audit.audited import who
from ..kafka.authentication.principal import USER, Principal
from ..kafka.connections.connection import Connection
from ..kafka.connections.framing import NotServed, OverLimit
from ..kafka.connections.transport import Transport
from ..security.exchange import Failure
from ..tls.listener_tls import TlsPeer

MECHANISM: Final = "SSL"
"""In the audit trail: Kafka's name of the protocol whose clients have certificates."""


class TlsClient:
    """``tls.connection.Application``: passes on what TLS delivers, and who the client is.

    On a listener with SASL, only SASL says who that is, as in Kafka.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.data_received = connection.data_received
        self.connection_lost = connection.connection_lost
        self.pause_writing = connection.pause_writing
        self.resume_writing = connection.resume_writing

    def accept(self, transport: Transport) -> None:
        self._connection.accept(transport)

    def end_handshake(self, peer: TlsPeer | None) -> None:
        connection = self._connection
        if peer is not None and connection.services.sasl.get(connection.listener) is None:
            connection.principal = Principal(USER, peer.name)
            details = {"certificate_serial": f"{peer.certificate_serial:x}"}
            connection.services.sasl.logins.accept(MECHANISM)
            connection.services.audit.authenticated(who(connection), MECHANISM, details)
        connection.end_handshake()

    def fail_handshake(self, reason: str, limit: str, *, by_certificate: bool) -> None:
        connection = self._connection
        if limit:
            connection.reject(OverLimit(limit, "the TLS handshake", reason))
        else:
            kind = Failure.CERTIFICATE if by_certificate else Failure.HANDSHAKE
            connection.services.sasl.logins.fail(MECHANISM, kind)
            connection.services.audit.refused(who(connection)._replace(principal=""), MECHANISM, reason)
            connection.reject(NotServed(reason))
