"""Tokens: signed ones by the keys of a JWKS, and unsigned ones where they are allowed."""

from __future__ import annotations

import hmac
import json
import os
import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from callboard.runtime.security.oauthbearer import TokenRefused, ValidToken
from callboard.runtime.security.token_settings import TokenSettings
from callboard.runtime.security.unsigned_tokens import UnsignedTokens
from callboard.runtime.settings.urls import check_url

jwt = pytest.importorskip("jwt")

from callboard.runtime.security.jwks import JwksUnavailable, read_keys  # noqa: E402
from callboard.runtime.security.signed_tokens import SignedTokens, parse_jwks  # noqa: E402

NOW_S = 2_000_000_000
CLAIMS = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 60}


@pytest.fixture(scope="module")
def keys() -> dict[str, Any]:
    """Private keys by their id."""
    return {
        "rsa": rsa.generate_private_key(65537, 2048),
        "ec": ec.generate_private_key(ec.SECP256R1()),
        "ed": ed25519.Ed25519PrivateKey.generate(),
    }


def entry(key: Any, key_id: str, **values: str) -> dict[str, Any]:
    public = key.public_key()
    algorithm = {"ec": jwt.algorithms.ECAlgorithm, "ed": jwt.algorithms.OKPAlgorithm}.get(key_id)
    return {**(algorithm or jwt.algorithms.RSAAlgorithm).to_jwk(public, as_dict=True), "kid": key_id, **values}


@pytest.fixture(scope="module")
def document(keys: dict[str, Any]) -> dict[str, Any]:
    return {"keys": [entry(key, key_id) for key_id, key in keys.items()]}


@pytest.fixture
def tokens(document: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> SignedTokens:
    return validator(document, monkeypatch)


def validator(document: Any, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> SignedTokens:
    """At NOW_S."""
    from datetime import UTC, datetime

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.fromtimestamp(NOW_S, UTC)

    monkeypatch.setattr("jwt.api_jwt.datetime", Clock)
    own = SignedTokens(TokenSettings(**settings))
    own.keys = parse_jwks(document)
    return own


def signed(keys: dict[str, Any], key_id: str = "rsa", algorithm: str = "RS256", **claims: Any) -> str:
    values = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return str(jwt.encode(values, keys[key_id], algorithm=algorithm, headers={"kid": key_id}))


@pytest.mark.parametrize(
    ("key_id", "algorithm"),
    [("rsa", "RS256"), ("rsa", "RS512"), ("rsa", "PS384"), ("ec", "ES256"), ("ed", "EdDSA")],
)
def test_signed_token_is_valid(tokens: SignedTokens, keys: dict[str, Any], key_id: str, algorithm: str) -> None:
    assert tokens.validate(signed(keys, key_id, algorithm)) == ValidToken("alice", (NOW_S + 60) * 1000, 30_000)


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": NOW_S - 31}, "ExpiredSignatureError"),
        ({"exp": None}, "MissingRequiredClaimError"),
        ({"iat": None}, "MissingRequiredClaimError"),
        ({"iat": NOW_S + 31}, "ImmatureSignatureError"),
        ({"nbf": NOW_S + 31}, "ImmatureSignatureError"),
        ({"sub": None}, "its claim sub is not a name"),
        ({"sub": " "}, "its claim sub is not a name"),
    ],
)
def test_claims(tokens: SignedTokens, keys: dict[str, Any], claims: dict[str, Any], reason: str) -> None:
    assert tokens.validate(signed(keys, exp=NOW_S - 29)), "the clocks may differ by half a minute"
    with pytest.raises(TokenRefused, match=reason):
        tokens.validate(signed(keys, **claims))


@pytest.mark.parametrize(
    ("settings", "good", "bad"),
    [
        ({"audiences": ("a", "b")}, {"aud": ["b", "x"]}, {"aud": "x"}),
        ({"audiences": ("a",)}, {"aud": "a"}, {}),
        ({"issuer": "https://i"}, {"iss": "https://i"}, {"iss": "https://j"}),
        ({"required_scope": "kafka"}, {"scope": "x kafka"}, {"scope": "kafka2"}),
        ({"required_scope": "kafka", "scope_claim": "s"}, {"s": ["kafka"]}, {"scope": "kafka"}),
        ({"name_claim": "n"}, {"n": "alice"}, {"n": 1}),
    ],
)
def test_settings(
    document: Any, keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch, settings: Any, good: Any, bad: Any
) -> None:
    own = validator(document, monkeypatch, **settings)
    assert own.validate(signed(keys, **good)).name == "alice"
    with pytest.raises(TokenRefused) as caught:
        own.validate(signed(keys, **bad))
    assert caught.value.scope == ("[kafka]" if "required_scope" in settings else "")


def test_key_decides_the_algorithm(tokens: SignedTokens, keys: dict[str, Any]) -> None:
    """A token that is signed with a public key as a password, with another key, or not at all, is refused."""
    public = keys["rsa"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    message = unsigned({"alg": "HS256", "typ": "JWT", "kid": "rsa"}).removesuffix(".")
    signature = urlsafe_b64encode(hmac.digest(public, message.encode(), "sha256")).rstrip(b"=").decode()
    for forged in (
        f"{message}.{signature}",
        jwt.encode(CLAIMS, keys["ec"], algorithm="ES256", headers={"kid": "rsa"}),
        jwt.encode(CLAIMS, rsa.generate_private_key(65537, 2048), algorithm="RS256", headers={"kid": "rsa"}),
        jwt.encode(CLAIMS, "", algorithm="none", headers={"kid": "rsa"}),
        signed(keys)[:-4] + "AAAA",
        "a.b.c",
        "x",
    ):
        with pytest.raises(TokenRefused):
            tokens.validate(forged)


def test_token_of_an_unknown_key_is_refused_and_the_keys_are_wanted(tokens: SignedTokens, keys: dict[str, Any]) -> None:
    wanted: list[None] = []
    tokens.on_unknown_key = lambda: wanted.append(None)
    with pytest.raises(TokenRefused, match="a key that is not known"):
        tokens.validate(jwt.encode(CLAIMS, keys["rsa"], algorithm="RS256", headers={"kid": "new"}))
    assert len(wanted) == 1
    for headers in ({}, {"kid": "x" * 1001}):
        with pytest.raises(TokenRefused, match="it names no key"):
            tokens.validate(jwt.encode(CLAIMS, keys["rsa"], algorithm="RS256", headers=headers))
    assert len(wanted) == 1


def test_expiry_may_be_a_text_as_for_the_library(tokens: SignedTokens, keys: dict[str, Any]) -> None:
    assert tokens.validate(signed(keys, exp=str(NOW_S + 60))).expires_at_ms == (NOW_S + 60) * 1000


def test_reason_quotes_little_of_a_token_and_no_line_end(tokens: SignedTokens, keys: dict[str, Any]) -> None:
    """Reasons are in the log and in the audit trail."""
    headers = {"kid": "rsa", "crit": ["x\n" * 5000]}
    with pytest.raises(TokenRefused, match=r"InvalidTokenError: 'Unsupported critical extension: x\\nx") as caught:
        tokens.validate(jwt.encode(CLAIMS, keys["rsa"], algorithm="RS256", headers=headers))
    assert len(caught.value.reason) < 300 and "\n" not in caught.value.reason


def test_keys_that_cannot_sign_are_left_out(keys: dict[str, Any]) -> None:
    weak = rsa.generate_private_key(65537, 1024)
    entries = [
        entry(weak, "weak"),
        entry(keys["rsa"], "for encryption", use="enc"),
        entry(keys["rsa"], "hmac", alg="HS256"),
        {"kty": "oct", "k": "AAAA", "kid": "password"},
        {"kty": "RSA", "kid": "damaged", "n": "!", "e": "AQAB"},
        {"kty": ["RSA"], "kid": "a list"},
        {**entry(keys["rsa"], "another list"), "alg": ["RS256"]},
        {"kty": "RSA", "kid": "a number", "n": 1, "e": "AQAB"},
        "x",
        entry(keys["rsa"], "good", alg="PS256"),
    ]
    found = parse_jwks({"keys": entries})
    assert {key_id: key.algorithms for key_id, key in found.items()} == {"good": ("PS256",)}
    documents: list[Any] = [{"keys": entries[:-1]}, {"keys": 1}, {}, [], None]
    for bad in documents:
        with pytest.raises(ValueError, match="expected"):
            parse_jwks(bad)


# Where keys are ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["http://example.org/keys", "ftp://localhost/x", "keys.json", ""])
def test_keys_are_not_read_from_there(url: str) -> None:
    with pytest.raises(ValueError, match="expected file:///PATH or https://HOST/PATH"):
        check_url(url)


def test_keys_of_a_file(tmp_path: Path, document: Any) -> None:
    path = tmp_path / "the keys.json"
    check_url(path.as_uri())
    for text in (None, "", "{", "{}"):
        if text is not None:
            path.write_text(text)
        with pytest.raises(JwksUnavailable, match=path.as_uri()):
            read_keys(path.as_uri())
    path.write_text(json.dumps(document))
    assert read_keys(path.as_uri()).keys() == {"rsa", "ec", "ed"}


def test_keys_are_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    os.mkfifo(path)
    with pytest.raises(JwksUnavailable, match="it is a FIFO, a socket or a device"):
        read_keys(path.as_uri())


@pytest.fixture(scope="module")
def server(document: Any) -> Iterator[str]:
    body = json.dumps(document).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response({"/keys?x=1": 200, "/large": 200, "/moved": 302}.get(self.path, 404))
            self.end_headers()
            self.wfile.write(body if self.path != "/large" else b" " * 1_100_000)

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


def test_keys_of_a_url(server: str) -> None:
    check_url(server)
    assert read_keys(f"{server}/keys?x=1").keys() == {"rsa", "ec", "ed"}
    for path, reason in {"/moved": "status 302", "/none": "status 404", "/large": "more than 1048576 bytes"}.items():
        with pytest.raises(JwksUnavailable, match=reason):
            read_keys(server + path)


# Unsigned tokens -----------------------------------------------------------------------------------------------------


def unsigned(header: Any = None, **claims: Any) -> str:
    values = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    parts = [json.dumps({"alg": "none"} if header is None else header).encode(), json.dumps(values).encode()]
    return ".".join([*(urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts), ""])


def test_unsigned_token_is_valid() -> None:
    own = UnsignedTokens(TokenSettings(skew_s=0), lambda: NOW_S * 1000)
    assert own.validate(unsigned(exp=NOW_S + 1.5)) == ValidToken("alice", NOW_S * 1000 + 1500)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (unsigned(exp=None), "it has no exp"),
        (unsigned(exp=NOW_S), "it has expired"),
        (unsigned(exp="1"), "its exp is not a time"),
        (unsigned(exp=True), "its exp is not a time"),
        (unsigned(exp=1e400), "its exp is not a time"),
        (unsigned(iat=NOW_S + 1), "its iat is in the future"),
        (unsigned(nbf=NOW_S + 1), "its nbf is in the future"),
        (unsigned(sub=None), "its claim sub is not a name"),
        (unsigned({"alg": "RS256"}), "it is signed"),
        (unsigned() + "x", "it is not an unsigned token"),
        ("a.b", "it is not an unsigned token"),
        ("a.b.", "it cannot be decoded"),
        (f"{'W1td' * 100_000}.W10.", "cannot be decoded|no claims"),
        ("W10.W10.", "it has no claims"),
    ],
)
def test_unsigned_token_is_refused(token: str, reason: str) -> None:
    with pytest.raises(TokenRefused, match=reason):
        UnsignedTokens(TokenSettings(skew_s=0), lambda: NOW_S * 1000).validate(token)
