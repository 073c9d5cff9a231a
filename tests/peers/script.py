"""A peer's own side: the loop of a client process. What it does with its library stands in ``<library>_peer.py``.

It takes commands from standard input and says events on standard output, both as JSON lines (see ``stage.py``). When
the input ends, the process closes its client in order and ends; so no peer outlives the test that started it.
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
# Members hear of a rebalance with a heartbeat, so often ones make short tests, whatever the session timeout is.
HEARTBEAT_INTERVAL_MS = 300
PARTITIONS_PER_TOPIC = 6

Command = dict[str, Any]


class Part(Protocol):
    """What a library's side has to offer. ``turn`` is called without end; commands call methods by name."""

    def turn(self) -> None: ...

    def close(self) -> None: ...


class Role(Protocol):
    def __call__(self, options: SimpleNamespace) -> Part: ...


def say(event: str, **fields: Any) -> None:
    """Print one event at once: what was said survives a kill."""
    print(json.dumps({"event": event, **fields}), flush=True)


def say_record(
    partition: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes]],
) -> None:
    """Say that the application received a record."""
    named = [[name, content.hex()] for name, content in headers]
    say("record", partition=partition, offset=offset, key=to_hex(key), value=to_hex(value), headers=named)


def to_hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def from_hex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


class AssignmentWatch:
    """Says the assignment when it is another one than before."""

    def __init__(self) -> None:
        self._last: list[int] | None = None

    def see(self, partitions: Iterable[int]) -> None:
        now = sorted(partitions)
        if now != self._last:
            self._last = now
            say("assignment", partitions=now)


class Backstage:
    """The base of a part that only answers commands."""

    def turn(self) -> None:
        """Nothing to do between commands."""


def play(roles: Mapping[str, Role]) -> None:
    """Run the role that the command line names until the input ends."""
    commands: SimpleQueue[Command | None] = SimpleQueue()
    threading.Thread(target=_read_commands, args=(commands,), daemon=True).start()
    part = roles[sys.argv[1]](SimpleNamespace(**json.loads(sys.argv[2])))
    try:
        while _obey(part, commands):
            part.turn()
    finally:
        part.close()
    say("closed")


def _read_commands(commands: SimpleQueue[Command | None]) -> None:
    for line in sys.stdin:
        commands.put(json.loads(line))
    commands.put(None)


def _obey(part: Part, commands: SimpleQueue[Command | None]) -> bool:
    """Run what was asked; False at the end of the input. Only a part without turns of its own waits for commands."""
    try:
        command = commands.get(timeout=POLL_S) if isinstance(part, Backstage) else commands.get_nowait()
    except Empty:
        return True
    if command is None:
        return False
    _answer(part, command)
    return True


def _answer(part: Part, command: Command) -> None:
    # Whatever the library raises is the answer; the test decides whether it was expected.
    try:
        say("answer", id=command["id"], result=getattr(part, command["do"])(**command["arguments"]))
    except Exception as error:
        traceback.print_exc()
        say("answer", id=command["id"], error=f"{type(error).__name__}: {error}")
