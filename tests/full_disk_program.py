"""The part of ``test_log_full_disk.py`` that runs in a mount namespace of its own, where a folder is a small tmpfs.

Argument: that folder. A server is started there, the disk is filled, freed, and the server killed; what was answered
goes to standard output as one JSON line.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

from crash_client import become_member
from peers.server import ServerProcess
from peers.waiting import wait_until
from peers.wire import Wire

METADATA = "m" * 4000  # so that few commits fill what the journal has allocated ahead
COMMITS_MAX = 5000
BLOCK = bytes(4096)


def commit(wire: Wire, offset: int) -> str:
    part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": METADATA}
    topics = [{"name": "t", "partitions": [part]}]
    values = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
    answer: Any = wire.ask("offset_commit", 8, **values)
    code: str = answer["topics"][0]["partitions"][0]["error_code"]
    return code


def committed(wire: Wire) -> Any:
    topics = [{"name": "t", "partition_indexes": [0]}]
    answer: Any = wire.ask("offset_fetch", 5, group_id="g", topics=topics)
    return answer["topics"][0]["partitions"][0]["committed_offset"]


def fill(path: Path) -> None:
    """Take every free byte."""
    with path.open("ab", buffering=0) as ballast, contextlib.suppress(OSError):
        while ballast.write(BLOCK):
            pass


def run(folder: Path) -> dict[str, Any]:
    offsets = count(1)
    said: dict[str, Any] = {}
    ballast = folder / "ballast"
    server = ServerProcess(Path(tempfile.mkdtemp()), options=("--topic", "t:1"))  # what it says needs room, too
    server.data = folder / "data"
    with server, Wire(server.host, server.port) as wire:
        member = become_member(wire, "members")
        stored = next(offsets)
        said["before"] = commit(wire, stored)
        fill(ballast)
        for offset in offsets:
            said["full"] = commit(wire, offset)
            if said["full"] != "NONE" or offset > COMMITS_MAX:
                break
            stored = offset
        beat: Any = wire.ask(
            "heartbeat", 3, group_id=member.group, generation_id=member.generation, member_id=member.member
        )
        said["heartbeat"] = beat["error_code"]
        said["read"] = committed(wire) == stored
        ballast.unlink()
        stored = next(offsets)
        wait_until(lambda: commit(wire, stored), lambda error: error == "NONE", "room")
        said["log"] = [line for line in server.log().splitlines() if "room" in line]
        server.kill()
        server.start()
        with Wire(server.host, server.port) as again:
            said["after_kill"] = committed(again) == stored
        said["exit_code"] = server.stop()
        said["start"] = start_when_full(server, ballast, stored)
    return said


def start_when_full(server: ServerProcess, ballast: Path, stored: int) -> dict[str, Any]:
    """After a clean stop: what a server that starts without a free byte says, and when there is room again."""
    said: dict[str, Any] = {}
    fill(ballast)
    server.start()
    with Wire(server.host, server.port) as wire:
        said["read"] = committed(wire) == stored
        said["full"] = commit(wire, stored + 1)
        ballast.unlink()
        wait_until(lambda: commit(wire, stored + 2), lambda error: error == "NONE", "room")
    said["exit_code"] = server.stop()
    return said


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]))), flush=True)
