"""SCRAM: the example of RFC 7677, and each message that must fail."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest
from sasl_helpers import ScramClient

from callboard.runtime.security.credentials import (
    SCRAM_MECHANISMS,
    SHA_256,
    Credential,
    ScramMechanism,
    credential_of,
    decode_credential,
)
from callboard.runtime.security.exchange import MESSAGE_BYTES_MAX, Accepted, AuthenticationFailed, Challenge
from callboard.runtime.security.scram import OTHER_AUTHORIZATION_ID, ScramExchange

SECRET = b"secret of the servers"
NONCE = "server-nonce"


def credential(mechanism: ScramMechanism = SHA_256, password: bytes = b"pencil", iterations: int = 4096) -> Credential:
    salt = b"0123456789"
    return credential_of(mechanism, mechanism.salted_password(password, salt, iterations), salt, iterations)


def exchange(
    mechanism: ScramMechanism = SHA_256, known: Credential | None = None, secret: bytes = SECRET
) -> ScramExchange:
    known = known or credential(mechanism)
    return ScramExchange(mechanism, {"user": known, "a,b=c": known}.get, secret, NONCE)


def challenge(own: ScramExchange, token: bytes) -> bytes:
    step = own.evaluate(token)
    assert isinstance(step, Challenge)
    return step.token


def test_example_of_rfc_7677() -> None:
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    known = credential_of(SHA_256, SHA_256.salted_password(b"pencil", salt, 4096), salt, 4096)
    own = ScramExchange(SHA_256, {"user": known}.get, SECRET, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert (
        challenge(own, b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    )
    final = f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert own.evaluate(final.encode()) == Accepted("user", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_client_with_the_password_is_accepted_and_may_verify_the_server(mechanism: ScramMechanism) -> None:
    own, client = exchange(mechanism), ScramClient(mechanism.name, "user", "pencil")
    step = own.evaluate(client.last(challenge(own, client.first())))
    assert isinstance(step, Accepted) and step.name == "user" and step.expires_at_ms is None
    client.verify(step.token)


def test_name_with_a_comma_and_an_equals_sign() -> None:
    own, client = exchange(), ScramClient("SCRAM-SHA-256", "a=2Cb=3Dc", "pencil")
    step = own.evaluate(client.last(challenge(own, client.first())))
    assert isinstance(step, Accepted) and step.name == "a,b=c"


def test_unknown_extensions_are_ignored() -> None:
    assert challenge(exchange(), b"n,,n=user,r=abc,x=y,z=1").startswith(b"r=abc" + NONCE.encode())


@pytest.mark.parametrize(
    "first",
    [
        *(b"", b"n", b"n,,", b"n,,n=user", b"n,,n=user,r=", b"n,,n=,r=abc", b"y,,n=user,r=abc"),
        *(b"p=tls-unique,,n=user,r=abc", b"n,,n=us=er,r=abc", b"n,,n=us,er,r=abc", b"n,,n=user,r=a bc"),
        *(b"n,,n=us\x00er,r=abc", b"n,,n=us\xe9r,r=abc", b"n,,n=user,r=abc,1=2", b"n,,n=user,r=abc\n", b"\xff\xfe"),
        *(b"n,,n=user,r=abc,tokenauth=true", b"n,,n=user,r=abc,x=y,tokenauth=TRUE"),
        pytest.param(b"n,,n=user,r=" + b"a" * MESSAGE_BYTES_MAX, id="long"),
    ],
)
def test_invalid_first_message_fails(first: bytes) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        exchange().evaluate(first)
    assert caught.value.text == ""


def test_another_authorization_id_fails_with_kafkas_text() -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        exchange().evaluate(b"n,a=other,n=user,r=abc")
    assert caught.value.text == OTHER_AUTHORIZATION_ID
    assert challenge(exchange(), b"n,a=user,n=user,r=abc")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"c=biws", b"c=eSws"),  # y,,
        (b"c=biws", b"c="),
        (b"r=abc", b"r=xyz"),
        (b"r=abc", b"r=xabc"),
        (b",p=", b",q="),
        (b",p=", b",p=AAAA"),
        (b",p=", b",m=x,p="),  # the proof covers extensions
        (b"=", b"\xff"),
    ],
)
def test_changed_last_message_fails(old: bytes, new: bytes) -> None:
    own, client = exchange(), ScramClient("SCRAM-SHA-256", "user", "pencil", "abc")
    message = client.last(challenge(own, client.first()))
    assert old in message
    with pytest.raises(AuthenticationFailed) as caught:
        own.evaluate(message.replace(old, new, 1))
    assert caught.value.text == ""


@pytest.mark.parametrize("user", ["user", "nobody"])
def test_wrong_password_and_unknown_user_fail_alike(user: str) -> None:
    own, client = exchange(), ScramClient("SCRAM-SHA-256", user, "pencil" if user == "nobody" else "wrong")
    message = client.last(challenge(own, client.first()))
    with pytest.raises(AuthenticationFailed) as caught:
        own.evaluate(message)
    assert (caught.value.reason, caught.value.text) == ("wrong password, or no such user", "")


def test_salt_of_an_unknown_user_never_changes_and_differs_by_user_mechanism_and_secret() -> None:
    def salt(user: str, mechanism: ScramMechanism = SHA_256, secret: bytes = SECRET) -> bytes:
        return challenge(exchange(mechanism, secret=secret), f"n,,n={user},r=abc".encode()).split(b",")[1]

    assert salt("x") == salt("x")
    assert len({salt("x"), salt("y"), salt("x", SCRAM_MECHANISMS[1]), salt("x", secret=b"other")}) == 4


def test_credential_with_too_few_iterations_fails() -> None:
    with pytest.raises(AuthenticationFailed, match="fewer than 4096 iterations"):
        exchange(known=credential(iterations=4095)).evaluate(b"n,,n=user,r=abc")


def test_stored_credential_is_read_as_it_was_written_and_shows_no_secret() -> None:
    own = credential()
    assert decode_credential(own.fields()) == own
    assert b64encode(own.stored_key).decode() not in repr(own)
    assert repr(own) == "Credential(iterations=4096)"
