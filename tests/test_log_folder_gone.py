"""The data folder is moved away under a running server: it says so, keeps nothing that nobody would find, and ends with
an exit code that is no success."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest
from full_disk_program import commit, committed
from log_helpers import LazyDisk
from peers.server import ServerProcess
from peers.wire import Wire
from structlog.testing import capture_logs
from test_log_failures import NEVER, Desk


def test_server_whose_folder_is_moved_away_stops_by_itself_and_loses_nothing(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, options=("--topic", "t:1")) as server:
        with Wire(server.host, server.port) as wire:
            assert commit(wire, 1) == "NONE"
            server.data.rename(tmp_path / "elsewhere")
            last = commit_until_refused(wire, 2)
        assert server.wait() == 3
        assert f"{server.data / '.lock'}: it was removed, moved or replaced" in server.log()
        assert "stopped, after its log had failed" in server.log()
        assert not server.data.exists()
        (tmp_path / "elsewhere").rename(server.data)
        server.start()
        with Wire(server.host, server.port) as wire:
            assert committed(wire) >= last
            assert commit(wire, last + 1) == "NONE"
        assert server.stop() == 0


def commit_until_refused(wire: Wire, first: int) -> int:
    """Commit one offset after the other; the last that was acknowledged before the server refused or hung up."""
    for offset in itertools.count(first):
        try:
            if commit(wire, offset) != "NONE":
                return offset - 1
        except OSError:
            return offset - 1
    raise AssertionError


@pytest.mark.parametrize("deed", ["removed", "moved", "replaced"])
def test_a_folder_that_is_taken_away_is_missed_and_named(tmp_path: Path, deed: str) -> None:
    root = tmp_path / "data"
    desk = Desk(LazyDisk(), root=root)
    desk.commit(0)
    desk.later()
    if deed == "moved":
        root.rename(tmp_path / "elsewhere")
    else:
        if deed == "replaced":
            shutil.copytree(root, tmp_path / "copy")
        shutil.rmtree(root)
        if deed == "replaced":
            (tmp_path / "copy").rename(root)
    with capture_logs() as lines:
        desk.commit(0)
        desk.later()
        desk.commit(0)
    assert desk.errors[-1] is NEVER
    assert f"{root}/journal" in lines[0]["reason"] and "removed or moved" in lines[0]["reason"]
    desk.log.close()


def test_a_partitions_folder_that_is_taken_away_is_missed_too(tmp_path: Path) -> None:
    root = tmp_path / "data"
    desk = Desk(LazyDisk(), root=root, checkpoint_bytes=1)
    desk.commit(0, 1)
    desk.later()
    shutil.rmtree(root / "__consumer_offsets-1")
    with capture_logs() as lines:
        desk.commit(0, 1)
        desk.later()
    assert [line["partition"] for line in lines] == ["__consumer_offsets-1"]
    assert "removed or moved" in lines[0]["reason"]
    desk.log.close()
