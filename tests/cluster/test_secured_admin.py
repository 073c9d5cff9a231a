"""Embedded coordinators whose nodes talk by SASL and TLS: admin methods and members need no other settings."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from harness import async_test
from tls_helpers import TlsFolder

from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.actors.javahash import offsets_partition
from callboard.runtime.settings.authorization import STANDARD_AUTHORIZER

from .secured_nodes import SecuredNodes, register_of, secured_nodes, until_true

NAMES = ("a", "b")
GROUPS = tuple(f"group-{number}" for number in range(6))
NODE = "node"


def security(files: TlsFolder, protocol: str) -> dict[str, str]:
    tls = {"ssl.keystore.location": str(files.keystore), "ssl.truststore.location": str(files.truststore)}
    return {
        "security.protocol": protocol,
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.username": NODE,
        "sasl.password": NODE,
        **(tls if protocol == "SASL_SSL" else {}),
    }


def check_groups_are_on_both(nodes: SecuredNodes) -> None:
    owners = register_of(nodes.running["a"]).owners
    assert {owners[offsets_partition(group, 3)] for group in GROUPS} == set(owners)


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
@async_test
async def test_admin_methods_and_members_reach_all_nodes(protocol: str, tmp_path: Path) -> None:
    files = TlsFolder(tmp_path)
    options: Any = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": f"User:{NODE}"}
    options |= {"users": {NODE: NODE}, "topics": {"t": 3}}
    async with secured_nodes(tmp_path, NAMES, lambda _name: security(files, protocol), **options) as nodes:
        check_groups_are_on_both(nodes)
        first, second = nodes.running.values()
        for group in GROUPS:
            assert await first.reset(group, {("t", 0): 7}) == {("t", 0): 7}
            assert (await second.offsets(group))["t", 0].offset == 7
            assert (await first.describe(group)).state == "Empty"
        for node in nodes.running.values():
            assert {group.group_id for group in (await node.groups()).groups} == set(GROUPS)
        async with AsyncExitStack() as stack:
            members = [
                await stack.enter_async_context(node.member(group, resources={"jobs": 2}))
                for group in GROUPS
                for node in nodes.running.values()
            ]
            await until_true(lambda: all(len(member.shards) == 1 for member in members))
            assert (await first.explain(GROUPS[0])).now is not None
            assert (await second.explain(GROUPS[0])).now is not None
        for group in GROUPS:
            await second.delete(group)
        assert (await first.groups()).groups == ()


@async_test
async def test_user_of_a_node_needs_rights_for_admin_methods(tmp_path: Path) -> None:
    """The node itself needs none for what nodes ask each other."""
    options: Any = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:ops", "users": {NODE: NODE}}
    files = TlsFolder(tmp_path)
    async with secured_nodes(tmp_path, NAMES, lambda _name: security(files, "SASL_PLAINTEXT"), **options) as nodes:
        codes = await asyncio.gather(*(code_of(nodes, group) for group in GROUPS))
        assert ErrorCode.GROUP_AUTHORIZATION_FAILED in codes


async def code_of(nodes: SecuredNodes, group: str) -> ErrorCode:
    try:
        await nodes.running["a"].offsets(group)
    except CoordinatorError as error:
        return error.code
    return ErrorCode.NONE
