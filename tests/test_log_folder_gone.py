"""The data folder is moved away under a running server: it says so, keeps nothing that nobody would find, and ends with
an exit code that is no success."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crash_client import become_member
from full_disk_program import commit, committed
from peers.server import ServerProcess
from peers.waiting import wait_until
from peers.wire import Wire


def test_a_server_whose_folder_is_moved_away(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, options=("--topic", "t:1")) as server:
        with Wire(server.host, server.port) as wire:
            member = become_member(wire, "members")
            assert commit(wire, 1) == "NONE"
            server.data.rename(tmp_path / "elsewhere")
            offsets = iter(range(2, 10**9))
            told = wait_until(lambda: commit(wire, next(offsets)), lambda error: error != "NONE", "a refusal")
            assert told == "NOT_COORDINATOR"
            beat: Any = wire.ask(
                "heartbeat", 3, group_id=member.group, generation_id=member.generation, member_id=member.member
            )
            assert beat["error_code"] == "NONE"
            last = next(offsets) - 2
            assert committed(wire) == last
        assert "it was removed or moved while the log was open" in server.log()
        assert server.stop() == 3
        assert "stopped, after its log had failed" in server.log()
        (tmp_path / "elsewhere").rename(server.data)
        server.start()
        with Wire(server.host, server.port) as wire:
            assert committed(wire) == last
            assert commit(wire, last + 1) == "NONE"
        assert server.stop() == 0
