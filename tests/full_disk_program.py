"""The part of ``test_log_full_disk.py`` that runs in a separate mount namespace, in which a folder is a small tmpfs.

Argument: that folder. The program starts a server, fills and frees the disk, kills the server, and prints the responses
as one JSON line.
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

METADATA = "m" * 4000  # so that a few commits fill the preallocated part of the journal
COMMITS_MAX = 5000
BLOCK = bytes(4096)


def commit(wire: Wire, offset: int) -> str:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": METADATA}
    topics = [{"name": "t", "partitions": [partition]}]
    values = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
    response: Any = wire.ask("offset_commit", 8, **values)
    code: str = response["topics"][0]["partitions"][0]["error_code"]
    return code


def committed(wire: Wire) -> Any:
    topics = [{"name": "t", "partition_indexes": [0]}]
    response: Any = wire.ask("offset_fetch", 5, group_id="g", topics=topics)
    return response["topics"][0]["partitions"][0]["committed_offset"]


def room_lines(server: ServerProcess) -> list[str]:
    """The lines of the server's log about the room on the disk."""
    return [line for line in server.log().splitlines() if "room" in line]


def fill(path: Path) -> None:
    """Fill the disk."""
    with path.open("ab", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(BLOCK):
            pass


def run(folder: Path) -> dict[str, Any]:
    offsets = count(1)
    results: dict[str, Any] = {}
    filler = folder / "filler"
    # The output of the server must not be on the full disk.
    server = ServerProcess(Path(tempfile.mkdtemp()), options=("--topic", "t:1"))
    server.data = folder / "data"
    with server, Wire(server.host, server.port) as wire:
        member = become_member(wire, "members")
        stored = next(offsets)
        results["before"] = commit(wire, stored)
        fill(filler)
        for offset in offsets:
            results["full"] = commit(wire, offset)
            if results["full"] != "NONE" or offset > COMMITS_MAX:
                break
            stored = offset
        heartbeat: Any = wire.ask(
            "heartbeat", 3, group_id=member.group, generation_id=member.generation, member_id=member.member
        )
        results["heartbeat"] = heartbeat["error_code"]
        results["read"] = committed(wire) == stored
        filler.unlink()
        stored = next(offsets)
        wait_until(lambda: commit(wire, stored), lambda error: error == "NONE", "room")
        # The journal accepts commits again before the partition files do; the log line comes when both have room.
        results["log"] = wait_until(lambda: room_lines(server), lambda lines: "again" in lines[-1], "the log line")
        server.kill()
        server.start()
        with Wire(server.host, server.port) as new_wire:
            results["after_kill"] = committed(new_wire) == stored
        results["exit_code"] = server.stop()
        results["start"] = start_when_full(server, filler, stored)
    return results


def start_when_full(server: ServerProcess, filler: Path, stored: int) -> dict[str, Any]:
    """The responses of a server that starts on a full disk after a clean stop, before and after space is freed."""
    results: dict[str, Any] = {}
    fill(filler)
    server.start()
    with Wire(server.host, server.port) as wire:
        results["read"] = committed(wire) == stored
        results["full"] = commit(wire, stored + 1)
        filler.unlink()
        wait_until(lambda: commit(wire, stored + 2), lambda error: error == "NONE", "room")
    results["exit_code"] = server.stop()
    return results


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]))), flush=True)
