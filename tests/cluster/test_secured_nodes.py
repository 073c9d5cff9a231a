"""Clusters whose nodes connect to each other by mutual TLS, while certificates and nodes are replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from harness import async_test
from tls_helpers import Authority, TlsFolder

from callboard.runtime.settings.authorization import STANDARD_AUTHORIZER

from .secured_nodes import DEADLINE_S, SecuredNodes, secured_nodes

NAMES = ("a", "b", "c")
GROUPS = tuple(f"group-{number}" for number in range(3))
IDS = ("id-0", "id-1", "id-2")


class Certificates:
    """Files of the nodes, and of the client ``ops``, which may do everything."""

    def __init__(self, folder: Path) -> None:
        self.tls = TlsFolder(folder)
        self.issue_all(self.tls.authority)

    def issue_all(self, authority: Authority) -> set[str]:
        """New certificates for all. Returns the serial numbers of those of the nodes, as in the audit trail."""
        authority.issue("ops").write(self.tls.folder / "ops.pem")
        pairs = {name: authority.issue(name) for name in NAMES}
        for name, pair in pairs.items():
            pair.write(self.tls.folder / f"{name}.pem")
        return {f"{pair.certificate.serial_number:x}" for pair in pairs.values()}

    def trust(self, *authorities: Authority) -> None:
        new = self.tls.truststore.with_suffix(".new")
        new.write_text("".join(authority.pair.chain_pem for authority in authorities))
        new.replace(self.tls.truststore)

    def settings(self, name: str) -> dict[str, str]:
        return {
            "security.protocol": "SSL",
            "ssl.keystore.location": str(self.tls.folder / f"{name}.pem"),
            "ssl.truststore.location": str(self.tls.truststore),
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
        }


async def commit_in_transactions(nodes: SecuredNodes, certificates: Certificates, offset: int) -> None:
    """The coordinators of the transactions are on all nodes, and so are those of the groups."""
    for transactional_id in IDS:
        committing = asyncio.create_task(commit_by(transactional_id, nodes, certificates, offset))
        await asyncio.wait({committing}, timeout=DEADLINE_S)
        while not committing.done():  # first the transaction waits to be aborted, then the producer to be closed
            committing.cancel()
            await asyncio.sleep(0.1)
        await committing


async def commit_by(transactional_id: str, nodes: SecuredNodes, certificates: Certificates, offset: int) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=[node.bootstrap for node in nodes.running.values()],
        transactional_id=transactional_id,
        retry_backoff_ms=20,
        security_protocol="SSL",
        ssl_context=certificates.tls.client_context("ops"),
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(producer.stop)
        await producer.start()
        for number, group in enumerate(GROUPS):
            async with producer.transaction():
                await producer.send_offsets_to_transaction({TopicPartition("t", number): offset}, group)


def node_serials(nodes: SecuredNodes) -> set[str]:
    """Of the certificates by which nodes have authenticated at others."""
    lines = [line for name in NAMES for line in nodes.audited(name, "authenticated")]
    return {line["certificate_serial"] for line in lines if line["principal"] != "User:ops"}


@async_test
async def test_authority_and_certificates_are_replaced_in_a_rolling_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First all trust both authorities, then all have new certificates, then nobody trusts the old authority.

    Each node is restarted after one of the steps. Nodes need no rights at each other.
    """
    certificates, new = Certificates(tmp_path), Authority("New authority")
    for setting, value in certificates.settings("ops").items():
        monkeypatch.setenv(f"CALLBOARD_{setting.replace('.', '_').upper()}", value)  # nodes have no rights
    serials: set[str] = set()
    steps: tuple[Callable[[], object], ...] = (
        lambda: certificates.trust(certificates.tls.authority, new),
        lambda: serials.update(certificates.issue_all(new)),
        lambda: certificates.trust(new),
    )
    options = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:ops"}
    async with secured_nodes(tmp_path, NAMES, certificates.settings, topics={"t": len(GROUPS)}, **options) as nodes:
        for number, (step, name) in enumerate(zip(steps, NAMES, strict=True)):
            step()
            for node in nodes.running.values():
                node.node.listeners.reload_certificates()
            await nodes.drain(name)
            await nodes.stop(name)
            await commit_in_transactions(nodes, certificates, number)
            await nodes.start(name)
            await nodes.wait_until_balanced()
        await commit_in_transactions(nodes, certificates, 1000)
        for number, group in enumerate(GROUPS):
            assert (await nodes.running["a"].offsets(group))["t", number].offset == 1000
    assert len(serials) == len(NAMES)
    assert serials <= node_serials(nodes)
