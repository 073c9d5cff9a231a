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
from callboard.bench.harness import (
    BenchError,
    MedianAndSpread,
    Server,
    add_output,
    machine,
    print_table,
    summarise,
    write_json,
)

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
    summaries = {kind: summarise([1000 * seconds for seconds in times_s]) for kind, times_s in times.items()}
    _show(summaries, options.rounds)
    if options.output is not None:
        write_json(options.output, {"machine": machine(), "rounds": options.rounds, "ms": _to_json(summaries)})
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="callboard bench start", description=PURPOSE)
    parser.add_argument("--rounds", type=int, metavar="N", default=7, help="starts of each kind (default 7)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder for the data folders (default: here)")
    add_output(parser)
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
        seconds_by_kind: dict[str, float] = {}
        with tempfile.TemporaryDirectory(prefix="start-", dir=parent) as folder:
            _processes(Path(folder), seconds_by_kind)
            asyncio.run(_embedded(Path(folder), seconds_by_kind))
        _thread(seconds_by_kind)
        if number:
            for kind, seconds in seconds_by_kind.items():
                times.setdefault(kind, []).append(seconds)
    return times


def _processes(folder: Path, seconds_by_kind: dict[str, float]) -> None:
    started_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import asyncio"], check=True)
    seconds_by_kind[BARE] = time.perf_counter() - started_s
    arguments = ["-m", "callboard", "serve", "--listen", "127.0.0.1:0", "--data", str(folder / "server")]
    with Server(arguments, "callboard serve") as server:
        seconds_by_kind[SERVER] = server.ready_s


async def _embedded(folder: Path, seconds_by_kind: dict[str, float]) -> None:
    coordinator = Coordinator(folder / "embedded", "127.0.0.1:0")
    seconds_by_kind[FOLDER] = await _timed(coordinator.start)
    seconds_by_kind[FOLDER_STOP] = await _timed(coordinator.stop)
    coordinator = Coordinator()
    seconds_by_kind[MEMORY] = await _timed(coordinator.start)
    seconds_by_kind[MEMORY_STOP] = await _timed(coordinator.stop)
    coordinators = [Coordinator(listen="127.0.0.1:0") for _ in range(TOGETHER)]
    started_s = time.perf_counter()
    for coordinator in coordinators:
        await coordinator.start()
    seconds_by_kind[TEN] = time.perf_counter() - started_s
    for coordinator in coordinators:
        await coordinator.stop()


def _thread(seconds_by_kind: dict[str, float]) -> None:
    started_s = time.perf_counter()
    with Coordinator.in_thread():
        pass
    seconds_by_kind[THREAD] = time.perf_counter() - started_s


async def _timed(call: Callable[[], Awaitable[None]]) -> float:
    started_s = time.perf_counter()
    await call()
    return time.perf_counter() - started_s


class Aim(NamedTuple):
    """A kind, and its target in milliseconds."""

    kind: str
    most_ms: float


AIMS = (Aim(SERVER, 300), Aim(FOLDER, 100), Aim(MEMORY, 20))


def _show(summaries: Mapping[str, MedianAndSpread], rounds: int) -> None:
    rows = [[kind, f"{result.median:.1f}", f"{result.spread:.0%}"] for kind, result in summaries.items()]
    notes = [
        f"{aim.kind}: target at most {aim.most_ms:g} ms: "
        f"{'met' if summaries[aim.kind].median <= aim.most_ms else 'missed'}"
        for aim in AIMS
    ]
    print_table(f"median of {rounds} starts, after one warm-up", ("start of", "ms", "spread"), rows, notes)


def _to_json(summaries: Mapping[str, MedianAndSpread]) -> dict[str, float]:
    return {kind: result.median for kind, result in summaries.items()}


if __name__ == "__main__":
    raise SystemExit(main())
