"""Nodes of a cluster authenticate each other with tokens, and again before those expire."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from harness import async_test

from callboard import CoordinatorError
from callboard.actors.javahash import offsets_partition
from callboard.actors.messages import DescribeGroup
from callboard.runtime.embed.any_group import requests_of
from callboard.runtime.embed.coordinator import Coordinator

from .secured_nodes import DEADLINE_S, SecuredNodes, register_of, secured_nodes
from .test_cluster_tokens import Issuer

NODE = "node"
LIFETIME_S = 3
GROUPS = tuple(f"group-{number}" for number in range(6))
PAUSE_S = 0.05


def settings_of(issuer: Issuer, token: Path) -> dict[str, str]:
    own = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token_endpoint_url": token.as_uri()}
    skew = {"sasl_oauthbearer_clock_skew_seconds": "0"}
    settings = {"security_protocol": "SASL_PLAINTEXT", **issuer.settings(), **own, **skew}
    return {name.replace("_", "."): value for name, value in settings.items()}


class Tokens:
    """The file with the nodes' token, which another program replaces."""

    def __init__(self, issuer: Issuer, path: Path) -> None:
        self._issuer = issuer
        self.path = path
        self.replace()

    def replace(self) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(self._issuer.token(NODE, LIFETIME_S))
        new.replace(self.path)

    async def replace_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(LIFETIME_S / 10)
            self.replace()


def group_of(coordinator: Coordinator, name: str) -> str:
    """A group that the node of this name owns."""
    register = register_of(coordinator)

    def owner(group: str) -> str:
        return register.nodes[register.owners[offsets_partition(group, register.counts.offsets)]].name

    return next(group for group in GROUPS if owner(group) == name)


async def ask_owner(coordinator: Coordinator, group: str) -> None:
    """Raises CoordinatorError if the node that owns the group does not answer."""
    answer = await requests_of(coordinator.node).ask(DescribeGroup(group))
    assert (answer.group_id, answer.state) == (group, "Dead")


async def ask_until_sessions_were_renewed(nodes: SecuredNodes) -> None:
    """Ask in both directions until both connections have outlived the token that they began with.

    A question may fail on a machine that has stood still, so that the newest token has expired.
    """
    a, b = nodes.running["a"], nodes.running["b"]
    asked = [(a, group_of(a, "b")), (b, group_of(b, "a"))]
    while not all(has_renewed(nodes, name) for name in "ab"):
        for coordinator, group in asked:
            try:
                await ask_owner(coordinator, group)
            except CoordinatorError as error:
                assert "invalid_token" in str(error)
        await asyncio.sleep(PAUSE_S)


def has_renewed(nodes: SecuredNodes, name: str) -> bool:
    lines = list(nodes.audited(name, "authenticated"))
    assert {(line["principal"], line["mechanism"]) for line in lines} <= {(f"User:{NODE}", "OAUTHBEARER")}
    return max(Counter(line["port"] for line in lines).values(), default=0) >= 2


@async_test
async def test_nodes_authenticate_again_before_their_tokens_expire(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    issuer = Issuer(tmp_path)
    tokens = Tokens(issuer, tmp_path / "node.token")
    security = settings_of(issuer, tokens.path)
    replacing = asyncio.create_task(tokens.replace_repeatedly())
    async with asyncio.timeout(DEADLINE_S), secured_nodes(tmp_path, "ab", lambda _name: security) as nodes:
        await ask_until_sessions_were_renewed(nodes)
        replacing.cancel()
        await check_refusal_without_a_token(nodes, tokens)
    assert sum("no token from" in record.getMessage() for record in caplog.records) <= 1


async def check_refusal_without_a_token(nodes: SecuredNodes, tokens: Tokens) -> None:
    a = nodes.running["a"]
    group = group_of(a, "b")
    tokens.path.unlink()
    error: Any = None
    while error is None:
        try:
            await ask_owner(a, group)
        except CoordinatorError as raised:
            error = raised
        await asyncio.sleep(PAUSE_S)
    assert "no token from" in str(error)
    tokens.replace()
    await ask_owner(a, group)
