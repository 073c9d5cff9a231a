"""Callboard's own clients authenticate with tokens: from a file, or from an endpoint."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from harness import NodeHarness, async_test
from sasl_helpers import running_sasl_node
from tls_helpers import TlsFolder

from callboard.runtime.client.blocking import BlockingConnection
from callboard.runtime.client.connection import LoginRefused, connect_to
from callboard.runtime.client.errors import ClientError
from callboard.runtime.client.login_session import CredentialsUnavailable
from callboard.runtime.client.security import ClientSecurity, load_security
from callboard.runtime.client.tokens import Tokens, _parse
from callboard.runtime.cluster.node_peers import NodePeers
from callboard.runtime.cluster.register import Endpoint, NodeEntry
from callboard.runtime.common.errors import StartError
from callboard.runtime.embed.cluster_environment import peer_security
from callboard.runtime.security.web import WebAnswer
from callboard.runtime.settings.address import Address
from callboard.runtime.settings.client_settings import TokenSource
from callboard.runtime.settings.listeners import Listener

SERVER = {"sasl_enabled_mechanisms": "OAUTHBEARER", "sasl_oauthbearer_allow_unsigned": "true"}
CLIENT = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
ID = "sasl.oauthbearer.client.credentials.client.id"
SECRET = "sasl.oauthbearer.client.credentials.client.secret"
ASKED = {"key": "g", "key_type": 0}
LIFETIME_S = 60


def unsigned(user: str = "alice", lifetime_s: float = LIFETIME_S) -> str:
    claims = {"sub": user, "exp": time.time() + lifetime_s}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return ".".join([*(urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts), ""])


def from_file(path: Path) -> ClientSecurity:
    return load_security({**CLIENT, ENDPOINT: path.as_uri()}, {})


def address_of(harness: NodeHarness) -> Address:
    return Address("127.0.0.1", harness.port)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "the token"
    path.write_text(f"{unsigned()}\n")
    return path


@async_test
async def test_both_kinds_of_connections_authenticate_with_the_token_of_a_file(file: Path, tmp_path: Path) -> None:
    def ask() -> Any:
        with BlockingConnection(address_of(harness), 10, from_file(file)) as connection:
            return connection.ask("find_coordinator", **ASKED)

    async with running_sasl_node(tmp_path / "data", SERVER) as harness:
        connection = await connect_to(address_of(harness), "c", from_file(file))
        assert (await connection.ask("find_coordinator", ASKED)).port == harness.port
        [own] = harness.node.connections
        assert str(own.principal) == "User:alice"
        connection.close()
        assert (await asyncio.to_thread(ask)).port == harness.port


@async_test
async def test_nodes_authenticate_with_the_token_of_their_listener(file: Path, tmp_path: Path) -> None:
    own = {"sasl_mechanism": "oauthbearer", ENDPOINT.replace(".", "_"): file.as_uri()}
    listener = Listener(protocol="SASL_PLAINTEXT", settings={**SERVER, **own})
    options: Any = SimpleNamespace(listeners=[listener], inter_broker_listener=listener.name)
    async with running_sasl_node(tmp_path / "data", SERVER) as harness:
        connection = await connect_to(address_of(harness), "c", peer_security(options))
        assert (await connection.ask("find_coordinator", ASKED)).port == harness.port
        connection.close()


@async_test
async def test_refused_node_is_logged_once(file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.unlink()
    async with running_sasl_node(tmp_path / "data", SERVER) as harness:
        entry = NodeEntry("n1", 1, {"SASL": Endpoint("127.0.0.1", harness.port)})
        register = SimpleNamespace(version=1, nodes={"s1": entry})
        node: Any = SimpleNamespace(register=register, session=SimpleNamespace(name="s2"), secret=b"")
        peers = NodePeers(node, AsyncMock(), 10.0, "SASL", from_file(file))
        for _ in range(2):
            with pytest.raises(LoginRefused, match="no token from"):
                await peers._connections.ask("s1", "write_txn_markers", {})
    [logged] = [record.getMessage() for record in caplog.records if "another node" in record.getMessage()]
    assert "no token from file" in logged


@async_test
async def test_file_is_read_again_for_each_login(file: Path, tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path / "data", SERVER) as harness:
        connection = await connect_to(address_of(harness), "c", from_file(file))
        session = connection._session
        assert session is not None
        assert 0 < session._due_s - time.monotonic() < LIFETIME_S, "the session ends with the token"
        file.write_text(unsigned(lifetime_s=1e6))
        session._due_s = 0.0
        assert (await connection.ask("find_coordinator", ASKED)).port == harness.port
        assert session._due_s - time.monotonic() > LIFETIME_S
        file.write_text(unsigned("bob"))
        session._due_s = 0.0
        await asyncio.sleep(1.0)  # a client may not authenticate again within a second
        with pytest.raises(LoginRefused, match="Cannot change principals during re-authentication"):
            await connection.ask("find_coordinator", ASKED)


@async_test
async def test_refused_token_is_named_without_its_text(file: Path, tmp_path: Path) -> None:
    token = unsigned(lifetime_s=-LIFETIME_S)
    file.write_text(token)
    expected = r'does not let the owner of the token in: {"status":"invalid_token"}'
    async with running_sasl_node(tmp_path / "data", SERVER) as harness:
        with pytest.raises(LoginRefused, match=expected) as refused:
            await connect_to(address_of(harness), "c", from_file(file))
        with pytest.raises(ClientError, match=expected):
            await asyncio.to_thread(BlockingConnection, address_of(harness), 10, from_file(file))
    assert token not in str(refused.value)


@async_test
async def test_missing_token_is_named(file: Path, tmp_path: Path) -> None:
    file.unlink()
    expected = r"cannot authenticate to 127.0.0.1:\d+: no token from file:///.*/the%20token: No such file"
    async with running_sasl_node(tmp_path / "data", SERVER) as harness:
        with pytest.raises(LoginRefused, match=expected):
            await connect_to(address_of(harness), "c", from_file(file))
        with pytest.raises(ClientError, match=expected):
            await asyncio.to_thread(BlockingConnection, address_of(harness), 10, from_file(file))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "other characters than letters"),
        (b"a b", "other characters than letters"),
        (b"\xff", "no text in UTF-8"),
    ],
)
def test_file_without_a_token_is_named(file: Path, content: bytes, reason: str) -> None:
    file.write_bytes(content)
    with pytest.raises(CredentialsUnavailable, match=rf"no token from file:///.*: it .*{reason}"):
        Tokens(TokenSource(file.as_uri())).login()


def test_token_is_not_waited_for(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(CredentialsUnavailable, match="it is a FIFO, a socket or a device"):
        Tokens(TokenSource(file.as_uri())).login()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, r"needs tokens: expected sasl.oauthbearer.token.endpoint.url in the settings"),
        ({ENDPOINT: "http://example.com/token"}, r"bad value 'http://example.com/token' .*: expected file:///PATH or"),
        ({ENDPOINT: "https://example.com"}, rf"needs the id and the secret of the client: expected {ID} in"),
        (
            {ENDPOINT: "https://example.com", ID: "a"},
            rf"expected {SECRET} in .*CALLBOARD_SASL_OAUTHBEARER_CLIENT_CREDE",
        ),
    ],
)
def test_incomplete_settings_are_refused(settings: dict[str, str], text: str) -> None:
    with pytest.raises(StartError, match=text):
        load_security({**CLIENT, **settings}, {})


def test_settings_of_java_are_accepted_and_secrets_not_shown() -> None:
    jaas = 'x.OAuthBearerLoginModule required clientId="me" clientSecret="hunter2" scope="kafka";'
    handler = {"sasl.login.callback.handler.class": "org.apache.kafka.x.OAuthBearerLoginCallbackHandler"}
    given = {**CLIENT, **handler, ENDPOINT: "https://example.com/token", "sasl.jaas.config": jaas}
    settings = load_security(given, {}).settings
    assert settings.credentials == TokenSource("https://example.com/token", "me", "hunter2", "kafka")
    assert "hunter2" not in repr(settings) + repr(settings.credentials)


# An endpoint ---------------------------------------------------------------------------------------------------------


class Provider:
    """An identity provider. ``forms``: what it was asked, with the client's id and secret."""

    def __init__(self) -> None:
        self.status = 200
        self.forms: list[tuple[str, str]] = []
        self.values: dict[str, Any] = {"expires_in": 100}
        self.url = ""
        self.http: Any = None

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        form = handler.rfile.read(int(handler.headers["Content-Length"])).decode()
        credentials = b64decode(handler.headers["Authorization"].removeprefix("Basic ")).decode()
        self.forms.append((credentials, form))
        body = json.dumps({"access_token": f"token{len(self.forms)}", **self.values}).encode()
        handler.send_response(self.status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        with suppress(OSError):
            handler.wfile.write(body)


@pytest.fixture
def provider() -> Iterator[Provider]:
    own = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            own.answer(self)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        own.http = http
        Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        own.url = f"http://127.0.0.1:{http.server_port}/token"
        yield own
        http.shutdown()


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_endpoint_is_asked_again_when_most_of_the_lifetime_is_over(provider: Provider) -> None:
    clock = Clock()
    tokens = Tokens(TokenSource(provider.url, "me:", "a&b", "kafka read"), clock)
    assert [tokens.login().password for _ in range(3)] == ["token1"] * 3
    clock.now_s += 79
    assert tokens.login().password == "token1"
    clock.now_s += 1
    assert tokens.login().password == "token2"
    assert provider.forms == [("me%3A:a%26b", "grant_type=client_credentials&scope=kafka+read")] * 2


def test_endpoint_is_asked_again_when_its_token_was_refused(provider: Provider) -> None:
    tokens = Tokens(TokenSource(provider.url, "me", "secret"), Clock())
    assert tokens.login().password == "token1"
    tokens.refused()
    assert tokens.login().password == "token2"


@pytest.mark.parametrize(
    "expires_in",
    [None, "soon", -1, [], 10**400, float("inf"), "1_000", "\u0661\u0660\u0660"],
    ids=["none", "a text", "past", "a list", "huge", "endless", "with an underscore", "digits of another script"],
)
def test_token_without_a_lifetime_is_used_once(provider: Provider, expires_in: Any) -> None:
    provider.values = {"expires_in": expires_in}
    tokens = Tokens(TokenSource(provider.url, "me", "secret"), Clock())
    assert [tokens.login().password for _ in range(2)] == ["token1", "token2"]


@pytest.mark.parametrize(
    ("status", "values", "reason"),
    [
        (401, {"error": "invalid_client"}, "the answer has the status 401: expected 200 invalid_client$"),
        (302, {}, "the answer has the status 302: expected 200$"),
        (200, {"access_token": None}, "the answer has no token: expected JSON with an access_token$"),
        (200, {"access_token": "a b"}, "it has other characters than letters"),
    ],
)
def test_endpoint_without_a_token_is_named(
    provider: Provider, status: int, values: dict[str, Any], reason: str
) -> None:
    provider.status, provider.values = status, values
    with pytest.raises(CredentialsUnavailable, match=rf"no token from {provider.url}: {reason}"):
        Tokens(TokenSource(provider.url, "me", "hunter2")).login()


def test_answer_that_is_nested_too_deeply_has_no_token() -> None:
    with pytest.raises(ValueError, match="the answer has the status 401: expected 200"):
        _parse(WebAnswer(401, b"[" * 200_000))


def test_failure_of_the_endpoint_counts_for_a_second(provider: Provider) -> None:
    """Many connections that wait for a token do not wait one after the other."""
    clock = Clock()
    tokens = Tokens(TokenSource(provider.url, "me", "secret"), clock)
    provider.status = 503
    for _ in range(3):
        with pytest.raises(CredentialsUnavailable):
            tokens.login()
    assert len(provider.forms) == 1
    provider.status = 200
    clock.now_s += 1
    assert tokens.login().password == "token2"


def test_endpoint_needs_a_certificate_of_a_known_authority(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = TlsFolder(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.keystore)
    provider.http.socket = context.wrap_socket(provider.http.socket, server_side=True)
    source = TokenSource(provider.url.replace("http:", "https:"), "me", "secret")
    with pytest.raises(CredentialsUnavailable, match="certificate verify failed"):
        Tokens(source).login()
    monkeypatch.setenv("SSL_CERT_FILE", str(files.truststore))
    assert Tokens(source).login().password == "token1"


@async_test
async def test_client_authenticates_with_the_token_of_an_endpoint(provider: Provider, tmp_path: Path) -> None:
    provider.values = {"access_token": unsigned()}
    security = load_security({**CLIENT, ENDPOINT: provider.url, ID: "me", SECRET: "secret"}, {})
    async with running_sasl_node(tmp_path, SERVER) as harness:
        connection = await connect_to(address_of(harness), "c", security)
        assert (await connection.ask("find_coordinator", ASKED)).port == harness.port
        connection.close()
