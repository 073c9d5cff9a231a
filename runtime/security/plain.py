"""PLAIN (RFC 4616), the server's side, against the credentials of SCRAM. Pure.

So there is one kind of user, and no password is stored. To check a password takes some milliseconds. Accepted ones are
remembered for some minutes: as a keyed hash, with the credential that they fit.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

from .credentials import SCRAM_MECHANISMS, SHA_256, Credential, ScramMechanism, has_password, made_up_credential
from .exchange import Accepted, AuthenticationFailed, Blocking, Failure, check_size
from .scram import OTHER_AUTHORIZATION_ID

REMEMBERED_MS: Final = 300_000
REMEMBERED_MAX: Final = 10_000

PARTS: Final = 3
INVALID: Final = "Authentication failed: Invalid username or password"

FindCredentialOf = Callable[[str, ScramMechanism], Credential | None]


class RememberedPasswords:
    """Passwords that were accepted: by their keyed hash, until when, and for which StoredKey."""

    def __init__(self, secret: bytes, now_ms: Callable[[], int]) -> None:
        """``secret``: random bytes of this process."""
        self._secret = secret
        self._now_ms = now_ms
        self._accepted: dict[bytes, tuple[int, bytes]] = {}

    def has(self, name: str, password: bytes, credential: Credential) -> bool:
        until_ms, stored_key = self._accepted.get(self._hash(name, password), (0, b""))
        return self._now_ms() < until_ms and hmac.compare_digest(stored_key, credential.stored_key)

    def add(self, name: str, password: bytes, credential: Credential) -> None:
        while len(self._accepted) >= REMEMBERED_MAX:
            del self._accepted[next(iter(self._accepted))]
        self._accepted[self._hash(name, password)] = self._now_ms() + REMEMBERED_MS, credential.stored_key

    def _hash(self, name: str, password: bytes) -> bytes:
        return hmac.digest(self._secret, name.encode() + b"\0" + password, "sha256")


class PlainExchange:
    """One authentication by PLAIN. The errors and their order are Kafka's."""

    def __init__(self, find: FindCredentialOf, secret: bytes, remembered: RememberedPasswords) -> None:
        """``secret``: of the servers."""
        self._find = find
        self._secret = secret
        self._remembered = remembered

    def evaluate(self, token: bytes) -> Accepted | Blocking:
        authorization_id, name, password = split_token(token)
        mechanism, credential = self._credential(name)
        if self._remembered.has(name, password, credential):
            return _accepted(authorization_id, name)

        def finish(is_right: bool) -> Accepted:
            if not is_right:
                raise AuthenticationFailed("wrong password, or no such user", INVALID, Failure.CREDENTIALS)
            self._remembered.add(name, password, credential)
            return _accepted(authorization_id, name)

        return Blocking(lambda: has_password(mechanism, credential, password), finish)

    def _credential(self, name: str) -> tuple[ScramMechanism, Credential]:
        """That of the first mechanism that the user has. The work is the same for a user who does not exist."""
        for mechanism in SCRAM_MECHANISMS:
            credential = self._find(name, mechanism)
            if credential is not None:
                return mechanism, credential
        return SHA_256, made_up_credential(SHA_256, self._secret, name)


def split_token(token: bytes) -> tuple[str, str, bytes]:
    """Authorization id, user, password. Raises AuthenticationFailed."""
    check_size(token)
    parts = token.decode(errors="replace").split("\0", PARTS)
    if len(parts) != PARTS:
        raise _failed(f"Invalid SASL/PLAIN response: expected {PARTS} tokens, got {len(parts)}")
    authorization_id, name, password = parts
    if not name:
        raise _failed("Authentication failed: username not specified")
    if not password:
        raise _failed("Authentication failed: password not specified")
    return authorization_id, name, password.encode()


def _accepted(authorization_id: str, name: str) -> Accepted:
    if authorization_id and authorization_id != name:
        raise AuthenticationFailed(OTHER_AUTHORIZATION_ID, OTHER_AUTHORIZATION_ID, Failure.USER)
    return Accepted(name)


def _failed(text: str) -> AuthenticationFailed:
    return AuthenticationFailed(text, text)
