"""Callboard's own clients authenticate by SASL, and notice a server that does not know the password."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from harness import NodeHarness, async_test
from sasl_helpers import PASSWORD, USER, add_user, running_sasl_node, with_password

import callboard
from callboard.runtime.cli import topics, users
from callboard.runtime.client import login_session
from callboard.runtime.client.blocking import BlockingConnection
from callboard.runtime.client.connection import Connection, LoginRefused, connect_to
from callboard.runtime.client.errors import ClientError
from callboard.runtime.client.login import LoginFailed, Request, log_in
from callboard.runtime.client.login_session import LoginSession, Password
from callboard.runtime.client.security import ClientSecurity, load_security
from callboard.runtime.client.versions import APIS, VersionRange
from callboard.runtime.common.errors import StartError
from callboard.runtime.kafka.authentication import authenticator
from callboard.runtime.security.credentials import SCRAM_BY_NAME, find_credential
from callboard.runtime.security.exchange import Accepted, Challenge
from callboard.runtime.security.scram import ScramExchange
from callboard.runtime.settings.address import Address
from callboard.runtime.settings.client_settings import Login

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


VALUES = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": USER, "sasl.password": PASSWORD}


def security(mechanism: str = "SCRAM-SHA-512", user: str = USER, password: str = PASSWORD) -> ClientSecurity:
    given = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    return load_security({**VALUES, **given}, {})


def address_of(harness: NodeHarness) -> Address:
    return Address("127.0.0.1", harness.port)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@async_test
async def test_both_kinds_of_connections_authenticate(mechanism: str, tmp_path: Path) -> None:
    def ask() -> Any:
        with BlockingConnection(address_of(harness), 10, security(mechanism)) as connection:
            return connection.ask("find_coordinator", key="g", key_type=0)

    async with running_sasl_node(tmp_path) as harness:
        connection = await connect_to(address_of(harness), "c", security(mechanism))
        assert (await connection.ask("find_coordinator", {"key": "g", "key_type": 0})).port == harness.port
        connection.close()
        assert (await asyncio.to_thread(ask)).port == harness.port


@async_test
async def test_name_with_a_comma_and_a_password_beyond_ascii(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path) as harness:
        await add_user(harness.node.services.security, "a,b=c", "pässwörd, = \\")
        connection = await connect_to(address_of(harness), "c", security(user="a,b=c", password="pässwörd, = \\"))
        [own] = harness.node.connections
        assert str(own.principal) == "User:a,b=c"
        connection.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@async_test
async def test_wrong_password_is_named(mechanism: str, tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path) as harness:
        wrong = security(mechanism, password="hunter2")
        with pytest.raises(LoginRefused, match=r"does not let user 'alice' in: Authentication failed") as refused:
            await connect_to(address_of(harness), "c", wrong)
        with pytest.raises(ClientError, match=r"does not let user 'alice' in: Authentication failed") as blocked:
            await asyncio.to_thread(BlockingConnection, address_of(harness), 10, wrong)
    assert "hunter2" not in f"{refused.value} {blocked.value}"


@async_test
async def test_mechanism_that_is_not_enabled_is_named_with_those_that_are(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path, {"sasl_enabled_mechanisms": "SCRAM-SHA-256"}) as harness:
        with pytest.raises(LoginRefused, match=r"it does not accept PLAIN: expected one of SCRAM-SHA-256$"):
            await connect_to(address_of(harness), "c", security("PLAIN"))


@async_test
async def test_commands_take_the_settings_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="secret";'
    file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={jaas}\n")
    monkeypatch.setenv("CALLBOARD_COMMAND_CONFIG", str(file))
    async with running_sasl_node(tmp_path / "data") as harness:
        where = ["--bootstrap-server", f"127.0.0.1:{harness.port}"]
        for main in (users.main, topics.main):
            with pytest.raises(SystemExit) as end:
                await asyncio.to_thread(main, ["list", *where])
            assert not end.value.code
    assert "alice  SCRAM-SHA-512  4096" in " ".join(capsys.readouterr().out.split()).replace(" ", "  ")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"security.protocol": "SASL_PLAINTEXT"},
            "needs a user and a password: expected sasl.username in",
        ),
        ({"security.protocol": "SASL_SSL", "sasl.username": "a"}, "expected sasl.password in the settings, or the env"),
        ({"sasl.username": "a"}, "sasl_username is given, but security_protocol is PLAINTEXT: expected one of SASL_"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}, "expected one of plain, scram-sha-256"),
    ],
)
def test_incomplete_settings_are_refused(settings: dict[str, str], text: str) -> None:
    with pytest.raises(StartError, match=text):
        load_security(settings, {})


def test_password_of_the_environment_and_of_java() -> None:
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "alice"}
    login = load_security(settings, {"CALLBOARD_SASL_PASSWORD": "hunter2"}).settings.credentials
    assert login == Login("SCRAM-SHA-512", "alice", "hunter2")
    assert "hunter2" not in repr(login) + repr(load_security(settings, {"CALLBOARD_SASL_PASSWORD": "hunter2"}).settings)
    jaas = r'x.PlainLoginModule required username="al\"ice" password="a\\b = ;";'
    settings = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    assert load_security(settings, {}).settings.credentials == Login("PLAIN", 'al"ice', "a\\b = ;")


# Again (KIP-368) -----------------------------------------------------------------------------------------------------

SESSION = {"connections_max_reauth_ms": "60000"}
ASKED = {"key": "g", "key_type": 0}


def end_sessions(harness: NodeHarness, *clients: Connection | BlockingConnection) -> None:
    """The sessions end on both sides."""
    for client in clients:
        assert client._session is not None
        assert not client._session.is_due
        client._session._due_s = 0.0
    for own in harness.node.connections:
        assert own.authenticator is not None
        own.authenticator._ends_ms = 0


def logins(harness: NodeHarness) -> list[bool]:
    """Of each connection: whether it has authenticated again, and may serve requests."""
    sessions = [own.authenticator for own in harness.node.connections]
    return [own is not None and own._began_again_ms is not None and own._ends_ms != 0 for own in sessions]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@async_test
async def test_connection_authenticates_again_once_for_all_its_requests(mechanism: str, tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path, SESSION) as harness:
        connection = await connect_to(address_of(harness), "c", security(mechanism))
        end_sessions(harness, connection)
        answers = await asyncio.gather(*(connection.ask("find_coordinator", ASKED) for _ in range(3)))
        assert [answer.port for answer in answers] == [harness.port] * 3
        assert logins(harness) == [True]
        connection.close()


@async_test
async def test_request_that_is_cancelled_does_not_end_the_authentication_of_others(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path, SESSION) as harness:
        connection = await connect_to(address_of(harness), "c", security())
        end_sessions(harness, connection)
        cancelled = asyncio.create_task(connection.ask("find_coordinator", ASKED))
        other = asyncio.create_task(connection.ask("find_coordinator", ASKED))
        await asyncio.sleep(0)
        cancelled.cancel()
        assert (await other).port == harness.port
        assert cancelled.cancelled()
        connection.close()


@async_test
async def test_request_that_has_waited_for_a_login_does_not_come_in_the_midst_of_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"EARLIEST": 0.0, "LATEST": 0.0, "INTERVAL_S": 0.0}.items():
        monkeypatch.setattr(login_session, name, value)
    monkeypatch.setattr(authenticator, "REAUTHENTICATION_INTERVAL_MS", 0)

    async def ask_after(turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        response = await connection.ask("find_coordinator", ASKED)
        return int(response.port)

    async with running_sasl_node(tmp_path, SESSION) as harness:
        connection = await connect_to(address_of(harness), "c", security())
        ports = await asyncio.gather(*(ask_after(turns) for turns in range(400)))
        assert set(ports) == {harness.port}
        assert set(logins(harness)) == {True}
        connection.close()


@async_test
async def test_connection_whose_password_has_changed_meanwhile_is_lost(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path, SESSION) as harness:
        connection = await connect_to(address_of(harness), "c", security())
        await add_user(harness.node.services.security, USER, "changed")
        end_sessions(harness, connection)
        with pytest.raises(LoginRefused, match=r"does not let user 'alice' in: Authentication failed during re-auth"):
            await connection.ask("find_coordinator", ASKED)
        assert connection.is_lost


@async_test
async def test_connection_of_a_command_authenticates_again(tmp_path: Path) -> None:
    def ask() -> None:
        with BlockingConnection(address_of(harness), 10, security()) as connection:
            end_sessions(harness, connection)
            assert connection.ask("find_coordinator", **ASKED).port == harness.port
            assert logins(harness) == [True]

    async with running_sasl_node(tmp_path, SESSION) as harness:
        await asyncio.to_thread(ask)


def play_session(lifetime_ms: int) -> LoginSession:
    """A session of a PLAIN user that begins at 100 s, after its exchange."""
    session = LoginSession(Password(Login("PLAIN", USER, PASSWORD)), lambda: 100.0, Random(1))
    assert session.is_due
    steps = session.log_in(session.credentials.login())
    next(steps)
    steps.send(SimpleNamespace(error_code=0, mechanisms=("PLAIN",)))
    lifetime = timedelta(milliseconds=lifetime_ms)
    with pytest.raises(StopIteration):
        steps.send(SimpleNamespace(error_code=0, auth_bytes=b"", session_lifetime=lifetime))
    assert not session.is_due
    return session


def test_session_is_renewed_before_it_ends() -> None:
    """After 85 to 95 % of it, and not within the second in which a server refuses that."""
    assert 108.5 <= play_session(10_000)._due_s <= 109.5
    assert play_session(100)._due_s == 101.0
    assert play_session(0)._due_s == float("inf")


@pytest.mark.parametrize("version", [0, 1, 2])
@async_test
async def test_server_of_an_older_version_tells_no_lifetime(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(APIS, "sasl_authenticate", VersionRange(36, version, version))
    async with running_sasl_node(tmp_path, SESSION) as harness:
        connection = await connect_to(address_of(harness), "c", security())
        assert connection._session is not None
        assert (connection._session._due_s == float("inf")) == (version == 0)
        connection.close()


@async_test
async def test_member_authenticates_again_before_each_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"EARLIEST": 0.0, "LATEST": 0.0, "INTERVAL_S": 0.0}.items():
        monkeypatch.setattr(login_session, name, value)
    monkeypatch.setattr(authenticator, "REAUTHENTICATION_INTERVAL_MS", 0)
    async with (
        running_sasl_node(tmp_path, SESSION) as harness,
        callboard.connect(f"127.0.0.1:{harness.port}", VALUES) as coordinator,
        coordinator.member("g", resources={"t": 3}, heartbeat_interval_ms=20) as member,
    ):
        assignment = await member.next_assignment()
        await asyncio.gather(*(shard.commit(7) for shard in assignment.shards))
        assert set(logins(harness)) == {True}, "of joins, and of heartbeats and commits"


# A server that does not know the password ----------------------------------------------------------------------------


def play(change: Callable[[bytes], bytes]) -> None:
    """Log in at a server whose tokens are changed. Raises LoginFailed."""
    mechanism = SCRAM_BY_NAME["SCRAM-SHA-256"]
    known = find_credential(with_password({}), USER, mechanism)
    server = ScramExchange(mechanism, lambda name: known, b"secret of the server", "nonce")
    steps = log_in(Login(mechanism.name, USER, PASSWORD))

    def answer(request: Request) -> Any:
        name, values = request
        if name == "sasl_handshake":
            return SimpleNamespace(error_code=0, mechanisms=(mechanism.name,))
        step = server.evaluate(values["auth_bytes"])
        assert isinstance(step, Challenge | Accepted)
        return SimpleNamespace(error_code=0, error_message="", auth_bytes=change(step.token))

    try:
        request = next(steps)
        while True:
            request = steps.send(answer(request))
    except StopIteration:
        pass


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (b"v=", b"v=A", "does not prove that it knows the password"),
        (b"r=", b"r=x", "wrong nonce"),
        (b"i=4096", b"i=4095", "asks for 4095 iterations"),
        (b"i=4096", b"i=9999999", "asks for 9999999 iterations"),
        (b"i=4096", b"i=x", "asks for x iterations"),
        pytest.param(b"i=4096", b"i=" + b"9" * 5000, "asks for 99999999999999999999 iterations", id="digits"),
        (b"s=", b"s=!", "invalid salt"),
    ],
)
def test_client_notices_a_wrong_server(old: bytes, new: bytes, text: str) -> None:
    play(lambda token: token)
    with pytest.raises(LoginFailed, match=text):
        play(lambda token: token.replace(old, new, 1))
