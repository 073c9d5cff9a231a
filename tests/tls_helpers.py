"""Certificates for tests of TLS, made when they are needed, and the settings of listeners and clients that use them."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from callboard.runtime.settings.address import Address
from callboard.runtime.settings.listeners import SSL, Listener

DAY = timedelta(days=1)
LOCALHOST = (x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
SERVER_NAME = "callboard.example"


def common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


class KeyPair(NamedTuple):
    """A private key and its certificate, with that of the authority behind it if it is no authority itself."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def chain_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def key_pem(self, password: str = "") -> str:
        encryption: KeySerializationEncryption = NoEncryption()
        if password:
            encryption = BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def write(self, path: Path, password: str = "") -> Path:
        """Write a keystore in place of another one, in one step."""
        new = path.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_text(self.key_pem(password) + self.chain_pem)
        new.replace(path)
        return path


AUTHORITY_KEY_USAGE = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """An authority that issues certificates."""

    def __init__(self, name: str = "Test authority", issuer: Authority | None = None) -> None:
        """``issuer``: the authority above it; None for one that signs itself."""
        self.pair: KeyPair = _issue(common_name(name), issuer.pair if issuer else None, (), is_authority=True)

    def issue(
        self,
        subject: x509.Name | str,
        names: Sequence[x509.GeneralName] = LOCALHOST,
        *,
        ends: timedelta = 30 * DAY,
    ) -> KeyPair:
        """``ends``: from now."""
        name = common_name(subject) if isinstance(subject, str) else subject
        return _issue(name, self.pair, names, ends=ends)

    def write(self, path: Path) -> Path:
        """Write a truststore."""
        path.write_text(self.pair.chain_pem)
        return path


def _issue(
    subject: x509.Name,
    issuer: KeyPair | None,
    names: Sequence[x509.GeneralName],
    *,
    is_authority: bool = False,
    ends: timedelta = 30 * DAY,
) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 60 * DAY)
        .not_valid_after(now + ends)
        .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    # Clients on Python 3.13 require the following.
    if is_authority:
        builder = builder.add_extension(AUTHORITY_KEY_USAGE, critical=True)
    if issuer:
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key())
        builder = builder.add_extension(identifier, critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(list(names)), critical=False)
    return KeyPair(key, builder.sign(issuer.key if issuer else key, hashes.SHA256()))


class TlsFolder:
    """The files of a server and of a client in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.truststore = self.authority.write(folder / "ca.pem")
        self.server = self.authority.issue(SERVER_NAME)
        self.keystore = self.server.write(folder / "server.pem")

    def client(self, name: str = "client1") -> Path:
        """The keystore of a client."""
        path = self.folder / f"{name}.pem"
        return path if path.exists() else self.authority.issue(name, ()).write(path)

    def settings(self, **others: str) -> dict[str, str]:
        """The settings of a listener. With ``ssl_client_auth``, clients of the authority are trusted."""
        trusted = {"ssl_truststore_location": str(self.truststore)} if "ssl_client_auth" in others else {}
        return {"ssl_keystore_location": str(self.keystore), **trusted, **others}

    def listener(self, **others: str) -> Listener:
        return Listener(SSL, SSL, Address("127.0.0.1", 0), settings=self.settings(**others))

    def client_context(self, client: str = "") -> ssl.SSLContext:
        """``client``: whose certificate it shows; "" for none."""
        context = ssl.create_default_context(cafile=str(self.truststore))
        if client:
            context.load_cert_chain(self.client(client))
        return context
