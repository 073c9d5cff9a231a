"""A node with a TLS listener: principals of clients, failed handshakes, reloading, and handshakes that do not end."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
from audit_helpers import audit_lines
from cryptography import x509
from harness import DEADLINE_S, Client, NodeHarness, async_test, frame, join_values, running_node
from peers.wire import Hangup
from sasl_helpers import add_user, log_in
from tls_helpers import SERVER_NAME, Authority, TlsFolder

from callboard.runtime.node.metrics import metrics

API_VERSIONS = frame("api_versions", 3, client_software_name="a", client_software_version="1")
PLAIN_REQUEST = frame("api_versions", 0)
MANY_BYTES = 65_536


@pytest.fixture
def files(tmp_path: Path) -> TlsFolder:
    return TlsFolder(tmp_path)


def tls_node(files: TlsFolder, settings: Any = None, **own: Any) -> Any:
    """A node whose only listener has TLS. ``own``: settings of the server."""
    return running_node(files.folder / "data", {"listeners": (files.listener(**settings or {}),)}, **own)


class RawTlsClient:
    """A client that sends what it has to say even if the handshake fails, and whose bytes can be damaged."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext) -> None:
        self.reader, self.writer = reader, writer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    @classmethod
    async def connect(cls, port: int, context: ssl.SSLContext) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port), context)

    async def shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self.writer.write(self._outgoing.read())
                self._incoming.write(await self.reader.read(65_536))
            else:
                return
            finally:
                self.writer.write(self._outgoing.read())

    async def close(self) -> None:
        self.writer.close()
        await asyncio.gather(self.writer.wait_closed(), return_exceptions=True)


async def until(condition: Callable[[], bool], what: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.005)
    assert condition(), what


async def principal_of(harness: NodeHarness, tls: ssl.SSLContext) -> str:
    client = await harness.connect(tls)
    await client.ask("api_versions", 0)
    [connection] = harness.node.connections
    principal = str(connection.principal)
    await client.close()
    await until(lambda: not len(harness.node.connections), "the connection has ended")
    return principal


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@async_test
async def test_requests_are_answered_over_tls(files: TlsFolder, version: ssl.TLSVersion) -> None:
    """Also large ones, in many records, and many that come together."""
    context = files.client_context()
    context.minimum_version = context.maximum_version = version
    async with tls_node(files) as harness:
        client = await harness.connect(context)
        values = join_values("g", protocols=[{"name": "range", "metadata": bytes(200_000)}])
        joined = await client.ask("join_group", 3, **values)
        members: Any = joined["members"]
        assert [len(member["metadata"]) for member in members] == [200_000]
        for _ in range(200):
            client.write(API_VERSIONS)
        answers = [await client.receive("api_versions", 3) for _ in range(200)]
        assert {answer["error_code"] for answer in answers} == {"NONE"}


@async_test
async def test_client_that_does_not_trust_the_server_is_named_in_the_log(
    files: TlsFolder, caplog: pytest.LogCaptureFixture
) -> None:
    async with tls_node(files) as harness:
        for _ in range(2):
            client = await RawTlsClient.connect(harness.port, ssl.create_default_context())
            with pytest.raises(ssl.SSLCertVerificationError):
                await client.shake_hands()
            await client.close()
        await until(lambda: not len(harness.node.connections), "the connections have ended")
    assert caplog.text.count("the client does not trust the authority of the server's certificate") == 1


# Client certificates --------------------------------------------------------------------------------------------------


@async_test
async def test_principal_is_the_name_in_the_certificate(files: TlsFolder) -> None:
    async with tls_node(files, {"ssl_client_auth": "requested"}) as harness:
        assert await principal_of(harness, files.client_context("duke")) == "User:CN=duke"
        assert await principal_of(harness, files.client_context()) == "User:ANONYMOUS"
        assert harness.node.services.sasl.logins.counts == {("SSL", "accepted"): 1}


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@async_test
async def test_session_that_is_resumed_is_that_of_the_same_client_until_files_change(
    files: TlsFolder, version: ssl.TLSVersion
) -> None:
    context = files.client_context("duke")
    context.minimum_version = context.maximum_version = version
    async with tls_node(files, {"ssl_client_auth": "required"}, audit="file") as harness:

        def connect(session: ssl.SSLSession | None) -> tuple[bool | None, ssl.SSLSession | None]:
            """Whether the session was resumed, and the session after one request."""
            plain = socket.create_connection(("127.0.0.1", harness.port), DEADLINE_S)
            with context.wrap_socket(plain, server_hostname="localhost", session=session) as tls:
                tls.sendall(PLAIN_REQUEST)
                assert tls.recv(MANY_BYTES)
                outcome = tls.session_reused, tls.session
                tls.unwrap().close()  # without it OpenSSL forgets the session
                return outcome

        _, session = await asyncio.to_thread(connect, None)
        resumed, session = await asyncio.to_thread(connect, session)
        assert resumed is (version is ssl.TLSVersion.TLSv1_2)
        harness.node.listeners.reload_certificates()
        assert (await asyncio.to_thread(connect, session))[0] is False
    assert [line["principal"] for line in audit_lines(files.folder / "data")] == ["User:CN=duke"] * 3


@async_test
async def test_certificate_is_not_asked_for_by_default(files: TlsFolder) -> None:
    async with tls_node(files) as harness:
        assert await principal_of(harness, files.client_context("duke")) == "User:ANONYMOUS"


@async_test
async def test_rules_make_the_principal(files: TlsFolder, caplog: pytest.LogCaptureFixture) -> None:
    rules = "RULE:^CN=(d.*)$/$1/U"
    async with tls_node(files, {"ssl_client_auth": "required", "ssl_principal_mapping_rules": rules}) as harness:
        assert await principal_of(harness, files.client_context("duke")) == "User:DUKE"
        client = await harness.connect(files.client_context("eve"))
        with pytest.raises(Hangup):
            await client.ask("api_versions", 0)
    assert "no rule of ssl_principal_mapping_rules matches the name 'CN=eve'" in caplog.text


@pytest.mark.parametrize(
    ("certificate", "reason"),
    [
        ("none", "the client has shown no certificate, but ssl_client_auth is required"),
        ("stranger", "the client's certificate is refused: unable to get local issuer certificate"),
    ],
)
@async_test
async def test_client_without_a_valid_certificate_is_refused(
    files: TlsFolder, caplog: pytest.LogCaptureFixture, certificate: str, reason: str
) -> None:
    """With TLS 1.3 it learns so at its first read."""
    context = files.client_context()
    if certificate == "stranger":
        context.load_cert_chain(Authority("Other").issue("duke").write(files.folder / "stranger.pem"))
    async with tls_node(files, {"ssl_client_auth": "required"}) as harness:
        client = await harness.connect(context)
        with pytest.raises((Hangup, ssl.SSLError)):
            await client.ask("api_versions", 0)
        await until(lambda: not len(harness.node.connections), "the connection has ended")
        assert harness.node.services.sasl.logins.counts == {("SSL", "certificate"): 1}
    assert reason in caplog.text


@async_test
async def test_certificate_is_required_besides_sasl_and_the_user_is_that_of_sasl(files: TlsFolder) -> None:
    settings = {**files.settings(ssl_client_auth="required"), "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256"}
    listener = files.listener()._replace(protocol="SASL_SSL", settings=settings)
    async with running_node(files.folder / "data", {"listeners": (listener,)}, audit="file") as harness:
        await add_user(harness.node.services.security)
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            client = await harness.connect(files.client_context("duke"))
            assert (await log_in(client, mechanism=mechanism))["error_code"] == "NONE"
            await client.ask("api_versions", 0)
            [connection] = harness.node.connections
            assert str(connection.principal) == "User:alice"
            await client.close()
            await until(lambda: not len(harness.node.connections), "the connection has ended")
        stranger = await harness.connect(files.client_context())
        with pytest.raises((Hangup, ssl.SSLError)):
            await log_in(stranger)
        await until(lambda: not len(harness.node.connections), "the connection has ended")
        failed = ("SSL", "certificate")
        assert harness.node.services.sasl.logins.counts[failed] == 1
    seen = [(line["kind"], line.get("principal", ""), line["mechanism"]) for line in audit_lines(files.folder / "data")]
    assert seen == [
        ("authenticated", "User:alice", "PLAIN"),
        ("authenticated", "User:alice", "SCRAM-SHA-256"),
        ("refused", "", "SSL"),
    ]


# Other bytes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (
            PLAIN_REQUEST,
            "no TLS handshake, but this listener has TLS: configure the client with security.protocol=SSL or SASL_SSL",
        ),
        (b"GET / HTTP/1.1\r\n\r\n", "an HTTP request, but this listener speaks Kafka's protocol over TLS"),
        (b"\x16\x03\x01\x00\x05hello", "the TLS handshake has failed: "),
    ],
)
@async_test
async def test_bytes_that_are_not_tls_close_the_connection(
    files: TlsFolder, caplog: pytest.LogCaptureFixture, data: bytes, reason: str
) -> None:
    async with tls_node(files) as harness:
        client = await harness.connect()
        client.write(data)
        await client.read_to_end()
        await until(lambda: not len(harness.node.connections), "the connection has ended")
        assert harness.node.services.sasl.logins.counts == {("SSL", "handshake"): 1}
    assert reason in caplog.text


@async_test
async def test_garbage_after_the_handshake_closes_the_connection(files: TlsFolder) -> None:
    async with tls_node(files) as harness:
        client = await RawTlsClient.connect(harness.port, files.client_context())
        await client.shake_hands()
        await until(lambda: len(harness.node.connections) == 1, "it is accepted")
        client.writer.write(b"\x17\x03\x03\x00\x20" + bytes(32))
        await until(lambda: not len(harness.node.connections), "the connection has ended")
        await client.close()


@async_test
async def test_close_notify_closes_the_connection(files: TlsFolder) -> None:
    async with tls_node(files) as harness:
        client = await harness.connect(files.client_context())
        await client.ask("api_versions", 0)
        await client.close()
        await until(lambda: not len(harness.node.connections), "the connection has ended")


# Limits ---------------------------------------------------------------------------------------------------------------


@async_test
async def test_client_that_sends_nothing_is_disconnected(files: TlsFolder) -> None:
    async with tls_node(files, handshake_timeout_ms=3000) as harness:
        served = await harness.connect(files.client_context())
        silent = await harness.connect()
        assert await silent.responses_until_disconnect() == []
        assert harness.node.services.over_limit.counts["handshake_timeout_ms"] == 1
        await served.ask("api_versions", 0)  # the time is that of the handshake


@async_test
async def test_client_that_is_silent_for_longest_makes_room(files: TlsFolder) -> None:
    async with tls_node(files, handshakes_max_open=2) as harness:
        first, second = await harness.connect(), await harness.connect()
        await until(lambda: len(harness.node.connections) == 2, "both are accepted")
        third = await harness.connect(files.client_context())
        assert await first.responses_until_disconnect() == []
        await third.ask("api_versions", 0)
        assert len(harness.node.connections) == 2, "the second one is still there"
        assert harness.node.services.over_limit.counts["handshakes_max_open"] == 1
        await second.close()


@async_test
async def test_connections_in_their_handshake_count_and_end_with_the_server(files: TlsFolder) -> None:
    async with tls_node(files) as harness:
        client = await harness.connect()
        await until(lambda: len(harness.node.connections) == 1, "it is accepted")
        await harness.node.stop()
        assert await client.responses_until_disconnect() == []


# Reloading ------------------------------------------------------------------------------------------------------------


def peer_serial(client: Client) -> int:
    certificate: Any = client.tls.getpeercert()
    return int(certificate["serialNumber"], 16)


@async_test
async def test_changed_certificate_is_noticed_and_open_connections_live_on(files: TlsFolder) -> None:
    async with tls_node(files) as harness:
        old = await harness.connect(files.client_context())
        assert peer_serial(old) == files.server.certificate.serial_number
        renewed = files.authority.issue(SERVER_NAME)
        renewed.write(files.keystore)
        async with asyncio.timeout(DEADLINE_S):
            serial = renewed.certificate.serial_number
            while peer_serial(new := await harness.connect(files.client_context())) != serial:
                await new.close()
                await asyncio.sleep(0.05)
        for client in (old, new):
            await client.ask("api_versions", 0)


@async_test
async def test_no_request_fails_while_certificates_change(files: TlsFolder) -> None:
    """Clients connect, ask and disconnect all the time."""
    serials: set[int] = set()
    is_over = False
    context = files.client_context()

    async def work(harness: NodeHarness) -> int:
        asked = 0
        while not is_over:
            client = await harness.connect(context)
            serials.add(peer_serial(client))
            for _ in range(3):
                await client.ask("api_versions", 0)
                asked += 1
            await client.close()
        return asked

    async with tls_node(files) as harness:
        workers = [asyncio.create_task(work(harness)) for _ in range(4)]
        for _ in range(5):
            known = len(serials)
            files.authority.issue(SERVER_NAME).write(files.keystore)
            harness.node.listeners.reload_certificates()
            await until(lambda: len(serials) > known, "the new certificate is used")  # noqa: B023  (awaited here)
        is_over = True
        assert min(await asyncio.gather(*workers)) > 0
    assert len(serials) >= 5


@async_test
async def test_expiry_of_the_certificate_is_a_metric(files: TlsFolder) -> None:
    async with tls_node(files) as harness:
        page = (await metrics(lambda: harness.node)).decode()
    [line] = [line for line in page.splitlines() if line.startswith("callboard_certificate_expires_seconds{")]
    assert line.startswith('callboard_certificate_expires_seconds{listener="SSL"} ')
    assert 29 * 86_400 < float(line.split()[-1]) < 30 * 86_400


@async_test
async def test_socket_of_a_client_in_its_handshake_is_closed_in_forked_processes(files: TlsFolder) -> None:
    async with tls_node(files) as harness:
        await harness.connect()
        await until(lambda: len(harness.node.connections) == 1, "it is accepted")
        [descriptor] = harness.node.connections.filenos()
        with socket.socket(fileno=socket.dup(descriptor)) as copy:
            assert copy.getsockname()[1] == harness.port


# Audit trail ----------------------------------------------------------------------------------------------------------


@async_test
async def test_audit_trail_has_who_was_let_in_and_who_was_refused(files: TlsFolder) -> None:
    async with tls_node(files, {"ssl_client_auth": "required"}, audit="file") as harness:
        await principal_of(harness, files.client_context("duke"))
        client = await harness.connect(files.client_context())
        with pytest.raises((Hangup, ssl.SSLError)):
            await client.ask("api_versions", 0)
    lines = audit_lines(files.folder / "data")
    [admitted] = [line for line in lines if line["kind"] == "authenticated"]
    assert (admitted["principal"], admitted["mechanism"], admitted["listener"]) == ("User:CN=duke", "SSL", "SSL")
    certificate = x509.load_pem_x509_certificate(
        files.client("duke").read_bytes().partition(b"-----END PRIVATE KEY-----")[2]
    )
    assert int(admitted["certificate_serial"], 16) == certificate.serial_number
    [refused] = [line for line in lines if line["kind"] == "refused"]
    assert "has shown no certificate" in refused["reason"]
