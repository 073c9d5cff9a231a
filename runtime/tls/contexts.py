"""TLS contexts from settings, and what the server's own certificate says."""

from __future__ import annotations

import ssl
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from ..common.errors import StartError
from .der import BadCertificate, Certificate, parse_certificate
from .pem import as_file, certificates_in, conversion, has_private_key, is_encrypted
from .settings import PemSource, TlsSettings

REASONS: Final = {
    "KEY_VALUES_MISMATCH": "the private key does not belong to the first certificate",
    "EE_KEY_TOO_SMALL": "the key is too short: expected at least RSA with 2048 bits, or EC with P-256",
}
"""What OpenSSL's reasons mean here."""


PARSERS: Final = ("PEM", "ASN1")
"""OpenSSL's libraries that report no more than where they have failed."""

WRONG_PASSWORD: Final = "ssl_key_password is not the password of the private key, or the key is damaged"
"""OpenSSL gives no reason then."""

DAMAGED: Final = (
    "a key or a certificate in it is damaged: expected PEM that `openssl pkey -noout` and `openssl x509 -noout` read,"
    " as lines without spaces before them"
)
"""Nor does it then, or only of its parser."""


class ServerContext(NamedTuple):
    """A context for accepted connections, and the server's certificate."""

    context: ssl.SSLContext
    certificate: Certificate


def make_server_context(settings: TlsSettings) -> ServerContext:
    """Read keys and certificates. Raises StartError if they cannot be used."""
    keystore = settings.keystore
    if keystore is None:
        raise StartError(
            "TLS needs the server's certificate: expected ssl_keystore_location, a PEM file with the private key and"
            " the certificates"
        )
    context = _make_context(ssl.PROTOCOL_TLS_SERVER, settings)
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0  # so that each connection proves its certificate; OpenSSL still resumes those of TLSv1.2
    certificate = load_keystore(context, keystore, settings.password)
    if settings.client_auth is not ssl.CERT_NONE:
        if settings.authorities is None:
            raise StartError(
                "ssl_client_auth needs the authorities of the clients: expected ssl_truststore_location, a PEM file"
                " with their certificates"
            )
        load_authorities(context, settings.authorities)
    context.verify_mode = settings.client_auth
    return ServerContext(context, certificate)


def make_client_context(settings: TlsSettings, *, checks_host: bool = True) -> ssl.SSLContext:
    """A context for connections to servers. Without authorities those of the system are trusted. Raises StartError.

    ``checks_host``: whether the server's certificate must have its host name.
    """
    context = _make_context(ssl.PROTOCOL_TLS_CLIENT, settings)
    context.check_hostname = checks_host
    if settings.authorities is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        load_authorities(context, settings.authorities)
    if settings.keystore is not None:
        load_keystore(context, settings.keystore, settings.password)
    return context


def _make_context(protocol: int, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version, context.maximum_version = min(settings.versions), max(settings.versions)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if settings.ciphers:
        try:
            context.set_ciphers(settings.ciphers)
        except ssl.SSLError as error:
            raise StartError(
                f"bad ssl_cipher_suites '{settings.ciphers}': OpenSSL knows none of them; `openssl ciphers -v` lists"
                " its names"
            ) from error
    return context


def load_keystore(context: ssl.SSLContext, source: PemSource, password: str | None) -> Certificate:
    """Give a context a private key and certificates. Returns the first one. Raises StartError."""
    text = source.read()
    certificates = certificates_in(text)
    if not certificates or not has_private_key(text):
        missing = "a private key" if certificates else "a certificate"
        hint = conversion(text, source.path)
        raise StartError(f"{source.name} has no {missing[2:]}: expected a private key and certificates in PEM{hint}")
    try:
        with as_file(text) as path:
            context.load_cert_chain(path, password=partial(_password, source, password))
        return parse_certificate(ssl.PEM_cert_to_DER_cert(certificates[0]))
    except (ssl.SSLError, ValueError) as error:
        reason = WRONG_PASSWORD if is_encrypted(text) and not getattr(error, "reason", None) else _reason(error)
        raise StartError(f"{source.name} cannot be used: {reason}") from error


def load_authorities(context: ssl.SSLContext, source: PemSource) -> None:
    """Raises StartError."""
    text = source.read()
    certificates = certificates_in(text)
    if not certificates:
        hint = conversion(text, source.path)
        raise StartError(f"{source.name} has no certificate: expected those of authorities in PEM{hint}")
    try:
        context.load_verify_locations(cadata="\n".join(certificates))
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in Java each one is trusted, not only roots
    except (ssl.SSLError, TypeError) as error:  # TypeError: characters beyond ASCII
        raise StartError(f"{source.name} cannot be used: {_reason(error)}") from error


def peer_certificate(tls: ssl.SSLObject) -> Certificate | None:
    """The certificate that the client has shown and proved; None if it has shown none."""
    data = tls.getpeercert(binary_form=True)
    return None if data is None else parse_certificate(data)


def _password(source: PemSource, password: str | None) -> str:
    """Called if the private key has a password."""
    if password is None:
        raise StartError(
            f"the private key in {source.name} has a password: expected ssl_key_password, or CALLBOARD_SSL_KEY_PASSWORD"
            " in the environment, or a key without one, as `openssl pkey -in OLD.pem -out NEW.pem` writes it"
        )
    return password


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    with suppress(KeyError):
        return REASONS[reason or ""]
    if isinstance(error, BadCertificate):
        return str(error)
    if isinstance(error, ssl.SSLError) and (reason is None or error.library in PARSERS):
        return DAMAGED
    return f"OpenSSL answers {reason or error}"
