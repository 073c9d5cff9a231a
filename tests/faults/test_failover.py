"""A standby of PostgreSQL is promoted. A synchronous one has everything; one that lacks something is refused."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster.cluster_server_helpers import ClusterServer, cluster_of
from cluster.command_helpers import runner
from cluster.engine_cases import skip_or_fail
from cluster.postgres_server import HOST, PostgresServer, missing_postgres
from cluster.probe import ProbeClient

from .campaign import Campaign

STANDBY = "standby"
OLDER_EXIT_CODE = 3


@contextmanager
def replicated(settings: str = "") -> Iterator[tuple[PostgresServer, PostgresServer, str]]:
    """A primary, its standby, and the URL of both. ``settings``: of the primary, when the standby runs."""
    if (reason := missing_postgres()) is not None:
        skip_or_fail(reason)
    with PostgresServer() as primary:
        standby = primary.standby(STANDBY)
        try:
            standby.start()
            if settings:
                primary.sql(f"{settings}; select pg_reload_conf()")
            yield primary, standby, f"postgresql://postgres@{HOST}:{primary.port},{HOST}:{standby.port}/postgres"
        finally:
            standby.remove()


def test_promoted_synchronous_standby_has_everything(tmp_path: Path) -> None:
    async def run(servers: Sequence[ClusterServer], url: str) -> Campaign:
        async with Campaign(servers, url) as campaign:
            acknowledged = campaign.acknowledged
            await asyncio.to_thread(primary.crash)
            await asyncio.to_thread(standby.promote)
            await campaign.settle()
            assert campaign.acknowledged > acknowledged
        return campaign

    with (
        replicated(f"alter system set synchronous_standby_names = '{STANDBY}'") as (primary, standby, url),
        cluster_of(2, tmp_path, url) as servers,
    ):
        assert asyncio.run(run(servers, url)).violations == []
        assert not any("older copy" in server.log for server in servers)


async def commit_some(servers: Sequence[ClusterServer], goal: int) -> ProbeClient:
    until = asyncio.Event()
    client = ProbeClient("group", [server.address for server in servers])
    task = asyncio.create_task(client.run(until))
    async with asyncio.timeout(60):
        while client.acknowledged_count < goal:
            await asyncio.sleep(0.02)
    until.set()
    await task
    return client


def test_promoted_standby_without_the_newest_commits_is_refused_by_all_until_an_operator_accepts_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with replicated() as (primary, standby, url), cluster_of(2, tmp_path, url) as servers:
        asyncio.run(commit_some(servers, 3))
        standby.stop()
        asyncio.run(commit_some(servers, 20))
        primary.crash()
        standby.start()
        standby.promote()
        assert [server.wait() for server in servers] == [OLDER_EXIT_CODE] * 2
        assert all("the cluster cannot be used: " in server.log for server in servers)
        assert any("the store lacks " in server.log for server in servers)
        servers[0].launch()  # a process manager does this
        assert servers[0].wait() == OLDER_EXIT_CODE
        runs = runner(capsys)
        assert "lacks" in runs("status", "--cluster", url, "--json").json["damage"]
        assert "nothing was changed" in runs("accept-loss", "--cluster", url).out
        assert "accepted: node n" in runs("accept-loss", "--cluster", url, "--execute").out
        assert "nothing to do" in runs("accept-loss", "--cluster", url, "--execute").out
        servers[0].start()
        assert asyncio.run(commit_some(servers[:1], 3)).acknowledged > 0


def test_node_that_starts_on_an_older_store_than_it_has_seen_is_refused(tmp_path: Path) -> None:
    """No node lives that could remember: the note in the data folder does."""
    store, backup = tmp_path / "store", tmp_path / "backup"
    store.mkdir()
    with cluster_of(1, tmp_path, store.as_uri()) as [server]:
        asyncio.run(commit_some([server], 3))
        shutil.copytree(store, backup)
        server.end()
        server.start()  # the register has a newer version now
        asyncio.run(commit_some([server], 3))
        server.end()
        shutil.rmtree(store)
        backup.rename(store)
        server.launch()
        assert server.wait() == OLDER_EXIT_CODE
        assert "the store lacks" in server.log
