"""OAUTHBEARER (RFC 7628, KIP-255), the server's side. Pure.

A token that is not valid is not a failure at first, as in Kafka: the client gets a JSON text, answers with one byte,
and gets the same text as the error.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple, Protocol

from .exchange import Accepted, AuthenticationFailed, Challenge, Failure, check_size
from .sasl_names import SASL_NAME, decode_name

_PAIRS = r"(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*"
CLIENT_FIRST: Final = re.compile(rf"n,(?:a=(?P<authzid>{SASL_NAME}))?,\x01(?P<pairs>{_PAIRS})\x01")
_BEARER = r"[-_~+/.a-zA-Z0-9]+=*"
TOKEN: Final = re.compile(_BEARER)
"""RFC 6750."""
AUTHORIZATION: Final = re.compile(rf"(?P<scheme>\w+) +(?P<token>{_BEARER})")
AFTER_REFUSAL: Final = b"\x01"
"""What a client sends when its token was refused."""
OAUTHBEARER_BYTES_MAX: Final = 32_768
"""Longer messages fail unread. Tokens may have the names of many groups."""


class TokenRefused(Exception):
    """A token is not valid. ``reason``: for the log, without the token. ``scope``: the one that is missing."""

    def __init__(self, reason: str, scope: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.scope = scope

    @property
    def answer(self) -> str:
        """What the client is told, as in Kafka (OAuthBearerValidatorCallbackHandler)."""
        if self.scope:
            return json.dumps({"status": "insufficient_scope", "scope": self.scope}, separators=(",", ":"))
        return '{"status":"invalid_token"}'


class ValidToken(NamedTuple):
    """``name``: the user. ``expires_at_ms``: on the wall clock. ``grace_ms``: so long after that it is valid, too."""

    name: str
    expires_at_ms: int
    grace_ms: int = 0


class TokenValidator(Protocol):
    def validate(self, token: str) -> ValidToken:
        """Raises TokenRefused."""


class OAuthBearerExchange:
    """One authentication by OAUTHBEARER."""

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._refusal: TokenRefused | None = None

    def evaluate(self, token: bytes) -> Challenge | Accepted:
        if self._refusal is not None:
            text = self._refusal.answer if token == AFTER_REFUSAL else ""
            raise AuthenticationFailed(f"the token is refused: {self._refusal.reason}", text, Failure.TOKEN)
        authorization_id, bearer = split_message(token)
        try:
            valid = self._validator.validate(bearer)
        except TokenRefused as refusal:
            self._refusal = refusal
            return Challenge(refusal.answer.encode())
        if authorization_id and authorization_id != valid.name:
            raise AuthenticationFailed(
                "the authorization id is not the name of the user",
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different"
                f" from the token's principal name ({valid.name})",
                Failure.USER,
            )
        return Accepted(valid.name, b"", valid.expires_at_ms, valid.grace_ms)


def split_message(message: bytes) -> tuple[str, str]:
    """The authorization id and the token. Raises AuthenticationFailed."""
    check_size(message, OAUTHBEARER_BYTES_MAX)
    match = CLIENT_FIRST.fullmatch(message.decode("latin-1"))
    if match is None:
        raise AuthenticationFailed("the message of OAUTHBEARER is invalid")
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01") if pair)
    authorization = AUTHORIZATION.fullmatch(pairs.get("auth", ""))
    if authorization is None or authorization["scheme"].lower() != "bearer":
        raise AuthenticationFailed("the message of OAUTHBEARER has no bearer token")
    return decode_name(match["authzid"] or ""), authorization["token"]
