"""librdkafka's consumers while nodes are drained and restarted one after the other: no group rebalances."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from .cluster_server_helpers import cluster_of
from .command_helpers import Run, runner
from .rolling_members import members_of


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def test_drains_and_rolling_restart_disturb_no_group(tmp_path: Path, run: Run) -> None:
    store = tmp_path / "shared"
    store.mkdir()
    with cluster_of(3, tmp_path, store.as_uri()) as servers, members_of(servers) as members:
        before = [list(member.events) for member in members]
        for server in servers:
            drained = run("drain", server.name, "--cluster", store.as_uri())
            assert drained.code == 0, drained.err
            for member in members:
                member.wait_for_commits(2)
            server.send(signal.SIGTERM)
            assert server.wait() == 0
            server.end()
            joins = server.log.count("joined the cluster")
            server.start()
            server.wait_for_log("joined the cluster", joins + 1)
            for member in members:
                member.wait_for_commits(2)
        assert [member.events for member in members] == before
