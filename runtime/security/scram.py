"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), the server's side. Pure.

The messages that Kafka accepts are accepted, see ScramMessages.java. There are three differences: a user who does not
exist fails at the end, like a wrong password, the channel binding of the last message is checked, and the size of a
message is limited.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final

from .credentials import ITERATIONS_MIN, Credential, ScramMechanism, made_up_credential
from .exchange import Accepted, AuthenticationFailed, Challenge, Failure, check_size
from .sasl_names import SASL_NAME, decode_name

_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[A-Za-z0-9/+]{4})*(?:[A-Za-z0-9/+]{3}=|[A-Za-z0-9/+]{2}==)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
CLIENT_FIRST: Final = re.compile(
    rf"(?P<header>n,(?:a=(?P<authzid>{SASL_NAME}))?,)"
    rf"(?P<bare>(?:m={_VALUE},)?n=(?P<name>{SASL_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
CLIENT_FINAL: Final = re.compile(
    rf"(?P<without_proof>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
TOKEN_EXTENSION: Final = re.compile(r",tokenauth=true(?:,|$)", re.IGNORECASE)

OTHER_AUTHORIZATION_ID: Final = (
    "Authentication failed: Client requested an authorization id that is different from username"
)

FindCredential = Callable[[str], Credential | None]


class ScramExchange:
    """One authentication by SCRAM."""

    def __init__(self, mechanism: ScramMechanism, find: FindCredential, secret: bytes, new_nonce: str) -> None:
        """``secret``: of the servers. ``new_nonce``: random printable characters without a comma."""
        self._mechanism = mechanism
        self._find = find
        self._secret = secret
        self._new_nonce = new_nonce
        self._name = ""
        self._header = ""
        self._nonce = ""
        self._auth_message = ""  # without the client's last message
        self._credential: Credential | None = None

    def evaluate(self, token: bytes) -> Challenge | Accepted:
        return self._begin(token) if self._credential is None else self._end(token, self._credential)

    def _begin(self, token: bytes) -> Challenge:
        match = _match(CLIENT_FIRST, token)
        if TOKEN_EXTENSION.search(match["extensions"]):
            raise AuthenticationFailed("delegation tokens are not supported")
        self._name, self._header = decode_name(match["name"]), match["header"]
        if match["authzid"] and decode_name(match["authzid"]) != self._name:
            text = "the authorization id is not the name of the user"
            raise AuthenticationFailed(text, OTHER_AUTHORIZATION_ID, Failure.USER)
        known = self._find(self._name)
        credential = made_up_credential(self._mechanism, self._secret, self._name) if known is None else known
        if credential.iterations < ITERATIONS_MIN:
            text = f"the stored credential has fewer than {ITERATIONS_MIN} iterations"
            raise AuthenticationFailed(text, kind=Failure.CREDENTIALS)
        self._credential = credential
        self._nonce = match["nonce"] + self._new_nonce
        answer = f"r={self._nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        self._auth_message = f"{match['bare']},{answer}"
        return Challenge(answer.encode())

    def _end(self, token: bytes, credential: Credential) -> Accepted:
        match = _match(CLIENT_FINAL, token)
        if match["nonce"] != self._nonce:
            raise AuthenticationFailed("the nonce is not that of the first message")
        if b64decode(match["binding"]) != self._header.encode():
            raise AuthenticationFailed("the channel binding is not that of the first message")
        mechanism = self._mechanism
        auth_message = f"{self._auth_message},{match['without_proof']}".encode()
        signature = mechanism.hmac(credential.stored_key, auth_message)
        proof = b64decode(match["proof"])
        if len(proof) != len(signature):
            raise AuthenticationFailed("the length of the proof is wrong")
        client_key = bytes(a ^ b for a, b in zip(signature, proof, strict=True))
        if not hmac.compare_digest(mechanism.hash(client_key), credential.stored_key):
            raise AuthenticationFailed("wrong password, or no such user", kind=Failure.CREDENTIALS)
        return Accepted(self._name, b"v=" + b64encode(mechanism.hmac(credential.server_key, auth_message)))


def _match(message: re.Pattern[str], token: bytes) -> re.Match[str]:
    """Raises AuthenticationFailed. Bytes that are no ASCII match nothing."""
    check_size(token)
    match = message.fullmatch(token.decode("latin-1"))
    if match is None:
        raise AuthenticationFailed("a message of SCRAM is invalid")
    return match
