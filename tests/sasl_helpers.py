"""Nodes with a listener that has SASL, users, and the client's side of SCRAM, independent of the product's."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from harness import Client, NodeHarness, frame, running_node

from callboard.runtime.disk.group_commit import outcome_of
from callboard.runtime.security.credentials import SCRAM_MECHANISMS, credential_of, with_credential
from callboard.runtime.security.document import USERS, Section
from callboard.runtime.security.store import SecurityStore
from callboard.runtime.settings.listeners import Listener

USER, PASSWORD = "alice", "secret"
SASL_SETTINGS: Mapping[str, str] = {
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "allow_plain_without_tls": "true",
    "connection_failed_authentication_delay_ms": "0",
}


def with_password(users: Section, user: str = USER, password: str = PASSWORD, iterations: int = 4096) -> Section:
    """The section with a user for all mechanisms."""
    for mechanism in SCRAM_MECHANISMS:
        salt = secrets.token_bytes(16)
        salted = mechanism.salted_password(password.encode(), salt, iterations)
        users = with_credential(users, user, mechanism, credential_of(mechanism, salted, salt, iterations))
    return users


async def add_user(store: SecurityStore, user: str = USER, password: str = PASSWORD) -> None:
    change = partial(store.change, USERS, lambda users: with_password(users, user, password))
    assert await outcome_of(change) is None


@asynccontextmanager
async def running_sasl_node(
    folder: Path, settings: Mapping[str, str] | None = None, **options: Any
) -> AsyncIterator[NodeHarness]:
    """A node whose only listener has SASL, with the user alice."""
    listener = Listener(protocol="SASL_PLAINTEXT", settings={**SASL_SETTINGS, **(settings or {})})
    async with running_node(folder, {"listeners": (listener,)}, **options) as harness:
        await add_user(harness.node.services.security)
        yield harness


async def log_in(
    client: Client, user: str = USER, password: str = PASSWORD, mechanism: str = "PLAIN"
) -> dict[str, Any]:
    """Authenticate. Returns the last answer."""
    answer = await client.ask("sasl_handshake", 1, mechanism=mechanism)
    assert answer["error_code"] == "NONE", answer
    if mechanism == "PLAIN":
        return await client.ask("sasl_authenticate", 2, auth_bytes=f"\0{user}\0{password}".encode())
    scram = ScramClient(mechanism, user, password)
    first = await client.ask("sasl_authenticate", 2, auth_bytes=scram.first())
    if first["error_code"] != "NONE":
        return first
    last = await client.ask("sasl_authenticate", 2, auth_bytes=scram.last(first["auth_bytes"]))
    if last["error_code"] == "NONE":
        scram.verify(last["auth_bytes"])
    return last


def plain_frame(user: str = USER, password: str = PASSWORD) -> bytes:
    """The frames of a whole authentication by PLAIN."""
    handshake = frame("sasl_handshake", 1, mechanism="PLAIN")
    return handshake + frame("sasl_authenticate", 2, auth_bytes=f"\0{user}\0{password}".encode())


class ScramClient:
    """RFC 5802."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str = "") -> None:
        self._hash = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
        self._password = password.encode()
        self._bare = f"n={user},r={nonce or secrets.token_hex(8)}"
        self._signature = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def last(self, challenge: bytes, binding: str = "biws") -> bytes:
        fields = dict(item.split("=", 1) for item in challenge.decode().split(","))
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, b64decode(fields["s"]), int(fields["i"]))
        client_key = self._hmac(salted, b"Client Key")
        without_proof = f"c={binding},r={fields['r']}"
        message = f"{self._bare},{challenge.decode()},{without_proof}".encode()
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def verify(self, final: bytes) -> None:
        assert final == b"v=" + b64encode(self._signature)

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)
