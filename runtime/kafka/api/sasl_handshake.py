"""SaslHandshake (17) of a client that is authenticated, or need not be: it may authenticate again (KIP-368)."""

from __future__ import annotations

from ....actors.errors import ErrorCode
from ..authentication.authenticator import answer_handshake
from ..call import Call


def handle(call: Call) -> None:
    authenticator = call.connection.authenticator
    if authenticator is None or not authenticator.begin_again(call):
        answer_handshake(call, ErrorCode.ILLEGAL_SASL_STATE, ())
