"""``callboard bench start``: the time until a coordinator is ready on an empty folder, and until it has stopped.

Measures a server from the start of its process, and coordinators in this process: with a folder and in memory,
listening and not, one and ten. The baseline is a Python process that imports asyncio and ends.
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
from callboard.bench.harness import BenchError, MedianAndSpread, Server, machine, print_table, summarise, write_json

PURPOSE = "Milliseconds until a coordinator is ready on an empty folder, as a process and embedded."
TOGETHER = 10
BARE = "python, import asyncio"
SERVER = "callboard serve, empty folder"
FOLDER, FOLDER_STOP = "Coordinator, empty folder, listening", "... stop"
MEMORY, MEMORY_STOP = "Coordinator in memory", "... stop, in memory"
TEN = f"{TOGETHER} Coordinators in memory, listening"
THREAD = "Coordinator.in_thread in memory, with its stop"

Times = dict[str, list[float]]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the JSON; 1 if a server did not start."""
    options = _options(argv)
    try:
        times = run(options.rounds, options.data or Path.cwd())
    except (BenchError, OSError) as error:
        print(f"start: {error}", file=sys.stderr)
        return 1
    found = {kind: summarise([1000 * seconds for seconds in taken]) for kind, taken in times.items()}
    _show(found, options.rounds)
    if options.json is not None:
        write_json(options.json, {"machine": machine(), "rounds": options.rounds, "ms": _to_json(found)})
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="callboard bench start", description=PURPOSE)
    parser.add_argument("--rounds", type=int, default=7, help="starts of each kind (default 7)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder for the data folders (default: here)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument("--quick", action="store_true", help="one round, as a smoke test")
    options = parser.parse_args(argv)
    options.rounds = 1 if options.quick else options.rounds
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: expected 1 or more")
    return options


def run(rounds: int, parent: Path) -> Times:
    """Seconds of each kind. The first round is not counted, since it imports modules and writes bytecode."""
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
    coordinator = Coordinator(folder / "embedded", "127.0.0.1:0")
    found[FOLDER] = await _timed(coordinator.start)
    found[FOLDER_STOP] = await _timed(coordinator.stop)
    coordinator = Coordinator()
    found[MEMORY] = await _timed(coordinator.start)
    found[MEMORY_STOP] = await _timed(coordinator.stop)
    many = [Coordinator(listen="127.0.0.1:0") for _ in range(TOGETHER)]
    began = time.perf_counter()
    for coordinator in many:
        await coordinator.start()
    found[TEN] = time.perf_counter() - began
    for coordinator in many:
        await coordinator.stop()


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
    """A kind, and its target in milliseconds."""

    kind: str
    most_ms: float


AIMS = (Aim(SERVER, 300), Aim(FOLDER, 100), Aim(MEMORY, 20))


def _show(found: Mapping[str, MedianAndSpread], rounds: int) -> None:
    rows = [[kind, f"{result.median:.1f}", f"{result.spread:.0%}"] for kind, result in found.items()]
    notes = [
        f"{aim.kind}: target at most {aim.most_ms:g} ms: {'met' if found[aim.kind].median <= aim.most_ms else 'missed'}"
        for aim in AIMS
    ]
    print_table(f"median of {rounds} starts, after one warm-up", ("start of", "ms", "spread"), rows, notes)


def _to_json(found: Mapping[str, MedianAndSpread]) -> dict[str, float]:
    return {kind: result.median for kind, result in found.items()}


if __name__ == "__main__":
    raise SystemExit(main())
