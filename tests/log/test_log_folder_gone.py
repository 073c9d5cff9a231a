"""The data folder is moved while a server runs: the server logs it, stops with an error code, and loses nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from full_disk_program import commit, committed
from log_failure_helpers import FAILED, LogHarness
from log_helpers import LazyDisk
from log_server_helpers import commit_until_refused
from peers.server import ServerProcess
from peers.wire import Wire
from structlog.testing import capture_logs


def test_server_with_moved_folder_stops_and_loses_nothing(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, options=("--topic", "t:1")) as server:
        with Wire(server.host, server.port) as client:
            assert commit(client, 1) == "NONE"
            server.data.rename(tmp_path / "elsewhere")
            last_acknowledged = commit_until_refused(client, 2)
        assert server.wait() == 3
        assert f"{server.data / '.lock'}: it was removed, moved or replaced" in server.log()
        assert "stopped, after its log had failed" in server.log()
        assert not server.data.exists()
        (tmp_path / "elsewhere").rename(server.data)
        server.start()
        with Wire(server.host, server.port) as client:
            assert committed(client) >= last_acknowledged
            assert commit(client, last_acknowledged + 1) == "NONE"
        assert server.stop() == 0


@pytest.mark.parametrize("action", ["removed", "moved", "replaced"])
def test_moved_folder_fails_the_log_with_its_name(tmp_path: Path, action: str) -> None:
    root = tmp_path / "data"
    harness = LogHarness(LazyDisk(), root=root)
    harness.commit(0)
    harness.advance()
    if action == "moved":
        root.rename(tmp_path / "elsewhere")
    else:
        if action == "replaced":
            shutil.copytree(root, tmp_path / "copy")
        shutil.rmtree(root)
        if action == "replaced":
            (tmp_path / "copy").rename(root)
    with capture_logs() as lines:
        harness.commit(0)
        harness.advance()
        harness.commit(0)
    assert harness.errors[-1] is FAILED
    assert f"{root}/journal" in lines[0]["reason"] and "removed or moved" in lines[0]["reason"]
    harness.log.close()


def test_moved_partition_folder_fails_its_partition(tmp_path: Path) -> None:
    root = tmp_path / "data"
    harness = LogHarness(LazyDisk(), root=root, checkpoint_bytes=1)
    harness.commit(0, 1)
    harness.advance()
    shutil.rmtree(root / "__consumer_offsets-1")
    with capture_logs() as lines:
        harness.commit(0, 1)
        harness.advance()
    assert [line["partition"] for line in lines] == ["__consumer_offsets-1"]
    assert "removed or moved" in lines[0]["reason"]
    harness.log.close()
