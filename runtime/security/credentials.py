"""SCRAM credentials (RFC 5802): what is stored of a password. Pure.

A credential has StoredKey and ServerKey, from which the password cannot be computed. The password itself is not stored.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from .document import Section

ITERATIONS_MIN: Final = 4096
"""The least number of a credential (RFC 7677), and the default of Kafka's tools."""
ITERATIONS_MAX: Final = 16384
SALT_BYTES: Final = 20
SALT_BYTES_MIN: Final = 8
SALTED_BYTES_MAX: Final = 1024
"""Of a salt, and of a salted password, which has as many bytes as a hash. Longer ones would take long to hash."""

CLIENT_KEY, SERVER_KEY = b"Client Key", b"Server Key"


class ScramMechanism(NamedTuple):
    """``number``: Kafka's (ScramMechanism). ``hash_name``: of hashlib."""

    name: str
    number: int
    hash_name: str

    def hash(self, data: bytes) -> bytes:
        return hashlib.new(self.hash_name, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.hash_name)

    def salted_password(self, password: bytes, salt: bytes, iterations: int) -> bytes:
        """``Hi`` of RFC 5802. Takes some milliseconds, without the interpreter's lock."""
        return hashlib.pbkdf2_hmac(self.hash_name, password, salt, iterations)


SHA_256: Final = ScramMechanism("SCRAM-SHA-256", 1, "sha256")
SHA_512: Final = ScramMechanism("SCRAM-SHA-512", 2, "sha512")
SCRAM_MECHANISMS: Final = (SHA_256, SHA_512)
SCRAM_BY_NAME: Final = {mechanism.name: mechanism for mechanism in SCRAM_MECHANISMS}
SCRAM_BY_NUMBER: Final = {mechanism.number: mechanism for mechanism in SCRAM_MECHANISMS}


class Credential(NamedTuple):
    """What is stored for a user and a mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"Credential(iterations={self.iterations})"  # no secrets in log lines

    def fields(self) -> dict[str, Any]:
        """The credential as a JSON object."""
        keys = {"salt": self.salt, "stored_key": self.stored_key, "server_key": self.server_key}
        texts = {name: b64encode(value).decode() for name, value in keys.items()}
        return {**texts, "iterations": self.iterations}


def credential_of(mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int) -> Credential:
    """The credential of a salted password, which clients send when they change one."""
    client_key = mechanism.hmac(salted_password, CLIENT_KEY)
    return Credential(salt, mechanism.hash(client_key), mechanism.hmac(salted_password, SERVER_KEY), iterations)


def has_password(mechanism: ScramMechanism, credential: Credential, password: bytes) -> bool:
    """Whether it is the credential of a password. Takes some milliseconds, and as long whether it is or not."""
    salted = mechanism.salted_password(password, credential.salt, credential.iterations)
    made = credential_of(mechanism, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(made.stored_key, credential.stored_key)


def made_up_credential(mechanism: ScramMechanism, secret: bytes, name: str) -> Credential:
    """The credential of a user who does not exist: always the same, so that nobody can tell. No password fits."""
    salt = mechanism.hmac(secret, f"{mechanism.name} {name}".encode())[:SALT_BYTES]
    keys = mechanism.hmac(secret, b"no client key"), mechanism.hmac(secret, b"no server key")
    return Credential(salt, *keys, ITERATIONS_MIN)


def decode_credential(fields: Mapping[str, Any]) -> Credential:
    """The opposite of ``Credential.fields``. Raises ValueError, KeyError or TypeError if it is damaged."""
    salt, stored_key, server_key = (b64decode(fields[name], validate=True) for name in Credential._fields[:3])
    return Credential(salt, stored_key, server_key, int(fields["iterations"]))


def find_credential(users: Section, name: str, mechanism: ScramMechanism) -> Credential | None:
    """``users``: the section. None if there is no such user, or not for this mechanism."""
    fields = users.get(name, {}).get(mechanism.name)
    return None if fields is None else decode_credential(fields)


def with_credential(users: Section, name: str, mechanism: ScramMechanism, credential: Credential) -> Section:
    """The section with a credential, which may replace one."""
    return {**users, name: {**users.get(name, {}), mechanism.name: credential.fields()}}
