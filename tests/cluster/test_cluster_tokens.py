"""Clients of a cluster with tokens: they commit through a takeover, and new keys and ACLs hold on all nodes.

Once with nodes in this process on a shared folder, once with real servers on PostgreSQL.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from harness import Client, async_test, commit_values, offsets
from peers.wire import Hangup

from callboard.runtime.settings.authorization import STANDARD_AUTHORIZER

from .cluster_server_helpers import ClusterServer, cluster_of
from .postgres_server import PostgresServer
from .probe import TOPIC
from .secured_nodes import DEADLINE_S, TTL_MS, secured_nodes

jwt = pytest.importorskip("jwt")

OPS, ALICE, NODE = "ops", "alice", "node"
GROUPS = tuple(f"group-{number}" for number in range(4))
LIFETIME_S = 3600
PAUSE_S = 0.02
NOT_SERVED = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")

Address = tuple[str, int]


class Issuer:
    """Signs tokens with its newest key. ``path``: the public keys."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.json"
        self._number = 0
        self.rotate()

    def rotate(self) -> None:
        """Sign with a new key from now on. The old one is not accepted any more."""
        self._number += 1
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"keys": [{**public, "kid": str(self._number)}]}))
        new.replace(self.path)

    def token(self, user: str, lifetime_s: int = LIFETIME_S) -> str:
        claims = {"sub": user, "iat": int(time.time()), "exp": int(time.time()) + lifetime_s, "aud": "kafka"}
        return str(jwt.encode(claims, self._key, algorithm="ES256", headers={"kid": str(self._number)}))

    def settings(self) -> dict[str, str]:
        """Of the listeners of all nodes."""
        return {
            "sasl_enabled_mechanisms": "OAUTHBEARER",
            "allow_plain_without_tls": "true",
            "connection_failed_authentication_delay_ms": "0",
            "sasl_oauthbearer_jwks_endpoint_url": self.path.as_uri(),
            "sasl_oauthbearer_jwks_endpoint_refresh_ms": "100",
            "sasl_oauthbearer_expected_audience": "kafka",
        }


class Nodes(Protocol):
    """Two nodes, ``a`` and ``b``."""

    def address(self, name: str) -> Address: ...

    async def kill(self, name: str) -> None: ...

    async def start(self, name: str) -> object: ...


class Clients:
    """Connections by token. All are closed at the end."""

    def __init__(self, nodes: Nodes, stack: AsyncExitStack) -> None:
        self._nodes = nodes
        self._stack = stack

    async def log_in(self, node: str, token: str) -> Client | None:
        """None if the token is not accepted."""
        client = Client(*await asyncio.open_connection(*self._nodes.address(node)))
        self._stack.push_async_callback(client.close)
        await client.ask("sasl_handshake", 1, mechanism="OAUTHBEARER")
        message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        answer = await client.ask("sasl_authenticate", 2, auth_bytes=message)
        assert answer["error_code"] == "NONE"
        return None if answer["auth_bytes"] else client

    async def must_log_in(self, node: str, token: str) -> Client:
        client = await self.log_in(node, token)
        assert client is not None
        return client


async def commit(clients: Clients, names: str, token: str, group: str, offset: int) -> str:
    """Commit at the node that coordinates the group, as soon as there is one. Returns its name."""
    while True:
        for name in names:
            try:
                client = await clients.must_log_in(name, token)
                values = {**commit_values(group, offset=offset), "topics": [topic_with(offset)]}
                answer: Any = await client.ask("offset_commit", 8, **values)
            except (Hangup, OSError):
                continue
            code = answer["topics"][0]["partitions"][0]["error_code"]
            if code == "NONE":
                return name
            assert code in NOT_SERVED
        await asyncio.sleep(PAUSE_S)


def topic_with(offset: int) -> dict[str, Any]:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    return {"name": TOPIC, "partitions": [{**partition, "committed_leader_epoch": -1}]}


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    while not await check():
        await asyncio.sleep(PAUSE_S)


def acl(resource_type: int, name: str) -> dict[str, Any]:
    """Alice may read it."""
    resource = {"resource_type": resource_type, "resource_name": name, "resource_pattern_type": 3}
    return {**resource, "principal": "User:alice", "host": "*", "operation": 3, "permission_type": 3}


async def let_alice_read(ops: Client) -> None:
    answer: Any = await ops.ask("create_acls", creations=[acl(2, TOPIC), *(acl(3, group) for group in GROUPS)])
    assert {result["error_code"] for result in answer["results"]} == {"NONE"}


async def withdraw_all(ops: Client) -> None:
    anything: Any = dict.fromkeys(("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), 1)
    names = {"resource_name_filter": None, "host_filter": None, "principal_filter": "User:alice"}
    answer: Any = await ops.ask("delete_acls", filters=[{**anything, **names}])
    assert len(answer["filter_results"][0]["matching_acls"]) == len(GROUPS) + 1


async def is_denied(client: Client) -> bool:
    answer: Any = await client.ask("find_coordinator", 3, key=GROUPS[0], key_type=0)
    return bool(answer["error_code"] == "GROUP_AUTHORIZATION_FAILED")


async def check_tokens(nodes: Nodes, issuer: Issuer) -> None:
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as stack:
        clients, alice = Clients(nodes, stack), issuer.token(ALICE)
        ops = await clients.must_log_in("a", issuer.token(OPS))
        await let_alice_read(ops)
        for name in "ab":
            open_one = await clients.must_log_in(name, alice)
            await until(partial(is_allowed, open_one))
        assert {await commit(clients, "ab", alice, group, 1) for group in GROUPS} == {"a", "b"}
        await nodes.kill("a")
        for group in GROUPS:
            await commit(clients, "b", alice, group, 2)
        survivor = await clients.must_log_in("b", alice)
        for group in GROUPS:
            assert await offsets(survivor, group) == {(TOPIC, 0): 2}

        await nodes.start("a")
        issuer.rotate()
        new = issuer.token(ALICE)
        for name in "ab":
            await until(partial(is_accepted, clients, name, new))
            assert await clients.log_in(name, alice) is None, "its key is withdrawn"
        for group in GROUPS:
            await commit(clients, "ab", new, group, 3)

        open_ones = [await clients.must_log_in(name, new) for name in "ab"]
        assert [await is_denied(client) for client in open_ones] == [False, False]
        await withdraw_all(await clients.must_log_in("b", issuer.token(OPS)))
        for client in (survivor, *open_ones):
            await until(partial(is_denied, client))


async def is_allowed(client: Client) -> bool:
    return not await is_denied(client)


async def is_accepted(clients: Clients, name: str, token: str) -> bool:
    return await clients.log_in(name, token) is not None


@async_test
async def test_tokens_hold_on_all_nodes_and_through_a_takeover(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    (tmp_path / "node.token").write_text(issuer.token(NODE))
    own = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token_endpoint_url": (tmp_path / "node.token").as_uri()}
    security = {
        name.replace("_", "."): value
        for name, value in {"security_protocol": "SASL_PLAINTEXT", **issuer.settings(), **own}.items()
    }
    options: Any = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": f"User:{OPS}"}
    async with secured_nodes(tmp_path, "ab", lambda _name: security, topics={TOPIC: 1}, **options) as nodes:
        await check_tokens(nodes, issuer)


class Servers:
    """``Nodes`` in processes of their own."""

    def __init__(self, servers: Mapping[str, ClusterServer], options: tuple[str, ...]) -> None:
        self._servers = servers
        self._options = options

    def address(self, name: str) -> Address:
        return "127.0.0.1", self._servers[name].ports["SASL_PLAINTEXT"]

    async def kill(self, name: str) -> None:
        self._servers[name].send(signal.SIGKILL)

    async def start(self, name: str) -> None:
        await asyncio.to_thread(self._servers[name].start, *self._options)


def test_tokens_hold_on_real_servers_with_postgresql(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.sql("CREATE DATABASE tokens")
    issuer = Issuer(tmp_path)
    settings = {
        **issuer.settings(),
        "authorizer_class_name": STANDARD_AUTHORIZER,
        "super_users": f"User:{OPS};User:ANONYMOUS",
        "cluster_session_timeout_ms": str(TTL_MS),
        "offsets_topic_num_partitions": "3",
        "transaction_state_log_num_partitions": "3",
    }
    given = [option for name, value in settings.items() for option in ("--set", f"{name}={value}")]
    options = ("--listen", "SASL_PLAINTEXT://127.0.0.1:0", *given)
    with cluster_of(2, tmp_path, postgres.url(database="tokens"), *options) as servers:
        asyncio.run(check_tokens(Servers(dict(zip("ab", servers, strict=True)), options), issuer))
