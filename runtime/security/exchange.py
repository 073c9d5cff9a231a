"""What all SASL mechanisms have in common: an exchange takes tokens of a client and answers them. Pure.

An exchange is one run of a mechanism. It has no state of a connection, and neither time nor threads: what takes long is
returned as ``Blocking``, and the caller decides where it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

MESSAGE_BYTES_MAX: Final = 8192
"""Longer messages of PLAIN and SCRAM fail unread: parsing them would delay other clients."""


class Failure(StrEnum):
    """Why clients fail to authenticate, as a label of a metric: a few kinds that no client can add to."""

    CREDENTIALS = "credentials"  # a wrong password, or no such user
    TOKEN = "token"  # nosec B105 # it is not valid, or has expired
    USER = "user"  # not the one of the session, or of the authorization id
    MECHANISM = "mechanism"  # it is not enabled
    MESSAGE = "message"  # not one of the mechanism
    TIMEOUT = "timeout"
    CERTIFICATE = "certificate"
    HANDSHAKE = "handshake"  # of TLS


class AuthenticationFailed(Exception):
    """The client is not who it says it is, or its token is invalid.

    ``text``: for the client; "" for the text that all such errors have. ``reason``: for the log. Neither says whether a
    user exists, and neither has a secret.
    """

    def __init__(self, reason: str, text: str = "", kind: Failure = Failure.MESSAGE) -> None:
        super().__init__(reason)
        self.reason = reason
        self.text = text
        self.kind = kind


class Challenge(NamedTuple):
    """The client has to answer ``token``."""

    token: bytes


class Accepted(NamedTuple):
    """The client is the user ``name``. ``token`` is the last answer.

    ``expires_at_ms``: on the wall clock, when its credential ends; None if it does not end. ``grace_ms``: for so long
    after that it is accepted nevertheless, since clocks differ.
    """

    name: str
    token: bytes = b""
    expires_at_ms: int | None = None
    grace_ms: int = 0


class Blocking(NamedTuple):
    """``work`` takes milliseconds of a processor. Then ``finish`` gets its result on the loop's thread."""

    work: Callable[[], Any]
    finish: Callable[[Any], Accepted]


Step = Challenge | Accepted | Blocking


class Exchange(Protocol):
    def evaluate(self, token: bytes) -> Step:
        """Answer the next token of the client. Raises AuthenticationFailed; then the exchange is over."""


def check_size(message: bytes, max_bytes: int = MESSAGE_BYTES_MAX) -> None:
    """Raises AuthenticationFailed."""
    if len(message) > max_bytes:
        raise AuthenticationFailed(f"a message is longer than {max_bytes} bytes")
