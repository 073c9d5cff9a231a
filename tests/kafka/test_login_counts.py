"""The metric of logins: by mechanism and result, whatever names clients send."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import Client, async_test
from peers.wire import Hangup
from sasl_helpers import USER, add_user, log_in, running_sasl_node

from callboard.runtime.node.metrics import metrics

NAME = "callboard_authentications_total"


async def send(client: Client, token: bytes) -> None:
    await client.ask("sasl_handshake", 1, mechanism="PLAIN")
    await client.ask("sasl_authenticate", 2, auth_bytes=token)


@async_test
async def test_failures_are_counted_by_mechanism_and_reason(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path) as harness:
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-256"):
            await log_in(await harness.connect(), password="wrong", mechanism=mechanism)
            await log_in(await harness.connect(), mechanism=mechanism)
        await log_in(await harness.connect(), user="nobody")
        for mechanism in ("GSSAPI", "x" * 1000):
            await (await harness.connect()).ask("sasl_handshake", 1, mechanism=mechanism)
        await send(await harness.connect(), b"no token")
        await send(await harness.connect(), f"bob\0{USER}\0secret".encode())
        page = (await metrics(lambda: harness.node)).decode()
    assert [line.removeprefix(NAME) for line in page.splitlines() if line.startswith(NAME)] == [
        '{mechanism="PLAIN",result="accepted"} 1.0',
        '{mechanism="PLAIN",result="credentials"} 2.0',
        '{mechanism="PLAIN",result="message"} 1.0',
        '{mechanism="PLAIN",result="user"} 1.0',
        '{mechanism="SCRAM-SHA-256",result="accepted"} 2.0',
        '{mechanism="SCRAM-SHA-256",result="credentials"} 2.0',
        '{mechanism="none",result="mechanism"} 2.0',
    ]


@async_test
async def test_failures_to_authenticate_again_are_counted(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path, {"connections_max_reauth_ms": "60000"}) as harness:
        await add_user(harness.node.services.security, "bob")
        client = await harness.connect()
        await log_in(client)
        await log_in(client, "bob")
        assert harness.node.services.sasl.logins.counts == {("PLAIN", "accepted"): 1, ("PLAIN", "user"): 1}


@async_test
async def test_client_that_does_not_authenticate_in_time_is_counted(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path, {"authentication_timeout_ms": "50"}) as harness:
        client = await harness.connect()
        with pytest.raises(Hangup):
            await client.receive_frame()
        assert harness.node.services.sasl.logins.counts == {("none", "timeout"): 1}
