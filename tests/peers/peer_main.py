"""The main loop of a peer process. ``<library>_peer.py`` has the clients of each library.

It reads commands from standard input and prints events on standard output, both as JSON lines (see ``peer.py``). At the
end of the input the process closes its client and ends, so no peer outlives its test.
"""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any, Protocol

POLL_S = 0.1
# A member learns of a rebalance by a heartbeat, so frequent heartbeats make the tests short.
HEARTBEAT_INTERVAL_MS = 300
AUTO_COMMIT_INTERVAL_MS = 500
PARTITIONS_PER_TOPIC = 6

Command = dict[str, Any]


class PeerClient(Protocol):
    """The interface of a library's client. ``poll`` is called in a loop; commands call methods by name."""

    def poll(self) -> None: ...

    def close(self) -> None: ...


class Role(Protocol):
    def __call__(self, options: SimpleNamespace) -> PeerClient: ...


def print_event(event: str, **fields: Any) -> None:
    """Print an event and flush it, so that a kill does not lose it."""
    print(json.dumps({"event": event, **fields}), flush=True)


def print_record(
    partition: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes]],
) -> None:
    """Print that the application received a record."""
    named = [[name, content.hex()] for name, content in headers]
    print_event("record", partition=partition, offset=offset, key=to_hex(key), value=to_hex(value), headers=named)


def to_hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def from_hex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


class AssignmentWatch:
    """Prints the assignment when it has changed."""

    def __init__(self) -> None:
        self._last: list[int] | None = None

    def update(self, partitions: Iterable[int]) -> None:
        current = sorted(partitions)
        if current != self._last:
            self._last = current
            print_event("assignment", partitions=current)


class CommandClient:
    """Base class of a client that only answers commands."""

    def poll(self) -> None:
        """Does nothing."""


def run_peer(roles: Mapping[str, Role]) -> None:
    """Run the role that the command line names until the input ends."""
    commands: SimpleQueue[Command | None] = SimpleQueue()
    threading.Thread(target=_read_commands, args=(commands,), daemon=True).start()
    client = roles[sys.argv[1]](SimpleNamespace(**json.loads(sys.argv[2])))
    try:
        while _run_next_command(client, commands):
            client.poll()
    finally:
        client.close()
    print_event("closed")


def _read_commands(commands: SimpleQueue[Command | None]) -> None:
    for line in sys.stdin:
        commands.put(json.loads(line))
    commands.put(None)


def _run_next_command(client: PeerClient, commands: SimpleQueue[Command | None]) -> bool:
    """Run the next command, if any. False at the end of the input. Waits only if the client has nothing to poll."""
    try:
        command = commands.get(timeout=POLL_S) if isinstance(client, CommandClient) else commands.get_nowait()
    except Empty:
        return True
    if command is None:
        return False
    _run_command(client, command)
    return True


def _run_command(client: PeerClient, command: Command) -> None:
    # An error of the library is sent as the answer; the test decides whether it was expected.
    try:
        print_event("answer", id=command["id"], result=getattr(client, command["do"])(**command["arguments"]))
    except Exception as error:
        traceback.print_exc()
        print_event("answer", id=command["id"], error=f"{type(error).__name__}: {error}")
