"""The kinds of faults, each with the cluster that it happens to."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

from cluster.cluster_server_helpers import ClusterServer, cluster_of, running
from cluster.named_bucket import Bucket, missing_named_bucket, named_bucket
from cluster.object_server import CREDENTIALS, ObjectServer
from cluster.postgres_server import PostgresServer
from cluster.rolling_members import members_of
from cluster.slow_network import SlowNetwork

from . import older_version
from .campaign import FEW_CLIENTS, Campaign, Fault, Workload
from .cut_network import LINKS, STORE, CutNetwork

NODES = 3
ZOMBIE_S = 1.0
"""How long a server that was stopped or cut off stays so after the others have taken over."""
S3_DELAY_S = 0.025
ON_NAMED_BUCKET = "kill-on-bucket"
MANY_CLIENTS = Workload(50, 0.05)

Servers = Sequence[ClusterServer]
Started = tuple[Campaign, Fault]
Kind = Callable[[Path], AbstractAsyncContextManager[Started]]


@asynccontextmanager
async def cluster_on_postgres(
    folder: Path, workload: Workload
) -> AsyncIterator[tuple[Campaign, Servers, PostgresServer]]:
    with PostgresServer() as postgres, cluster_of(NODES, folder, postgres.url()) as servers:
        async with Campaign(servers, postgres.url(), workload) as campaign:
            yield campaign, servers, postgres


@asynccontextmanager
async def on_postgres(
    folder: Path, fault_of: Callable[[Servers, PostgresServer], Fault], workload: Workload = FEW_CLIENTS
) -> AsyncIterator[Started]:
    async with cluster_on_postgres(folder, workload) as (campaign, servers, postgres):
        yield campaign, fault_of(servers, postgres)


@asynccontextmanager
async def on_simulated_bucket(
    folder: Path, fault_of: Callable[[Servers], Fault], workload: Workload = FEW_CLIENTS
) -> AsyncIterator[Started]:
    os.environ.update(CREDENTIALS)
    with ObjectServer() as objects:
        async with _on_bucket(objects, folder, fault_of, workload) as started:
            yield started


@asynccontextmanager
async def on_named_bucket(folder: Path, fault_of: Callable[[Servers], Fault]) -> AsyncIterator[Started]:
    bucket = named_bucket()
    assert bucket is not None, missing_named_bucket()
    try:
        async with _on_bucket(bucket, folder, fault_of, FEW_CLIENTS) as started:
            yield started
    finally:
        await bucket.clear()


@asynccontextmanager
async def _on_bucket(
    bucket: Bucket, folder: Path, fault_of: Callable[[Servers], Fault], workload: Workload
) -> AsyncIterator[Started]:
    """Each request takes 25 ms longer if the server of the bucket is on this machine."""
    async with AsyncExitStack() as stack:
        url = bucket.url()
        if bucket.port:
            network = await stack.enter_async_context(SlowNetwork(bucket.port).running())
            network.delay_s = S3_DELAY_S
            url = bucket.url(port=network.port)
        servers = await asyncio.to_thread(stack.enter_context, cluster_of(NODES, folder, url))
        campaign = await stack.enter_async_context(Campaign(servers, bucket.url(), workload))
        yield campaign, fault_of(servers)


@asynccontextmanager
async def on_cut_network(folder: Path, workload: Workload = FEW_CLIENTS) -> AsyncIterator[Started]:
    network = CutNetwork()
    with (
        network.running(NODES),
        PostgresServer({"listen_addresses": "*"}, network.addresses) as postgres,
        running([_in_namespace(network, number, folder, postgres) for number in range(NODES)]) as servers,
    ):
        async with Campaign(servers, postgres.url(), workload) as campaign:
            yield campaign, cut_off(servers, network)


def _in_namespace(network: CutNetwork, number: int, folder: Path, postgres: PostgresServer) -> ClusterServer:
    url = postgres.url(host=network.here(number, STORE))
    host = network.there(number, LINKS[1])
    return ClusterServer(folder, url, f"n{number + 1}", host, network.command(number))


@asynccontextmanager
async def on_two_versions(folder: Path) -> AsyncIterator[Started]:
    """All servers begin with the older version. Consumers of librdkafka stay in their groups while that changes."""
    older = older_version.command(await asyncio.to_thread(older_version.install, folder / "older"))
    with (
        PostgresServer() as postgres,
        running([ClusterServer(folder, postgres.url(), f"n{n + 1}", prefix=older) for n in range(NODES)]) as servers,
        members_of(servers) as members,
    ):
        before = [list(member.events) for member in members]
        async with Campaign(servers, postgres.url(), MANY_CLIENTS) as campaign:
            yield campaign, changing_version(servers, older)
            for member in members:
                await asyncio.to_thread(member.wait_for_commits, 2)
        pairs = zip(before, (member.events for member in members), strict=True)
        campaign.violations += [f"a group rebalanced: {old} {new}" for old, new in pairs if old != new]


def killed(servers: Servers, *_: object) -> Fault:
    """``kill -9``."""

    async def begin(number: int) -> None:
        servers[number % NODES].send(signal.SIGKILL)

    async def end(number: int) -> None:
        await asyncio.to_thread(servers[number % NODES].start)

    return Fault(lambda number: servers[number % NODES], begin, end)


def stopped(servers: Servers, *_: object) -> Fault:
    """SIGSTOP, and SIGCONT some time after the others have taken over."""

    async def begin(number: int) -> None:
        servers[number % NODES].send(signal.SIGSTOP)

    async def end(number: int) -> None:
        await asyncio.sleep(ZOMBIE_S)
        servers[number % NODES].send(signal.SIGCONT)

    return Fault(lambda number: servers[number % NODES], begin, end, has_zombie=True)


def cut_off(servers: Servers, network: CutNetwork) -> Fault:
    """A server that cannot reach the store, but clients, and one that can reach nobody, in turns."""

    async def begin(number: int) -> None:
        links = LINKS if number % 2 else (STORE,)
        await asyncio.to_thread(network.cut, number % NODES, links)

    async def end(number: int) -> None:
        await asyncio.sleep(ZOMBIE_S)
        await asyncio.to_thread(network.mend, number % NODES)

    return Fault(lambda number: servers[number % NODES], begin, end, has_zombie=True)


def drained(servers: Servers, *_: object) -> Fault:
    """SIGTERM, and another start: a step of a rolling restart. Its partitions leave it, and come back."""
    return _restarted(servers, lambda server: None)


def changing_version(servers: Servers, older: Sequence[str]) -> Fault:
    """The same with the other version. Each three steps are a rolling upgrade, or the way back."""

    def change(server: ClusterServer) -> None:
        server.prefix = () if server.prefix else older

    return _restarted(servers, change)


def _restarted(servers: Servers, change: Callable[[ClusterServer], None]) -> Fault:
    async def begin(number: int) -> None:
        servers[number % NODES].send(signal.SIGTERM)

    async def end(number: int) -> None:
        server = servers[number % NODES]
        assert await asyncio.to_thread(server.wait) == 0
        change(server)
        await asyncio.to_thread(server.start)

    return Fault(lambda number: servers[number % NODES], begin, end, counts_end=True)


def crashed(_: Servers, postgres: PostgresServer) -> Fault:
    """``kill -9`` of all processes of PostgreSQL, and another start."""

    async def begin(number: int) -> None:
        await asyncio.to_thread(postgres.crash)
        await asyncio.to_thread(postgres.start)

    async def end(number: int) -> None:
        """It has started again."""

    return Fault(lambda number: None, begin, end)


KINDS: dict[str, Kind] = {
    "kill": lambda folder: on_postgres(folder, killed),
    "stop": lambda folder: on_postgres(folder, stopped),
    "cut": on_cut_network,
    "crash": lambda folder: on_postgres(folder, crashed),
    "drain": lambda folder: on_postgres(folder, drained, MANY_CLIENTS),
    "kill-on-s3": lambda folder: on_simulated_bucket(folder, killed),
    ON_NAMED_BUCKET: lambda folder: on_named_bucket(folder, killed),
    "upgrade": on_two_versions,
}


def missing_store(kind: str) -> str | None:
    """Why no campaign of this kind can run, if somebody has to name its store first."""
    return missing_named_bucket() if kind == ON_NAMED_BUCKET else None


def store_of(kind: str) -> str:
    """The software of the store, if somebody named it."""
    bucket = named_bucket() if kind == ON_NAMED_BUCKET else None
    return bucket.software() if bucket else ""
