"""``callboard bench profile``: where the time of a heartbeat or a commit goes, as a table and a flame graph.

py-spy reads the stacks of ``callboard serve`` from outside while the load generator keeps it busy, so the server runs
unchanged code. Only samples of the thread that holds the interpreter's lock count: that is the time that limits a
process. What the kernel does without the lock, such as waiting for the disk, is not in the picture.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from callboard.bench.flame_graph import Samples, flame_graph, package, parse_samples, shares
from callboard.bench.harness import BenchError, add_output, machine, print_table, write_json
from callboard.bench.load_connections import LoadResult
from callboard.bench.load_generator import COMMITS, HEARTBEATS, LoadProcess, group_names
from callboard.bench.serving import callboard_server

PURPOSE = "Show where the time of a heartbeat or a commit goes: a table, and a flame graph. Needs py-spy."
SCHEMA = 1
SAMPLES_A_SECOND = 200
WARM_UP_S = 0.5
ATTACH_S = 2.0  # for py-spy to begin
STOP_TIMEOUT_S = 60.0
TOP_FUNCTIONS = 12
PERMISSION_HINT = (
    "It must be allowed to read another process: root, CAP_SYS_PTRACE, or sysctl kernel.yama.ptrace_scope=0."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the tables, write JSON and flame graph; returns 1 if there is no py-spy or it fails."""
    options = _options(argv)
    try:
        samples, run = profile(options)
    except BenchError as error:
        print(f"profile: {error}", file=sys.stderr)
        return 1
    _show(options, samples, run)
    if options.output is not None:
        write_json(options.output, to_json(options, samples, run))
    if options.plot is not None:
        options.plot.write_text(flame_graph(samples, _title(options)))
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="callboard bench profile", description=PURPOSE)
    parser.add_argument(
        "--requests", choices=(HEARTBEATS, COMMITS), default=COMMITS, help="what is sent (default commits)"
    )
    parser.add_argument(
        "--in-flight", type=int, metavar="N", default=16, help="requests in flight on each connection (default 16)"
    )
    parser.add_argument("--connections", type=int, metavar="N", default=50)
    parser.add_argument("--seconds", type=float, metavar="SECONDS", default=10.0, help="of sampling (default 10)")
    add_output(parser)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the flame graph into this file, as SVG")
    options = parser.parse_args(argv)
    for name, least in (("in_flight", 1), ("connections", 1), ("seconds", 1)):
        if getattr(options, name) < least:
            parser.error(f"--{name.replace('_', '-')} {getattr(options, name)}: expected at least {least}")
    return options


def profile(options: argparse.Namespace) -> tuple[Samples, LoadResult]:
    """Samples of a server under load, and the load's figures. Raises BenchError."""
    program = py_spy()
    with (
        tempfile.TemporaryDirectory(prefix="bench-profile-") as folder,
        callboard_server() as server,
        LoadProcess(server.address, options.connections, group_names(options.connections), True, [server.pid]) as load,
    ):
        load.run(options.requests, options.in_flight, WARM_UP_S)
        output = Path(folder) / "stacks"
        command = [program, "record", "--pid", str(server.pid), "--duration", str(round(options.seconds)), "--gil"]
        command += ["--rate", str(SAMPLES_A_SECOND), "--format", "raw", "--nolineno", "--output", str(output)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as sampler:
            run = load.run(options.requests, options.in_flight, options.seconds + ATTACH_S)
            text, _ = sampler.communicate(timeout=STOP_TIMEOUT_S)
        load.verify()
        if sampler.returncode or not output.exists():
            raise BenchError(f"py-spy has failed. {PERMISSION_HINT} Its output: {text.strip() or '(none)'}")
        samples = parse_samples(output.read_text())
    if not samples:
        raise BenchError("py-spy has found no sample; give more --seconds")
    return samples, run


def py_spy() -> str:
    """The program: beside this Python, or on PATH. Raises BenchError."""
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise BenchError("it needs py-spy, which is not installed; run: pip install 'callboard[bench]'")
    return found


def _title(options: argparse.Namespace) -> str:
    return f"{options.requests} on {options.connections} connections, {options.in_flight} in flight on each"


def _show(options: argparse.Namespace, samples: Samples, run: LoadResult) -> None:
    packages = [[name, f"{share:.1%}"] for name, share in shares(samples, package)]
    functions = [[name, f"{share:.1%}"] for name, share in shares(samples, str)[:TOP_FUNCTIONS]]
    notes = [
        f"{sum(samples.values())} samples of the thread that holds the interpreter's lock. A function's share is that "
        "of its own code, with the system calls that it makes with the lock, but not that of functions that it calls.",
        f"While it was sampled, the server answered {run.answers / run.elapsed_s:,.0f} requests/s.",
    ]
    print_table(f"{_title(options)}: share of each package", ("package", "share"), packages, [], python="")
    print_table("The functions with the largest shares", ("function", "share"), functions, notes)


def to_json(options: argparse.Namespace, samples: Samples, run: LoadResult) -> dict[str, Any]:
    """The result for ``--output``. Shares are between 0 and 1."""
    return {
        "bench": "profile",
        "schema": SCHEMA,
        "machine": machine(),
        "requests": options.requests,
        "in_flight": options.in_flight,
        "connections": options.connections,
        "seconds": options.seconds,
        "samples": sum(samples.values()),
        "requests_per_s": run.answers / run.elapsed_s,
        "packages": dict(shares(samples, package)),
        "functions": dict(shares(samples, str)),
    }


if __name__ == "__main__":
    raise SystemExit(main())
