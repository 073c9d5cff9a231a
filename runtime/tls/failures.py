"""Why a handshake has failed, for the log: what OpenSSL reports in the words of an operator, and what to do."""

from __future__ import annotations

import ssl
from typing import Final

from ..kafka.connections.foreign_protocols import HTTP_STARTS

HANDSHAKE: Final = 0x16
"""The first byte of a record with a handshake (RFC 8446, 5.1)."""

NO_CERTIFICATE: Final = "PEER_DID_NOT_RETURN_A_CERTIFICATE"

REASONS: Final = {
    NO_CERTIFICATE: "the client has shown no certificate, but ssl_client_auth is required",
    "UNSUPPORTED_PROTOCOL": "the client offers no version of TLS that is in ssl_enabled_protocols",
    "WRONG_SSL_VERSION": "the client offers no version of TLS that is in ssl_enabled_protocols",
    "NO_SHARED_CIPHER": "the client offers no cipher that this listener has (ssl_cipher_suites)",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the authority of the server's certificate: it needs the"
    " authority in its truststore",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the client refuses the version of TLS",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client refuses the server's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client refuses the server's certificate: it may not trust the authority, or"
    " have connected by a name that the certificate does not have",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client refuses the server's certificate, because it has expired",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the client has ended the handshake",
}
"""By OpenSSL's reason."""


def is_about_certificate(error: ssl.SSLError) -> bool:
    """Whether a server has refused the certificate of its client, or has got none."""
    return isinstance(error, ssl.SSLCertVerificationError) or error.reason == NO_CERTIFICATE


def describe_failure(error: ssl.SSLError, first_bytes: bytes) -> str:
    """``first_bytes``: those of the connection."""
    if first_bytes.startswith(HTTP_STARTS):
        return "an HTTP request, but this listener speaks Kafka's protocol over TLS"
    if first_bytes and first_bytes[0] != HANDSHAKE:
        return (
            "no TLS handshake, but this listener has TLS: configure the client with security.protocol=SSL or SASL_SSL,"
            " or connect it to a listener without TLS"
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    reason = REASONS.get(error.reason or "")
    return f"the TLS handshake has failed: {reason or error.reason or error}"


WITHOUT_TLS: Final = "it does not speak TLS: expected security.protocol=PLAINTEXT or SASL_PLAINTEXT, or another port"

CLIENT_REASONS: Final = {
    "WRONG_VERSION_NUMBER": WITHOUT_TLS,
    "RECORD_LAYER_FAILURE": WITHOUT_TLS,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it requires a certificate: expected ssl.keystore.location",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "it refuses the handshake; it may require a certificate (ssl.keystore.location)",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the authority of the client's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it refuses the client's certificate, because it has expired",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it has no version of TLS that is in ssl.enabled.protocols",
}
"""What OpenSSL's reasons mean for a client. "It" is the server."""


OTHER_AUTHORITY: Final = "expected that of an authority in ssl.truststore.location"
OTHER_NAME: Final = "expected a name that it has as the address of the server"
VERIFY_ADVICE: Final = {
    **dict.fromkeys((18, 19, 20, 21), OTHER_AUTHORITY),
    **dict.fromkeys((62, 64), OTHER_NAME),
}
"""What a client should do, by OpenSSL's code of a certificate that is not accepted (X509_V_ERR)."""


def describe_client_failure(error: OSError) -> str | None:
    """Why a connection to a server has failed; None if the error is not about TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = VERIFY_ADVICE.get(error.verify_code)
        return f"its certificate is refused: {error.verify_message.rstrip('.')}" + (f"; {advice}" if advice else "")
    if isinstance(error, ssl.SSLError):
        return CLIENT_REASONS.get(error.reason or "") or f"TLS has failed: {error.reason or error}"
    return None
