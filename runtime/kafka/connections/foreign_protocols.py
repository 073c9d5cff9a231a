"""Recognizes clients that speak another protocol on Kafka's port, so that the log says what is wrong."""

from __future__ import annotations

HTTP_STARTS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
"""The first bytes of each HTTP method; ``PRI`` begins HTTP/2 (RFC 9113)."""

TLS_START = b"\x16\x03"
"""A TLS record with a handshake, of version 3.x (RFC 8446)."""


def describe_foreign_protocol(data: bytes) -> str | None:
    """What the first bytes of a connection are, and what to do; None if they are of no protocol that is known here.

    All of them are sizes above a gigabyte, or above 360 MB (TLS), if they are read as the size of a frame.
    """
    if data.startswith(HTTP_STARTS):
        return (
            "an HTTP request, but this port speaks Kafka's protocol: the option --metrics HOST:PORT opens one for HTTP"
        )
    if data.startswith(TLS_START):
        return (
            "a TLS handshake, but this port has no TLS: configure the client with security.protocol=PLAINTEXT or"
            " SASL_PLAINTEXT"
        )
    return None
