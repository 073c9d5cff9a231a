"""TlsConnection: TLS between a transport and the connection of a client.

The bytes go through OpenSSL's buffers in memory and the event loop's plain transport. That takes a third of the time of
the event loop's own TLS, because the answers of one turn are encrypted and written once, and because no exception ends
each read.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from .der import BadCertificate
from .failures import describe_failure, is_about_certificate
from .handshakes import Handshakes
from .listener_tls import ListenerTls, TlsPeer
from .principal_rules import NoRuleMatches

FIRST_BYTES: Final = 8
"""Enough to tell which protocol a client speaks."""


class Application(Protocol):
    """The connection of a client, above TLS. It is an ``asyncio.Protocol`` without ``connection_made``."""

    def accept(self, transport: TlsConnection) -> None:
        """A client has connected. May close the transport, or pause reading: the handshake begins when it resumes."""

    def end_handshake(self, peer: TlsPeer | None) -> None:
        """The handshake is over. ``peer``: who the client is by its certificate; None without one."""

    def fail_handshake(self, reason: str, limit: str, *, by_certificate: bool) -> None:
        """The handshake has failed. ``limit``: the setting that is exceeded, or "".

        ``by_certificate``: because of the client's, or because it has shown none.
        """

    def data_received(self, data: bytes) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class TlsConnection(asyncio.Protocol):
    """The protocol of a plain transport, and the transport of ``application``.

    It has those methods of asyncio's transports that a connection uses.
    """

    def __init__(self, tls: ListenerTls, application: Application, handshakes: Handshakes) -> None:
        self._tls = tls
        self._application = application
        self._handshakes = handshakes
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = tls.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._transport: asyncio.Transport
        self._first_bytes = b""
        self._is_held = False  # the application does not want to read yet
        self._is_begun = False
        self._is_secured = False
        self._is_closed = False

    # From the socket -------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._application.accept(self)
        if not self._is_held:
            self._begin()

    def data_received(self, data: bytes) -> None:
        if self._is_closed:
            return
        self._incoming.write(data)
        if self._is_secured:
            self._deliver()
        else:
            self._first_bytes = self._first_bytes or data[:FIRST_BYTES]
            self._transport.pause_reading()
            if self._is_begun:
                self._handshakes.received(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release OpenSSL's memory at once: the connection may live on while its requests are answered."""
        self._is_closed = True
        self._handshakes.end(self)
        application = self._application
        del self._application, self._object, self._incoming, self._outgoing
        application.connection_lost(exc)

    def pause_writing(self) -> None:
        self._application.pause_writing()

    def resume_writing(self) -> None:
        self._application.resume_writing()

    # Handshake -------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Begin the handshake, and its time limit. The client may have sent something already."""
        if self._is_closed:
            return
        self._is_begun = True
        self._handshakes.begin(self)
        if self._incoming.pending and not self._is_closed:
            self._handshakes.received(self)

    def take_turn(self) -> int:
        """Do the next step of the handshake."""
        if not self._is_closed:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                self._handshakes.waits(self)
                self._transport.resume_reading()
            except ssl.SSLError as error:
                self._flush()  # the alert that tells the client why
                self.fail(describe_failure(error, self._first_bytes), by_certificate=is_about_certificate(error))
            else:
                self._flush()
                self._end_handshake()
        return 1

    def _end_handshake(self) -> None:
        self._handshakes.end(self)
        try:
            peer = self._tls.peer(self._object)
        except (NoRuleMatches, BadCertificate) as error:
            self.fail(str(error), by_certificate=True)
            return
        self._is_secured = True
        self._transport.resume_reading()
        self._application.end_handshake(peer)
        if not self._is_closed:
            self._deliver()

    def fail(self, reason: str, limit: str = "", *, by_certificate: bool = False) -> None:
        """End a connection whose handshake has not ended. ``limit``: the setting that is exceeded."""
        self._handshakes.end(self)
        self._application.fail_handshake(reason, limit, by_certificate=by_certificate)

    # To the application ----------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        """Deliver what was received, as the transport does: once, whatever the number of records."""
        incoming, tls = self._incoming, self._object
        parts = []
        is_ended = is_broken = False
        try:
            while incoming.pending or tls.pending():  # instead of reading until there is an exception
                data = tls.read(incoming.pending or tls.pending())
                if not data:
                    is_ended = True
                    break
                parts.append(data)
        except ssl.SSLWantReadError:
            pass  # an incomplete record
        except ssl.SSLError:
            is_broken = True
        self._flush()  # an answer to a change of keys, or an alert
        if parts:
            self._application.data_received(parts[0] if len(parts) == 1 else b"".join(parts))
        if is_broken:
            self.abort()
        elif is_ended:
            self.close()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    # The transport of the application --------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self._is_closed or not data:
            return
        try:
            self._object.write(data)
        except ssl.SSLError:
            self.abort()
        else:
            self._transport.write(self._outgoing.read())

    def close(self) -> None:
        """Close after sending what is written, without waiting for the client's close_notify."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_secured:
            with suppress(ssl.SSLError):  # the client has not sent its close_notify yet
                self._object.unwrap()
            self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._is_closed = True
        self._transport.abort()

    def pause_reading(self) -> None:
        self._is_held = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """The first time, the handshake begins."""
        self._is_held = False
        self._transport.resume_reading()
        if not self._is_begun:
            self._begin()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)
