"""Authentication of a client by SASL, without I/O: which requests it sends, and what it makes of the responses."""

from __future__ import annotations

import hmac
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Generator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from ..security.credentials import CLIENT_KEY, ITERATIONS_MIN, SCRAM_BY_NAME, SERVER_KEY, ScramMechanism
from ..security.oauthbearer import AFTER_REFUSAL
from ..security.sasl_names import encode_name
from ..settings.client_settings import OAUTHBEARER, Login

ITERATIONS_MAX = 1_000_000
"""A client refuses a higher number, because the server could keep it busy."""
ITERATIONS_DIGITS_MAX = len(str(ITERATIONS_MAX))

Request = tuple[str, Mapping[str, Any]]
"""kio's name of the API, and the values."""

LoginSteps = Generator[Request, Any, float]
"""Yields requests, and gets the responses as kio's entities. Returns the time in s that ``log_in`` describes."""

NEVER_S = float("inf")
NO_LIFETIME = timedelta()


class LoginFailed(Exception):
    """The server refuses the client, or does not prove that it knows the password. The text says why."""


def log_in(login: Login) -> LoginSteps:
    """Authenticate. Returns after which time in s the server wants it again (KIP-368); ``NEVER_S`` if it does not.

    Raises LoginFailed.
    """
    response = yield "sasl_handshake", {"mechanism": login.mechanism}
    if response.error_code:
        raise LoginFailed(f"it does not accept {login.mechanism}: expected one of {', '.join(response.mechanisms)}")
    answer = yield from MECHANISMS[login.mechanism](login)
    return answer.lifetime_s or NEVER_S


class Answer(NamedTuple):
    """To a token. ``lifetime_s``: of the session; 0 if it does not end."""

    token: bytes
    lifetime_s: float


Exchange = Generator[Request, Any, Answer]


def _exchange(token: bytes) -> Exchange:
    response = yield "sasl_authenticate", {"auth_bytes": token}
    if response.error_code:
        raise LoginFailed(response.error_message or "it refuses the client")
    lifetime: timedelta = getattr(response, "session_lifetime", NO_LIFETIME)  # since version 1
    return Answer(bytes(response.auth_bytes), lifetime.total_seconds())


def _log_in_by_plain(login: Login) -> Exchange:
    """RFC 4616."""
    return _exchange(f"\0{login.user}\0{login.password}".encode())


def _log_in_by_token(login: Login) -> Exchange:
    """RFC 7628. A server tells why it refuses a token, and fails when the client has confirmed that."""
    answer = yield from _exchange(f"n,,\1auth=Bearer {login.password}\1\1".encode())
    if answer.token:
        yield from _exchange(AFTER_REFUSAL)
        raise LoginFailed(answer.token.decode("utf-8", "replace"))
    return answer


def _log_in_by_scram(mechanism: ScramMechanism, login: Login) -> Exchange:
    """RFC 5802, without channel binding."""
    user = encode_name(login.user)
    bare = f"n={user},r={secrets.token_urlsafe(24)}"
    challenge = (yield from _exchange(f"n,,{bare}".encode())).token.decode("latin-1")
    nonce, salt, iterations = _parse_challenge(challenge, bare.rpartition("r=")[2])
    salted = mechanism.salted_password(login.password.encode(), salt, iterations)
    client_key = mechanism.hmac(salted, CLIENT_KEY)
    without_proof = f"c=biws,r={nonce}"
    message = f"{bare},{challenge},{without_proof}".encode("latin-1")
    signature = mechanism.hmac(mechanism.hash(client_key), message)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    final = yield from _exchange(f"{without_proof},p={b64encode(proof).decode()}".encode())
    expected = b"v=" + b64encode(mechanism.hmac(mechanism.hmac(salted, SERVER_KEY), message))
    if not hmac.compare_digest(final.token, expected):
        raise LoginFailed("it does not prove that it knows the password, so it may be another server")
    return final


def _parse_challenge(challenge: str, own_nonce: str) -> tuple[str, bytes, int]:
    """The nonce, the salt, and the number of iterations."""
    fields = dict(item.partition("=")[::2] for item in challenge.split(","))
    nonce, iterations = fields.get("r", ""), fields.get("i", "")
    if not nonce.startswith(own_nonce) or nonce == own_nonce:
        raise LoginFailed("it has answered SCRAM with a wrong nonce")
    is_number = iterations.isascii() and iterations.isdecimal() and len(iterations) <= ITERATIONS_DIGITS_MAX
    if not is_number or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise LoginFailed(f"it asks for {iterations[:20]} iterations: expected {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    try:
        return nonce, b64decode(fields.get("s", ""), validate=True), int(iterations)
    except ValueError:
        raise LoginFailed("it has answered SCRAM with an invalid salt") from None


MECHANISMS: Mapping[str, Callable[[Login], Exchange]] = {
    "PLAIN": _log_in_by_plain,
    OAUTHBEARER: _log_in_by_token,
    **{name: partial(_log_in_by_scram, mechanism) for name, mechanism in SCRAM_BY_NAME.items()},
}
