"""Three real servers on a shared folder or a bucket: kills, pauses and stops. Nothing acknowledged is lost.

How long it takes depends on the machine, so only ``make soak`` measures it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from .cluster_server_helpers import ClusterServer, cluster_of
from .probe import ProbeClient

GROUPS = 12
OTHERS_WAIT_S = 60.0

Fault = Callable[[ClusterServer], None]


@pytest.fixture(params=["folder"])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[ClusterServer]]:
    if request.param == "objects":
        url = request.getfixturevalue("objects").url(tmp_path.name)
    else:
        store = tmp_path / "shared"
        store.mkdir()
        url = store.as_uri()
    with cluster_of(3, tmp_path, url) as servers:
        yield servers


async def probe(servers: Sequence[ClusterServer], victim: ClusterServer, fault: Fault) -> list[ProbeClient]:
    """Commit to all groups before and after a fault, until each group was served again."""
    until = asyncio.Event()
    clients = [ProbeClient(f"group-{number}", [server.address for server in servers]) for number in range(GROUPS)]
    tasks = [asyncio.create_task(client.run(until)) for client in clients]
    try:
        await wait_for_commits(clients)
        async with asyncio.timeout(OTHERS_WAIT_S):
            while not any(client.coordinator == victim.address for client in clients):
                await asyncio.sleep(0.05)  # a node that has just joined owns nothing yet
        await asyncio.to_thread(fault, victim)
        async with asyncio.timeout(OTHERS_WAIT_S):
            while any(client.coordinator == victim.address for client in clients):
                await asyncio.sleep(0.05)
        await wait_for_commits(clients)
    finally:
        until.set()
        await asyncio.gather(*tasks)
    return clients


async def wait_for_commits(clients: Sequence[ProbeClient]) -> None:
    """Until each client has two more acknowledgements: the second was sent after this began."""
    goals = [client.acknowledged_count + 2 for client in clients]
    async with asyncio.timeout(OTHERS_WAIT_S):
        while any(client.acknowledged_count < goal for client, goal in zip(clients, goals, strict=True)):
            await asyncio.sleep(0.02)


async def failures(clients: Sequence[ProbeClient]) -> list[str]:
    return [failure for failure in await asyncio.gather(*(client.check() for client in clients)) if failure]


@pytest.mark.parametrize("servers", ["folder", "objects"], indirect=True)
def test_others_continue_after_kill_9(servers: list[ClusterServer]) -> None:
    async def run() -> None:
        clients = await probe(servers, servers[0], lambda victim: victim.send(signal.SIGKILL))
        assert await failures(clients) == []

    asyncio.run(run())
    assert sum("session ended" in server.log for server in servers[1:]) >= 1


def test_paused_node_answers_nothing_after_the_others_have_taken_over(servers: list[ClusterServer]) -> None:
    async def run() -> None:
        victim = servers[1]
        clients = await probe(servers, victim, lambda server: server.send(signal.SIGSTOP))
        victim.send(signal.SIGCONT)
        await asyncio.to_thread(victim.wait_for_log, "session fenced")
        await asyncio.to_thread(victim.wait_for_log, "joined the cluster", 2)
        assert await failures(clients) == []

    asyncio.run(run())


def test_node_that_stops_gives_its_partitions_away_first(servers: list[ClusterServer]) -> None:
    async def run() -> None:
        victim = servers[2]
        clients = await probe(servers, victim, lambda server: server.send(signal.SIGTERM))
        assert await asyncio.to_thread(victim.wait) == 0
        assert await failures(clients) == []

    asyncio.run(run())
    assert "left the cluster" in servers[2].log
    assert not any("session ended" in server.log for server in servers[:2])


def test_whole_cluster_starts_again_with_everything(servers: list[ClusterServer]) -> None:
    async def run() -> list[ProbeClient]:
        until = asyncio.Event()
        clients = [ProbeClient(f"group-{number}", [servers[0].address]) for number in range(GROUPS)]
        tasks = [asyncio.create_task(client.run(until)) for client in clients]
        await wait_for_commits(clients)
        until.set()
        await asyncio.gather(*tasks)
        return clients

    clients = asyncio.run(run())
    for server in servers:
        server.end()
    servers[0].start()
    servers[0].wait_for_log("joined the cluster", 2)
    assert asyncio.run(failures(clients)) == []
