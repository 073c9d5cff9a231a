"""SaslAuthenticate (36) of a client that authenticates again (KIP-368). Any other one is told that it need not."""

from __future__ import annotations

from ....actors.errors import ErrorCode
from ..authentication.authenticator import answer_token
from ..call import Call

TOO_LATE = "SaslAuthenticate request received after successful authentication"


def handle(call: Call) -> None:
    authenticator = call.connection.authenticator
    if authenticator is None or not authenticator.take_again(call):
        answer_token(call, ErrorCode.ILLEGAL_SASL_STATE, TOO_LATE)
