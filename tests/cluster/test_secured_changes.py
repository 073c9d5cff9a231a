"""Users, ACLs and quotas that are changed through one node: all others have them, also when that node has died."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from client_quota_helpers import USER, alter, alteration
from harness import Client, async_test
from sasl_helpers import log_in

from callboard.runtime.security.credentials import SHA_512
from callboard.runtime.settings.authorization import STANDARD_AUTHORIZER

from .secured_nodes import DEADLINE_S, SecuredNodes, secured_nodes

OPS, BOB, NODE = "ops", "bob", "node"
MECHANISM = "SCRAM-SHA-512"
LIMIT = "request_percentage"
SECURITY = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": MECHANISM,
    "sasl.username": NODE,
    "sasl.password": NODE,
    "connection.failed.authentication.delay.ms": "0",
}
OPTIONS: Any = {
    "authorizer_class_name": STANDARD_AUTHORIZER,
    "super_users": "User:ops",
    "users": {OPS: OPS, NODE: NODE},
}


async def log_in_at(nodes: SecuredNodes, stack: AsyncExitStack, user: str, name: str) -> Client | None:
    """A client of a node, whose password is the name of the user. None if it is not let in."""
    client = Client(*await asyncio.open_connection(*nodes.address(name)))
    stack.push_async_callback(client.close)
    return client if (await log_in(client, user, user, MECHANISM))["error_code"] == "NONE" else None


async def give_everything(client: Client) -> None:
    """Add the user, let him read the group, and limit him."""
    salt = secrets.token_bytes(16)
    credential: Any = {"name": BOB, "mechanism": SHA_512.number, "iterations": 4096, "salt": salt}
    credential["salted_password"] = SHA_512.salted_password(BOB.encode(), salt, 4096)
    answer: Any = await client.ask("alter_user_scram_credentials", 0, deletions=[], upsertions=[credential])
    assert [result["error_code"] for result in answer["results"]] == ["NONE"]
    acl = {"resource_type": 3, "resource_name": "g", "resource_pattern_type": 3, "principal": "User:bob", "host": "*"}
    answer = await client.ask("create_acls", creations=[{**acl, "operation": 3, "permission_type": 3}])
    assert [result["error_code"] for result in answer["results"]] == ["NONE"]
    assert await alter(client, alteration({USER: BOB}, **{LIMIT: 0.0001})) == [("NONE", None)]


async def take_everything(client: Client) -> None:
    """The opposite, in the opposite order."""
    assert await alter(client, alteration({USER: BOB}, **{LIMIT: None})) == [("NONE", None)]
    names = ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")
    anything: Any = {**dict.fromkeys(names, 1), "resource_name_filter": None, "host_filter": None}
    answer: Any = await client.ask("delete_acls", filters=[{**anything, "principal_filter": "User:bob"}])
    assert [len(result["matching_acls"]) for result in answer["filter_results"]] == [1]
    deletion: Any = {"name": BOB, "mechanism": SHA_512.number}
    answer = await client.ask("alter_user_scram_credentials", 0, deletions=[deletion], upsertions=[])
    assert [result["error_code"] for result in answer["results"]] == ["NONE"]


async def is_allowed(client: Client) -> bool:
    found: Any = await client.ask("find_coordinator", 3, key="g", key_type=0)
    assert found["error_code"] in ("NONE", "COORDINATOR_NOT_AVAILABLE", "GROUP_AUTHORIZATION_FAILED")
    return bool(found["error_code"] != "GROUP_AUTHORIZATION_FAILED")


async def is_throttled(client: Client) -> bool:
    """The second request is above the limit, whatever the first one took."""
    answers: list[Any] = [await client.ask("find_coordinator", 3, key="g", key_type=0) for _ in range(2)]
    return any(answer["throttle_time"] for answer in answers)


async def until_all(names: Collection[str], check: Callable[[str], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        for name in names:
            while not await check(name):
                await asyncio.sleep(0.02)


@async_test
async def test_changes_by_one_node_hold_on_all_and_survive_its_death(tmp_path: Path) -> None:
    async with secured_nodes(tmp_path, "abc", lambda name: SECURITY, **OPTIONS) as nodes, AsyncExitStack() as stack:
        log_in_as = partial(log_in_at, nodes, stack)

        async def has_everything(name: str) -> bool:
            client = await log_in_as(BOB, name)
            return client is not None and await is_allowed(client) and await is_throttled(client)

        async def has_nothing(name: str) -> bool:
            return await log_in_as(BOB, name) is None

        assert await has_nothing("b")
        client = await log_in_as(OPS, "a")
        assert client is not None
        await give_everything(client)
        await nodes.kill("a")
        await until_all(("b", "c"), has_everything)
        open_one, client = await log_in_as(BOB, "c"), await log_in_as(OPS, "b")
        assert open_one is not None and client is not None
        await take_everything(client)
        await nodes.kill("b")
        await nodes.start("a")  # its file has what it knew when it was killed
        await until_all(("a", "c"), has_nothing)
        assert not await is_allowed(open_one)
        assert not await is_throttled(open_one)


@async_test
async def test_audit_trail_of_a_node_has_what_it_has_answered_itself(tmp_path: Path) -> None:
    async with secured_nodes(tmp_path, "ab", lambda name: SECURITY, **OPTIONS) as nodes, AsyncExitStack() as stack:
        client = await log_in_at(nodes, stack, OPS, "a")
        assert client is not None
        await give_everything(client)
        while (bob := await log_in_at(nodes, stack, BOB, "b")) is None:
            await asyncio.sleep(0.02)
        answer: Any = await bob.ask("delete_groups", groups_names=["g"])
        assert [result["error_code"] for result in answer["results"]] == ["GROUP_AUTHORIZATION_FAILED"]

    changed = [(line["principal"], line["api"]) for line in nodes.audited("a", "changed")]
    apis = ("AlterUserScramCredentials", "CreateAcls", "AlterClientQuotas")
    assert changed == [("User:ops", api) for api in apis]
    [denied] = nodes.audited("b", "denied")
    assert (denied["principal"], denied["operation"], denied["resource"]) == ("User:bob", "DELETE", "Group:g")
    assert list(nodes.audited("b", "changed")) == list(nodes.audited("a", "denied")) == []
    assert "User:bob" not in {line["principal"] for line in nodes.audited("a", "authenticated")}
    assert "User:bob" in {line["principal"] for line in nodes.audited("b", "authenticated")}
