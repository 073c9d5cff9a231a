"""OAUTHBEARER: the messages of clients, and Kafka's answer to a token that is not valid."""

from __future__ import annotations

import pytest

from callboard.runtime.security.exchange import Accepted, AuthenticationFailed, Challenge
from callboard.runtime.security.oauthbearer import (
    OAUTHBEARER_BYTES_MAX,
    OAuthBearerExchange,
    TokenRefused,
    ValidToken,
    split_message,
)


class Tokens:
    """Takes the token "good"."""

    def __init__(self, scope: str = "") -> None:
        self._scope = scope

    def validate(self, token: str) -> ValidToken:
        if token != "good":
            raise TokenRefused("it is not good", self._scope)
        return ValidToken("alice", 5000, 30)


def first(token: str = "good", authorization_id: str = "", rest: bytes = b"") -> bytes:
    header = f"a={authorization_id}" if authorization_id else ""
    return f"n,{header},\x01auth=Bearer {token}\x01".encode() + rest + b"\x01"


@pytest.mark.parametrize(
    "message",
    [first(), first(authorization_id="alice"), first(rest=b"key=a value\x01"), b"n,,\x01auth=bEaReR  good\x01\x01"],
)
def test_valid_token_is_accepted_until_it_expires(message: bytes) -> None:
    assert OAuthBearerExchange(Tokens()).evaluate(message) == Accepted("alice", b"", 5000, 30)


@pytest.mark.parametrize(
    ("scope", "answer"),
    [("", b'{"status":"invalid_token"}'), ("[kafka]", b'{"status":"insufficient_scope","scope":"[kafka]"}')],
)
def test_refused_token_is_an_answer_first_and_then_the_same_error(scope: str, answer: bytes) -> None:
    exchange = OAuthBearerExchange(Tokens(scope))
    assert exchange.evaluate(first("bad")) == Challenge(answer)
    with pytest.raises(AuthenticationFailed) as caught:
        exchange.evaluate(b"\x01")
    assert caught.value.text == answer.decode()


def test_refused_token_cannot_be_followed_by_another_one() -> None:
    exchange = OAuthBearerExchange(Tokens())
    exchange.evaluate(first("bad"))
    with pytest.raises(AuthenticationFailed) as caught:
        exchange.evaluate(first())
    assert caught.value.text == ""


def test_another_authorization_id_fails_with_kafkas_text() -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        OAuthBearerExchange(Tokens()).evaluate(first(authorization_id="bob"))
    assert caught.value.text == (
        "Authentication failed: Client requested an authorization id (bob) that is different from the token's principal"
        " name (alice)"
    )


@pytest.mark.parametrize(
    "message",
    [
        *(b"", b"\x01", b"n,,", b"n,,\x01\x01", b"n,,\x01auth=Bearer good\x01", b"y,,\x01auth=Bearer good\x01\x01"),
        *(b"n,,\x01auth=Basic good\x01\x01", b"n,,\x01auth=good\x01\x01", b"n,,\x01auth=Bearer go od\x01\x01"),
        *(
            b"n,,\x01auth=Bearer \xff\x01\x01",
            b"n,,\x01k-ey=x\x01auth=Bearer good\x01\x01",
            b"n,a=,\x01auth=Bearer x\x01\x01",
            pytest.param(first(rest=b"key=" + b"x" * OAUTHBEARER_BYTES_MAX + b"\x01"), id="long"),
        ),
    ],
)
def test_invalid_message_fails(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        split_message(message)
    assert caught.value.text == ""
    assert "good" not in caught.value.reason
