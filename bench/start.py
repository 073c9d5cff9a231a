"""``callboard bench start``: how long it takes until a coordinator is ready, on an empty folder, and until it is gone.

A server from the start of its process; coordinators in this process, with a folder and in memory, listening and not,
alone and ten at a time. Beside them, in the same rounds, a Python that imports asyncio and ends: what no program of
Python's can be faster than.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from callboard import Coordinator
from callboard.bench.harness import BenchError, Measured, Server, machine, print_table, summarise, write_json

PURPOSE = "Milliseconds until a coordinator is ready on an empty folder, as a process and embedded."
TOGETHER = 10
BARE = "python, import asyncio"
SERVER = "callboard serve, empty folder"
FOLDER, FOLDER_STOP = "Coordinator, empty folder, listening", "... and its stop"
MEMORY, MEMORY_STOP = "Coordinator in memory", "... and that one's stop"
TEN = f"{TOGETHER} Coordinators in memory, listening"
THREAD = "Coordinator.in_thread in memory, with its stop"

Times = dict[str, list[float]]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the JSON; 1 when a server did not start."""
    options = _options(argv)
    try:
        times = run(options.rounds, options.data or Path.cwd())
    except (BenchError, OSError) as error:
        print(f"start: {error}", file=sys.stderr)
        return 1
    found = {kind: summarise([1000 * seconds for seconds in taken]) for kind, taken in times.items()}
    _show(found, options.rounds)
    if options.json is not None:
        write_json(options.json, {"machine": machine(), "rounds": options.rounds, "ms": _plain(found)})
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="callboard bench start", description=PURPOSE)
    parser.add_argument("--rounds", type=int, default=7, help="starts of each kind (default 7)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="where folders are made (default: here)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument("--quick", action="store_true", help="one round, to see that it works")
    options = parser.parse_args(argv)
    options.rounds = 1 if options.quick else options.rounds
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: expected 1 or more")
    return options


def run(rounds: int, parent: Path) -> Times:
    """Seconds of each kind. The first round is not counted: it imports, and writes what Python keeps of it."""
    times: Times = {}
    for number in range(rounds + 1):
        found: dict[str, float] = {}
        with tempfile.TemporaryDirectory(prefix="start-", dir=parent) as folder:
            _processes(Path(folder), found)
            asyncio.run(_embedded(Path(folder), found))
        _thread(found)
        if number:
            for kind, seconds in found.items():
                times.setdefault(kind, []).append(seconds)
    return times


def _processes(folder: Path, found: dict[str, float]) -> None:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import asyncio"], check=True)
    found[BARE] = time.perf_counter() - began
    arguments = ["-m", "callboard", "serve", "--listen", "127.0.0.1:0", "--data", str(folder / "server")]
    with Server(arguments, "callboard serve") as server:
        found[SERVER] = server.ready_s


async def _embedded(folder: Path, found: dict[str, float]) -> None:
    one = Coordinator(folder / "embedded", "127.0.0.1:0")
    found[FOLDER] = await _timed(one.start)
    found[FOLDER_STOP] = await _timed(one.stop)
    one = Coordinator()
    found[MEMORY] = await _timed(one.start)
    found[MEMORY_STOP] = await _timed(one.stop)
    many = [Coordinator(listen="127.0.0.1:0") for _ in range(TOGETHER)]
    began = time.perf_counter()
    for one in many:
        await one.start()
    found[TEN] = time.perf_counter() - began
    for one in many:
        await one.stop()


def _thread(found: dict[str, float]) -> None:
    began = time.perf_counter()
    with Coordinator.in_thread():
        pass
    found[THREAD] = time.perf_counter() - began


async def _timed(call: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await call()
    return time.perf_counter() - began


class Aim(NamedTuple):
    """A kind, and how many milliseconds it may take."""

    kind: str
    most_ms: float


AIMS = (Aim(SERVER, 300), Aim(FOLDER, 100), Aim(MEMORY, 20))


def _show(found: Mapping[str, Measured], rounds: int) -> None:
    rows = [[kind, f"{one.median:.1f}", f"{one.spread:.0%}"] for kind, one in found.items()]
    notes = [
        f"{aim.kind}: aim at most {aim.most_ms:g} ms: {'met' if found[aim.kind].median <= aim.most_ms else 'missed'}"
        for aim in AIMS
    ]
    print_table(f"median of {rounds} starts, after one that imports", ("what", "ms", "spread"), rows, notes)


def _plain(found: Mapping[str, Measured]) -> dict[str, float]:
    return {kind: one.median for kind, one in found.items()}


if __name__ == "__main__":
    raise SystemExit(main())
