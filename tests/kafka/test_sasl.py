"""Clients that authenticate by SASL: nothing is served before, everything after, and again when their session ends."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
from audit_helpers import audit_lines
from harness import (
    Client,
    MemoryClient,
    async_test,
    commit_values,
    frame,
    framed,
    heartbeat_values,
    join_and_sync,
    offsets,
    running_node,
)
from peers.wire import Hangup
from sasl_helpers import PASSWORD, SASL_SETTINGS, USER, add_user, log_in, plain_frame, running_sasl_node

from callboard.runtime.disk.group_commit import outcome_of
from callboard.runtime.kafka.authentication.authenticator import REAUTHENTICATION_INTERVAL_MS
from callboard.runtime.kafka.authentication.sasl_listener import SaslListener
from callboard.runtime.kafka.connections.holds import Hold
from callboard.runtime.security.document import USERS
from callboard.runtime.settings.address import Address
from callboard.runtime.settings.listeners import Listener

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
NO_MEMBER = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}
SESSION = {"connections_max_reauth_ms": "60000"}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@async_test
async def test_client_is_served_in_its_own_name_when_it_has_authenticated(mechanism: str, tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path) as harness:
        client = await harness.connect()
        answer = await log_in(client, mechanism=mechanism)
        assert (answer["error_code"], answer["session_lifetime"]) == ("NONE", 0)
        await client.ask("offset_commit", 9, **commit_values("g"))
        assert await offsets(client, "g") == {("t", 0): 42}
        [connection] = harness.node.connections
        assert str(connection.principal) == "User:alice"
        assert connection.authenticator is None, "nothing of the authentication is left"
        assert connection._routes is harness.node.services.routes.loaded


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [(USER, "wrong"), ("nobody", PASSWORD)])
@async_test
async def test_wrong_password_and_unknown_user_get_the_same_answer(
    mechanism: str, user: str, password: str, tmp_path: Path
) -> None:
    async with running_sasl_node(tmp_path) as harness:
        client = await harness.connect()
        answer = await log_in(client, user, password, mechanism)
        text = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
        expected = "Authentication failed: Invalid username or password" if mechanism == "PLAIN" else text
        assert (answer["error_code"], answer["error_message"]) == ("SASL_AUTHENTICATION_FAILED", expected)
        with pytest.raises(Hangup):
            await client.receive_frame()


@async_test
async def test_requests_in_one_packet_with_the_authentication_are_served(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path) as harness:
        client = await harness.connect()
        client.write(plain_frame() + frame("find_coordinator", 0, key="g") + frame("heartbeat", 0, 7, **NO_MEMBER))
        assert (await client.receive("sasl_handshake", 1))["error_code"] == "NONE"
        assert (await client.receive("sasl_authenticate", 2))["error_code"] == "NONE"
        assert (await client.receive("find_coordinator", 0))["error_code"] == "NONE"
        assert (await client.receive("heartbeat", 0))["error_code"] == "UNKNOWN_MEMBER_ID"


@async_test
async def test_authentication_byte_by_byte(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path) as harness:
        client = await harness.connect()
        for byte in plain_frame() + frame("find_coordinator", 0, key="g"):
            client.write(bytes([byte]))
            await asyncio.sleep(0)
        assert (await client.receive("sasl_handshake", 1))["error_code"] == "NONE"
        assert (await client.receive("sasl_authenticate", 2))["error_code"] == "NONE"
        assert (await client.receive("find_coordinator", 0))["error_code"] == "NONE"


@async_test
async def test_failure_is_answered_after_the_delay_and_nothing_is_read_meanwhile(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path, {"connection_failed_authentication_delay_ms": "100000"}) as harness:
        client = await harness.connect()
        client.write(plain_frame(password="wrong"))
        assert (await client.receive("sasl_handshake", 1))["error_code"] == "NONE"
        [connection] = harness.node.connections
        while not connection.holds.reasons:
            await asyncio.sleep(0)
        client.write(plain_frame())
        await asyncio.sleep(0.02)
        assert connection.is_open and connection.is_authenticating
        assert connection.holds.reasons == {Hold.AUTHENTICATING}


@async_test
async def test_client_that_does_not_authenticate_in_time_is_disconnected(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path, {"authentication_timeout_ms": "300"}) as harness:
        silent, slow = await harness.connect(), await harness.connect()
        slow.write(frame("sasl_handshake", 1, mechanism="PLAIN"))
        for client in (silent, slow):
            await client.responses_until_disconnect()


@async_test
async def test_nothing_of_a_client_that_is_gone_waits_for_the_garbage_collector(tmp_path: Path) -> None:
    """It runs rarely in a server, and clients that nobody knows could fill the memory meanwhile."""
    async with running_sasl_node(tmp_path, SESSION) as harness:
        client = MemoryClient(harness.node)
        client.feed(frame("api_versions", 0) + (100_000).to_bytes(4, "big") + bytes(50_000))
        while client.is_paused:
            await asyncio.sleep(0)
        connection, authenticator = ref(client.connection), ref(client.connection.authenticator)
        gc.disable()
        try:
            client.close()
            del client
            assert (connection(), authenticator()) == (None, None)
        finally:
            gc.enable()


@async_test
async def test_password_of_a_client_that_was_disconnected_is_not_checked(tmp_path: Path) -> None:
    """Else the thread would still be busy with the passwords of a flood when nobody waits for them any more."""
    jobs: list[Callable[[], Any]] = []
    async with running_sasl_node(tmp_path) as harness:
        client = MemoryClient(harness.node)
        authenticator = client.connection.authenticator
        assert authenticator is not None
        worker: Any = SimpleNamespace(submit=lambda work, done: jobs.append(work))
        authenticator._listener = authenticator._listener._replace(worker=worker)
        client.feed(plain_frame(password="wrong"))
        while not jobs:
            await asyncio.sleep(0)
        [check] = jobs
        assert check() is False
        client.close()
        assert check() is None


@async_test
async def test_frame_above_the_limit_is_not_read(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path, {"sasl_server_max_receive_size": "100"}) as harness:
        client = await harness.connect()
        client.write((101).to_bytes(4, "big"))
        with pytest.raises(Hangup):
            await client.receive_frame()
        client = await harness.connect()
        client.write((100).to_bytes(4, "big") + bytes(99))
        await asyncio.sleep(0.01)
        assert len(harness.node.connections) == 1


@async_test
async def test_many_pipelined_requests_are_handled_in_turns(tmp_path: Path) -> None:
    """A client that is not authenticated delays others by one request at a time."""
    async with running_sasl_node(tmp_path) as harness:
        client = await harness.connect()
        client.write(unknown_versions() * 200 + plain_frame())
        answers = [await client.receive("api_versions", 0) for _ in range(200)]
        assert {answer["error_code"] for answer in answers} == {"UNSUPPORTED_VERSION"}
        assert (await client.receive("sasl_handshake", 1))["error_code"] == "NONE"
        assert (await client.receive("sasl_authenticate", 2))["error_code"] == "NONE"


@async_test
async def test_one_request_is_handled_in_a_turn_before_authentication(tmp_path: Path) -> None:
    """A thousand clients could send some at once, and all others would wait for all of them."""
    async with running_sasl_node(tmp_path) as harness:
        client = MemoryClient(harness.node)
        client.feed(unknown_versions() * 15)
        assert len(client.answers()) == 1 and client.is_paused
        assert len(await client.answered(15)) == 15
        while client.is_paused:
            await asyncio.sleep(0)
        client.close()


def unknown_versions() -> bytes:
    """A request that may be repeated before authentication."""
    known = frame("api_versions", 3, client_software_name="x", client_software_version="1")
    return known[:6] + (99).to_bytes(2, "big") + known[8:]


@async_test
async def test_failure_is_logged_without_the_password(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with running_sasl_node(tmp_path) as harness:
        for mechanism in MECHANISMS:
            client = await harness.connect()
            await log_in(client, password="hunter2", mechanism=mechanism)
        client = await harness.connect()
        client.write(frame("sasl_handshake", 1, mechanism="PLAIN") + frame("metadata", 1, topics=[{"name": "hunter2"}]))
        await client.responses_until_disconnect()
    assert "authentication failed: wrong password, or no such user" in caplog.text
    assert "hunter2" not in caplog.text and PASSWORD not in caplog.text


@async_test
async def test_little_of_an_unknown_mechanism_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with running_sasl_node(tmp_path) as harness:
        client = await harness.connect()
        answer = await client.ask("sasl_handshake", 1, mechanism="GSSAPI" + "x" * 30_000)
        assert answer["error_code"] == "UNSUPPORTED_SASL_MECHANISM"
    [line] = [record.getMessage() for record in caplog.records if "GSSAPI" in record.getMessage()]
    assert len(line) < 300


@async_test
async def test_client_id_is_that_of_the_last_request(tmp_path: Path) -> None:
    """Also if it is empty, and the one before the authentication was not."""
    async with running_sasl_node(tmp_path) as harness:
        client = await harness.connect()
        await log_in(client)
        [connection] = harness.node.connections
        assert connection.client_id
        client.write(framed(bytes.fromhex("000a0000 00000007 ffff 0001") + b"g"))
        await client.receive_frame()
        assert connection.client_id == ""


# Again (KIP-368) -----------------------------------------------------------------------------------------------------


@async_test
async def test_member_that_authenticates_again_stays_in_its_group(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path, SESSION) as harness:
        client = await harness.connect()
        assert (await log_in(client))["session_lifetime"] == 60_000
        [connection] = harness.node.connections
        assert connection.authenticator is not None and connection.authenticator.time_limit._timer is not None
        assert connection.authenticator.time_limit._timer.cancelled(), "it has authenticated in time"
        member = await join_and_sync(client, "g")
        assert (await log_in(client))["session_lifetime"] == 60_000
        heartbeat = await client.ask("heartbeat", 4, **heartbeat_values("g", member))
        assert heartbeat["error_code"] == "NONE"


@async_test
async def test_client_whose_session_has_ended_is_disconnected_unless_it_authenticates_again(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path, SESSION) as harness:
        late, again = await harness.connect(), await harness.connect()
        for client in (late, again):
            await log_in(client)
            await client.ask("find_coordinator", 0, key="g")
        for connection in harness.node.connections:
            assert connection.authenticator is not None
            connection.authenticator._ends_ms = 0
        assert (await log_in(again))["error_code"] == "NONE"
        assert (await again.ask("find_coordinator", 0, key="g"))["error_code"] == "NONE"
        late.write(frame("find_coordinator", 0, key="g"))
        with pytest.raises(Hangup):
            await late.receive_frame()


@async_test
async def test_client_may_not_become_another_user(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path, SESSION) as harness:
        await add_user(harness.node.services.security, "bob")
        client = await harness.connect()
        await log_in(client)
        answer = await log_in(client, "bob")
        text = "Cannot change principals during re-authentication from User.alice: User.bob"
        assert (answer["error_code"], answer["error_message"]) == ("SASL_AUTHENTICATION_FAILED", text)
        with pytest.raises(Hangup):
            await client.receive_frame()


@async_test
async def test_wrong_password_ends_the_session(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path, SESSION) as harness:
        client = await harness.connect()
        await log_in(client, mechanism="SCRAM-SHA-256")
        answer = await log_in(client, password="wrong", mechanism="SCRAM-SHA-256")
        text = "Authentication failed during re-authentication due to invalid credentials with SASL mechanism"
        assert answer["error_message"] == f"{text} SCRAM-SHA-256"
        with pytest.raises(Hangup):
            await client.receive_frame()


@async_test
async def test_client_may_not_begin_again_at_once_or_with_another_mechanism(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path, SESSION) as harness:
        client = await harness.connect()
        await log_in(client)
        await log_in(client)
        refused = await client.ask("sasl_handshake", 1, mechanism="PLAIN")
        assert (refused["error_code"], refused["mechanisms"]) == ("ILLEGAL_SASL_STATE", [])
        assert (await client.ask("find_coordinator", 0, key="g"))["error_code"] == "NONE"
        [connection] = harness.node.connections
        assert connection.authenticator is not None
        connection.authenticator._began_again_ms = -REAUTHENTICATION_INTERVAL_MS
        assert (await client.ask("sasl_handshake", 1, mechanism="SCRAM-SHA-256"))["error_code"] == "NONE"
        client.write(frame("sasl_authenticate", 2, auth_bytes=b"n,,n=alice,r=abc"))
        with pytest.raises(Hangup):
            await client.receive_frame()


@async_test
async def test_another_request_instead_of_a_token_is_refused_again(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path, SESSION) as harness:
        client = await harness.connect()
        await log_in(client)
        assert (await client.ask("sasl_handshake", 1, mechanism="PLAIN"))["error_code"] == "NONE"
        assert (await client.ask("heartbeat", 4, **NO_MEMBER))["error_code"] == "ILLEGAL_SASL_STATE"
        with pytest.raises(Hangup):
            await client.receive_frame()


@async_test
async def test_request_that_waited_until_the_session_ended_is_not_handled(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path, SESSION) as harness:
        client = await harness.connect()
        await log_in(client)
        [connection] = harness.node.connections
        connection.requests.mute()
        client.write(frame("find_coordinator", 0, key="g"))
        while not connection.requests.queue:
            await asyncio.sleep(0)
        assert connection.authenticator is not None
        connection.authenticator._ends_ms = 0
        connection.requests.unmute()
        connection.on_response_ready()
        with pytest.raises(Hangup):
            await client.receive_frame()


@async_test
async def test_requests_in_one_packet_with_another_authentication_are_served(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path, SESSION) as harness:
        client = await harness.connect()
        await log_in(client)
        client.write(plain_frame() + frame("find_coordinator", 0, key="g"))
        assert (await client.receive("sasl_handshake", 1))["error_code"] == "NONE"
        assert (await client.receive("sasl_authenticate", 2))["error_code"] == "NONE"
        assert (await client.receive("find_coordinator", 0))["error_code"] == "NONE"


def test_token_that_ends_in_the_far_future_has_a_lifetime_that_fits_into_the_answer() -> None:
    nothing: Any = None
    listener = SaslListener({}, nothing, nothing, 0, 0, 0, 0, lambda: 0, lambda: 1000)
    assert listener.lifetime_ms(9_000) == 8_000
    lifetime_ms = listener.lifetime_ms(2**63 * 1000)
    assert lifetime_ms is not None
    assert timedelta(milliseconds=lifetime_ms).days > 365


@pytest.mark.parametrize(
    ("now_ms", "session_ms", "lifetime_ms"),
    [(3999, 0, 1), (4000, 0, 500), (4400, 0, 100), (4500, 0, 1), (9000, 0, 1), (4000, 200, 200)],
)
def test_session_of_an_expired_token_ends_when_the_token_is_no_longer_accepted(
    now_ms: int, session_ms: int, lifetime_ms: int
) -> None:
    nothing: Any = None
    listener = SaslListener({}, nothing, nothing, 0, 0, 0, session_ms, lambda: 0, lambda: now_ms)
    assert listener.lifetime_ms(4000, grace_ms=500) == lifetime_ms


# Users ---------------------------------------------------------------------------------------------------------------


@async_test
async def test_removed_user_cannot_authenticate_any_more(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path) as harness:
        open_client = await harness.connect()
        await log_in(open_client)
        store = harness.node.services.security
        assert await outcome_of(partial(store.change, USERS, lambda users: {})) is None
        for mechanism in MECHANISMS:
            client = await harness.connect()
            assert (await log_in(client, mechanism=mechanism))["error_code"] == "SASL_AUTHENTICATION_FAILED"
        assert (await open_client.ask("find_coordinator", 0, key="g"))["error_code"] == "NONE"


@async_test
async def test_users_survive_a_restart(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path) as harness:
        await harness.restart()
        client: Client = await harness.connect()
        assert (await log_in(client, mechanism="SCRAM-SHA-512"))["error_code"] == "NONE"


@async_test
async def test_nobody_is_authenticated_before_the_users_of_the_cluster_are_known(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path) as harness:
        harness.node.services.security.is_known = False
        client = await harness.connect()
        client.write(plain_frame())
        with pytest.raises(Hangup):
            await client.receive_frame()


# Audit ---------------------------------------------------------------------------------------------------------------


@async_test
async def test_audit_trail_says_who_came_who_failed_and_which_users_changed(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path, audit="file") as harness:
        client = await harness.connect()
        await log_in(client, password="hunter2", mechanism="SCRAM-SHA-256")
        client = await harness.connect()
        await log_in(client, mechanism="SCRAM-SHA-512")
        upsertion = {"name": "bob", "mechanism": 1, "iterations": 4096, "salt": b"0123456789", "salted_password": b"x"}
        for values in ({"upsertions": [upsertion]}, {"deletions": [{"name": "bob", "mechanism": 1}]}):
            await client.ask("alter_user_scram_credentials", 0, **{"deletions": [], "upsertions": [], **values})
    lines = audit_lines(tmp_path)
    by_kind = {
        kind: [line for line in lines if line["kind"] == kind] for kind in ("refused", "authenticated", "changed")
    }
    assert [(line["mechanism"], line["reason"]) for line in by_kind["refused"]] == [
        ("SCRAM-SHA-256", "wrong password, or no such user")
    ]
    assert [(line["principal"], line["mechanism"]) for line in by_kind["authenticated"]] == [
        ("User:alice", "SCRAM-SHA-512")
    ]
    assert [
        (line["operation"], line["resource"], line.get("before"), line.get("after")) for line in by_kind["changed"]
    ] == [
        ("alter", "User:bob", None, {"SCRAM-SHA-256": 4096}),
        ("delete", "User:bob", {"SCRAM-SHA-256": 4096}, None),
    ]
    assert {line["principal"] for line in by_kind["changed"]} == {"User:alice"}
    assert "hunter2" not in str(lines)


@async_test
async def test_long_name_of_a_mechanism_is_cut_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with running_sasl_node(tmp_path) as harness:
        client = await harness.connect()
        answer = await client.ask("sasl_handshake", 1, mechanism="M" * 30_000)
        assert answer["error_code"] == "UNSUPPORTED_SASL_MECHANISM"
    texts = [record.getMessage() for record in caplog.records]
    [text] = [text for text in texts if "authentication failed" in text]
    assert len(text) < 300


@pytest.mark.parametrize(
    ("host", "mechanisms", "warning"),
    [
        ("0.0.0.0", "PLAIN,SCRAM-SHA-512", "reads passwords and tokens (PLAIN), and all requests"),
        ("0.0.0.0", "SCRAM-SHA-512", "whoever can read the network reads all requests"),
        ("localhost", "PLAIN", ""),
    ],
)
@async_test
async def test_listener_without_tls_is_named_at_the_start_if_others_can_reach_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, host: str, mechanisms: str, warning: str
) -> None:
    settings = {**SASL_SETTINGS, "sasl_enabled_mechanisms": mechanisms}
    listener = Listener(
        protocol="SASL_PLAINTEXT", listen=Address(host, 9092), advertised=Address("localhost", 9092), settings=settings
    )
    async with running_node(tmp_path, {"listeners": (listener,)}):
        assert ("a listener that other machines can reach has no TLS" in caplog.text) is bool(warning)
        assert warning in caplog.text
