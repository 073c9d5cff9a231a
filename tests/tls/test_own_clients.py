"""Callboard's own clients over TLS: ``connect`` and commands."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest
from harness import DEADLINE_S, async_test, running_node
from tls_helpers import Authority, TlsFolder

import callboard
from callboard.runtime.client.cluster import Cluster
from callboard.runtime.client.connection import Connection, connect_to
from callboard.runtime.client.errors import ClientError
from callboard.runtime.client.security import command_security, load_security
from callboard.runtime.cluster.register import Endpoint, NodeEntry, Register
from callboard.runtime.embed.cluster_members import ClusterConnector
from callboard.runtime.embed.cluster_requests import ClusterRequests
from callboard.runtime.embed.group_owners import GroupOwners
from callboard.runtime.log.partition_counts import PartitionCounts
from callboard.runtime.member.tcp import TcpChannel
from callboard.runtime.settings.address import Address


@pytest.fixture
def files(tmp_path: Path) -> TlsFolder:
    return TlsFolder(tmp_path)


def client_values(files: TlsFolder, client: str = "") -> dict[str, str]:
    """The settings of a client by Kafka's names. ``client``: whose certificate it has; "" for none."""
    values = {"security.protocol": "SSL", "ssl.truststore.location": str(files.truststore)}
    return values | ({"ssl.keystore.location": str(files.client(client))} if client else {})


@async_test
async def test_member_has_a_shard_over_mutual_tls(files: TlsFolder) -> None:
    options = {"listeners": (files.listener(ssl_client_auth="required"),)}
    async with running_node(files.folder / "data", options) as harness:
        address = f"127.0.0.1:{harness.port}"
        async with callboard.connect(address, client_values(files, "worker")) as coordinator:
            async with coordinator.member("g", resources={"t": 3}) as member:
                assignment = await member.next_assignment()
                await assignment.shards[0].commit(7)
                principals = {str(each.principal) for each in harness.node.connections}
            assert (len(assignment.shards), principals) == (3, {"User:CN=worker"})
        with pytest.raises(callboard.ChannelLost, match=r"requires a certificate|closed the connection|disconnected"):
            async with callboard.connect(address, client_values(files)):
                pass


async def asked(port: int, values: dict[str, str], host: str = "127.0.0.1") -> list[str]:
    """The groups of a server, as a command lists them."""

    def ask() -> list[str]:
        with Cluster(Address(host, port), DEADLINE_S, load_security(values, {})) as cluster:
            return [group.group_id for group in cluster.groups()]

    return await asyncio.to_thread(ask)


@async_test
async def test_commands_speak_tls(files: TlsFolder) -> None:
    async with running_node(files.folder / "data", {"listeners": (files.listener(),)}) as harness:
        assert await asked(harness.port, client_values(files)) == []


@async_test
async def test_certificate_of_the_server_is_checked(files: TlsFolder) -> None:
    """Its authority, and its name."""
    strange = Authority("Strange").write(files.folder / "strange.pem")
    files.authority.issue("other.example", ()).write(files.keystore)
    async with running_node(files.folder / "data", {"listeners": (files.listener(),)}) as harness:
        expected = r"its certificate is refused: .*; expected that of an authority in ssl\.truststore\.location \("
        with pytest.raises(ClientError, match=expected):
            await asked(harness.port, {**client_values(files), "ssl.truststore.location": str(strange)})
        with pytest.raises(ClientError, match=r"its certificate is refused: .*127.0.0.1'; expected a name that it has"):
            await asked(harness.port, client_values(files))
        unchecked = {**client_values(files), "ssl.endpoint.identification.algorithm": ""}
        assert await asked(harness.port, unchecked) == []


@async_test
async def test_client_without_tls_is_refused_by_a_listener_with_tls(files: TlsFolder) -> None:
    async with running_node(files.folder / "data", {"listeners": (files.listener(),)}) as harness:
        with pytest.raises(
            ClientError, match=r"did not answer api_versions: .*; it may expect TLS \(security.protocol="
        ):
            await asked(harness.port, {})
        with pytest.raises(callboard.ChannelLost, match=r"closed the connection; it may expect TLS"):
            await connect_to(Address("127.0.0.1", harness.port), "c")


@async_test
async def test_alert_instead_of_the_first_answer_is_described() -> None:
    """With TLSv1.3 a server looks at the certificate when the handshake is over for the client."""
    connection = Connection(Address("127.0.0.1", 1), "c")
    connection.connection_made(Mock(spec=asyncio.Transport))
    asking = asyncio.ensure_future(connection.exchange_versions())
    await asyncio.sleep(0)
    alert = ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required (_ssl.c:2580)")
    alert.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    connection.connection_lost(alert)
    with pytest.raises(callboard.ChannelLost, match=r"disconnected: it requires a certificate: expected ssl.keystore"):
        await asking


@async_test
async def test_client_with_tls_is_refused_by_a_listener_without(files: TlsFolder) -> None:
    async with running_node(files.folder / "data") as harness:
        with pytest.raises(ClientError, match="cannot reach"):
            await asked(harness.port, client_values(files))


class OneNode:
    """The register of a cluster with one node, which owns everything."""

    own_session = ""

    def __init__(self, port: int) -> None:
        endpoints = {"PLAINTEXT": Endpoint("127.0.0.1", 1), "SSL": Endpoint("127.0.0.1", port)}
        counts = PartitionCounts(4, 1)
        self.on_register_changed: Callable[[], None] = lambda: None
        node, owners = NodeEntry("n1", 1, endpoints), ("s1",) * 5
        self.register = Register(1, "t", "c", counts, {"s1": node}, owners, (1,) * 5, {"n1": 1}, 1500)

    def has_lease(self) -> bool:
        return False


@async_test
async def test_embedded_coordinators_of_a_cluster_reach_its_nodes_by_tls(files: TlsFolder) -> None:
    """Members, and admin methods, by the listener with the name of the protocol."""
    options = {"listeners": (files.listener(ssl_client_auth="required"),)}
    async with running_node(files.folder / "data", options) as harness:
        security = load_security(client_values(files, "web"), {})
        owners = GroupOwners(OneNode(harness.port), security)
        requests = ClusterRequests(owners, AsyncMock(), AsyncMock())
        assert [topic.name for topic in await requests.topics() if not topic.is_internal] == ["t", "u"]
        requests.close()
        connector = ClusterConnector(owners, None)
        assert await connector.partitions(["t"]) == {"t": 3}
        channel = await connector._open_to_owner("me", "g")
        assert isinstance(channel, TcpChannel)
        channel.close()


def test_changed_files_are_used_for_the_next_connection(files: TlsFolder) -> None:
    security = load_security(client_values(files), {})
    context = security.tls_context()
    assert security.tls_context() is context
    Authority("Another").write(files.truststore)
    assert security.tls_context() is not context


def test_last_certificates_hold_while_changed_files_cannot_be_used(
    files: TlsFolder, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception would end what connects: a node that asks another one about a transaction never got an answer."""
    security = load_security(client_values(files), {})
    context = security.tls_context()
    files.truststore.write_text("half of a certificate")
    assert security.tls_context() is context
    assert "the old TLS certificates stay in use: ssl_truststore_location" in caplog.text
    Authority("Another").write(files.truststore)
    assert security.tls_context() is not context


def test_commands_take_a_file_and_environment_variables(files: TlsFolder) -> None:
    path = files.folder / "client.properties"
    path.write_text("\n".join(f"{name}={value}" for name, value in client_values(files).items()))
    security = command_security(
        {"CALLBOARD_COMMAND_CONFIG": str(path), "CALLBOARD_SSL_KEYSTORE_LOCATION": str(files.client())}
    )
    assert security.settings.values["ssl_keystore_location"] == str(files.client())
    assert security.tls_context() is not None
    assert command_security({}).tls_context() is None
