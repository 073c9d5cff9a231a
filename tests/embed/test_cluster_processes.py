"""Three processes, each with a coordinator of one cluster and members. One is killed; the others do its work."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import callboard

PROGRAM = Path(__file__).with_name("cluster_worker_program.py")
GROUPS = 6
SHARDS = 6
DEADLINE_S = 120.0


class Line(NamedTuple):
    kind: str
    time_ns: int
    shard: str
    token: int
    worker: str
    offset: int


class Workers:
    """``processes`` by name. They write to one file."""

    def __init__(self, folder: Path) -> None:
        (folder / "store").mkdir()
        self.url = (folder / "store").as_uri()
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self._folder = folder
        self._file = folder / "steps"

    def start(self, name: str) -> None:
        arguments = [sys.executable, str(PROGRAM), self.url, name, str(self._file), str(GROUPS), str(SHARDS)]
        with (self._folder / f"{name}.log").open("w") as log:
            self.processes[name] = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=log, text=True)
        output = self.processes[name].stdout
        assert output is not None
        assert output.readline() == "ready\n", (self._folder / f"{name}.log").read_text()

    def lines(self) -> list[Line]:
        """A process that is killed may leave half a line."""
        lines: list[Line] = []
        for text in self._file.read_text().splitlines() if self._file.exists() else ():
            kind, time_ns, shard, token, worker, offset = text.split()
            lines.append(Line(kind, int(time_ns), shard, int(token), worker, int(offset)))
        return lines

    def wait(self, condition: Callable[[list[Line]], bool]) -> list[Line]:
        deadline_s = time.monotonic() + DEADLINE_S
        while not condition(lines := self.lines()):
            assert time.monotonic() < deadline_s, lines[-50:]
            assert [name for name, process in self.processes.items() if process.poll() is not None] == []
            time.sleep(0.1)
        return lines

    def end(self, name: str, number: signal.Signals) -> int:
        process = self.processes.pop(name)
        process.send_signal(number)
        code = process.wait(DEADLINE_S)
        assert process.stdout is not None
        process.stdout.close()
        return code


@contextmanager
def three_workers(folder: Path) -> Iterator[Workers]:
    workers = Workers(folder)
    try:
        for name in ("web-1", "web-2", "web-3"):
            workers.start(name)
        yield workers
    finally:
        for name in list(workers.processes):
            workers.end(name, signal.SIGKILL)


def acknowledged(lines: list[Line], since_ns: int = 0) -> dict[str, str]:
    """Who has committed to each shard last."""
    return {line.shard: line.worker for line in lines if line.kind == "ack" and line.time_ns > since_ns}


def check_owners(lines: list[Line]) -> None:
    """Each shard has one owner at a time, and the next one begins where the last one stopped."""
    owners: dict[str, tuple[int, str]] = {}
    offsets: dict[str, int] = {}
    for line in sorted(lines, key=lambda line: line.time_ns):
        owner = line.token, line.worker
        last = owners.get(line.shard, owner)
        if line.kind == "ack":
            offsets[line.shard] = max(line.offset, offsets.get(line.shard, 0))
            continue
        assert line.token > last[0] or owner == last, f"{line} after {last}"
        assert line.offset >= offsets.get(line.shard, 0), f"{line} after {offsets[line.shard]} was acknowledged"
        owners[line.shard] = owner


def test_work_goes_on_after_kill_9_and_nothing_is_lost(tmp_path: Path) -> None:
    with three_workers(tmp_path) as workers:
        count = GROUPS * SHARDS
        names = set(workers.processes)
        workers.wait(lambda lines: len(acknowledged(lines)) == count and set(acknowledged(lines).values()) == names)
        workers.end("web-1", signal.SIGKILL)
        killed_ns = time.monotonic_ns()
        others = names - {"web-1"}
        workers.wait(lambda lines: set(acknowledged(lines, killed_ns).values()) == others)
        workers.wait(lambda lines: len(acknowledged(lines, killed_ns)) == count)
        assert [workers.end(name, signal.SIGTERM) for name in sorted(others)] == [0, 0]
        lines = workers.lines()
        check_owners(lines)
        last = {line.shard: line.offset for line in sorted(lines, key=lambda line: line.offset) if line.kind == "ack"}
        stored = asyncio.run(committed(workers.url))
        assert stored.keys() == last.keys()
        begun = {
            line.shard: line.offset + 1 for line in sorted(lines, key=lambda line: line.offset) if line.kind == "step"
        }
        wrong = {shard for shard in last if not last[shard] <= stored[shard] <= begun[shard]}
        assert wrong == set()  # a commit that was not answered may be stored


async def committed(url: str) -> dict[str, int]:
    """By a node that starts when all others have stopped."""
    async with callboard.Coordinator(cluster=url) as coordinator:
        offsets: dict[str, int] = {}
        for listed in (await coordinator.groups()).groups:
            for (_, number), committed in (await coordinator.offsets(listed.group_id)).items():
                offsets[f"{listed.group_id}/{number}"] = committed.offset
        return offsets
