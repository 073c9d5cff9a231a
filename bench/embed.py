"""``callboard bench embed``: compares members in the coordinator's process with members over TCP.

- Commits per second: the same number of members, each with its own shard, commit as fast as possible. In process they
  share an event loop with the coordinator; over TCP the server is ``callboard serve``, and the members run in another
  process. Both are durable (``sync="always"``), on the same disk, and alternate.
- Thousands of members on one loop with one coordinator, each in a group of its own: the time until all have an
  assignment, the CPU time of heartbeats, and memory.

The garbage collector has the thresholds that ``serve`` sets, since a full collection visits every object of every
member; a program with thousands of members should set them too. Each measurement runs in a new process.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from callboard.bench.harness import (
    BenchError,
    MedianAndSpread,
    add_output,
    machine,
    numbers,
    print_table,
    process_cpu_s,
    ratios,
    resident_bytes,
    run_once,
    summarise,
    write_json,
)
from callboard.bench.serving import callboard_server
from callboard.runtime.cli.serve import GC_THRESHOLDS
from callboard.runtime.embed.coordinator import Coordinator
from callboard.runtime.member.connect import connect
from callboard.runtime.member.member import Member
from callboard.runtime.member.shards import Shard

PURPOSE = "Compare durable commits in process and over TCP, and measure thousands of members on one loop."
AIM = 5.0
CHILD_TIMEOUT_S = 600.0
MEMBERS_SESSION_MS = 30_000
BEATING_S = 12.0  # two heartbeats of each member
LOCAL, TCP = "in process", "over TCP"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the JSON; 1 if something did not run."""
    options = _options(argv)
    if options.child is not None:
        print(json.dumps(CHILDREN[options.child](options)), flush=True)
        return 0
    try:
        results = run(options)
    except (BenchError, OSError) as error:
        print(f"embed: {error}", file=sys.stderr)
        return 1
    show(options, results)
    if options.output is not None:
        write_json(options.output, {"machine": machine(), **results})
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="callboard bench embed", description=PURPOSE)
    parser.add_argument("--seconds", type=float, metavar="SECONDS", default=3.0, help="seconds of each run (default 3)")
    parser.add_argument("--rounds", type=int, metavar="N", default=3, help="runs of each kind (default 3)")
    parser.add_argument(
        "--committers", type=numbers, metavar="N,N", default=[1, 50, 500], help="numbers of committing members"
    )
    parser.add_argument("--members", type=int, metavar="N", default=10_000, help="members on one loop (default 10000)")
    parser.add_argument(
        "--heartbeat-seconds", type=float, metavar="SECONDS", default=BEATING_S, help="seconds of heartbeats to measure"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder on the disk to measure (default: here)")
    add_output(parser)
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    for name in ("seconds", "rounds", "members", "heartbeat_seconds"):
        if getattr(options, name) <= 0:
            parser.error(f"--{name.replace('_', '-')} {getattr(options, name)}: expected more than 0")
    return options


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Raises BenchError."""
    parent = options.data or Path.cwd()
    commits = [compare(options, parent, committers) for committers in options.committers]
    return {"commits": commits, "members": _child(options, "members", options.members)}


def compare(options: argparse.Namespace, parent: Path, committers: int) -> dict[str, Any]:
    """Measure both ways alternately."""
    rates: dict[str, list[float]] = {LOCAL: [], TCP: []}
    cpu: dict[str, list[float]] = {LOCAL: [], TCP: []}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory(dir=parent) as data:
            local = _child(options, "local", committers, "--data", data)
        with callboard_server() as server:
            before_s = process_cpu_s(server.pid) or 0.0
            tcp = _child(options, "tcp", committers, "--address", server.address)
            tcp["cpu_s"] += (process_cpu_s(server.pid) or 0.0) - before_s
        for kind, result in ((LOCAL, local), (TCP, tcp)):
            rates[kind].append(result["commits"] / result["seconds"])
            cpu[kind].append(result["cpu_s"] / result["commits"])
    ratio = ratios(rates[LOCAL], rates[TCP])
    return {"committers": committers, "rates": rates, "cpu_s": cpu, "ratio": ratio.median, "spread": ratio.spread}


def _child(options: argparse.Namespace, kind: str, members: int, *extra: str) -> dict[str, Any]:
    arguments = ["-m", "callboard.bench", "embed", "--child", kind, "--members", str(members), *extra]
    arguments += ["--seconds", str(options.seconds), "--heartbeat-seconds", str(options.heartbeat_seconds)]
    return run_once(arguments, f"embed {kind}", CHILD_TIMEOUT_S)


# In a child ----------------------------------------------------------------------------------------------------------


def local(options: argparse.Namespace) -> dict[str, Any]:
    """Commits of members in the coordinator's process."""

    async def measure() -> dict[str, Any]:
        async with Coordinator(options.data, group_initial_rebalance_delay_ms=0) as coordinator:
            return await commit_all(coordinator.member, options.members, options.seconds)

    return _run(measure())


def tcp(options: argparse.Namespace) -> dict[str, Any]:
    """Commits of members in this process, to a server in another one."""

    async def measure() -> dict[str, Any]:
        async with connect(options.address) as coordinator:
            return await commit_all(coordinator.member, options.members, options.seconds)

    return _run(measure())


def _run(measure: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """Run on asyncio's default loop, with the thresholds of garbage collection that ``serve`` sets."""
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    return asyncio.run(measure)


async def commit_all(make: Callable[..., Member], members: int, seconds: float) -> dict[str, Any]:
    """Each member, in a group of its own, commits again as soon as its commit is done."""
    async with AsyncExitStack() as stack:
        shards = await start_members(stack, make, members)
        started, cpu_s = time.perf_counter(), time.process_time()
        until = started + seconds
        counts = await asyncio.gather(*(commit_until(shard, until) for shard in shards))
        elapsed_s = time.perf_counter() - started
        cpu_s = time.process_time() - cpu_s
    return {"commits": sum(counts), "seconds": elapsed_s, "cpu_s": cpu_s}


async def commit_until(shard: Shard, until: float) -> int:
    count = 0
    while time.perf_counter() < until:
        count += 1
        await shard.commit(count)
    return count


async def start_members(
    stack: AsyncExitStack, make: Callable[..., Member], members: int, **options: Any
) -> list[Shard]:
    """One shard for each member, all in groups of their own."""
    group_members = [make(f"group-{number}", resources={"jobs": 1}, **options) for number in range(members)]

    async def enter(member: Member) -> Shard:
        await stack.enter_async_context(member)
        return (await member.next_assignment()).shards[0]

    waiting: list[Awaitable[Shard]] = [enter(member) for member in group_members]
    return list(await asyncio.gather(*waiting))


def members(options: argparse.Namespace) -> dict[str, Any]:
    """Members and their coordinator on one loop."""

    async def measure() -> dict[str, Any]:
        async with Coordinator(group_initial_rebalance_delay_ms=0) as coordinator, AsyncExitStack() as stack:
            bytes_before = _resident_bytes()
            started = time.perf_counter()
            shards = await start_members(
                stack, coordinator.member, options.members, session_timeout_ms=MEMBERS_SESSION_MS
            )
            settled_s = time.perf_counter() - started
            bytes_used = _resident_bytes() - bytes_before
            started, cpu_s = time.perf_counter(), time.process_time()
            await asyncio.sleep(options.heartbeat_seconds)
            elapsed_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu_s
            lost_count = sum(shard.is_revoked for shard in shards)
            started = time.perf_counter()
        return {
            "members": options.members,
            "settled_s": settled_s,
            "cpu_a_second": cpu_s / elapsed_s,
            "bytes_a_member": bytes_used / options.members,
            "lost": lost_count,
            "left_s": time.perf_counter() - started,
            "interval_s": MEMBERS_SESSION_MS / 5000,
        }

    return _run(measure())


def _resident_bytes() -> int:
    return resident_bytes(os.getpid()) or 0


CHILDREN: Mapping[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "local": local,
    "tcp": tcp,
    "members": members,
}


# Output ---------------------------------------------------------------------------------------------------------------


def show(options: argparse.Namespace, results: Mapping[str, Any]) -> None:
    """Print the tables."""
    rows = []
    for comparison in results["commits"]:
        for kind in (LOCAL, TCP):
            rate, cpu = summarise(comparison["rates"][kind]), summarise(comparison["cpu_s"][kind])
            ratio = f"{comparison['ratio']:.1f}" if kind == LOCAL else ""
            rows.append(
                [f"{comparison['committers']} members, {kind}", _figure(rate), f"{cpu.median * 1e6:,.0f}", ratio]
            )
    notes = [
        f"{options.rounds} rounds of {options.seconds:g} s; ratio: the median of the rounds' ratios; target: {AIM:g}"
    ]
    print_table("Durable commits", ["", "commits/s", "CPU us per commit", "ratio"], rows, notes)
    members = results["members"]
    print_table(
        f"{members['members']:,} members on one loop, each in a group of its own",
        ["", "measured"],
        [
            ["seconds until all have an assignment", f"{members['settled_s']:.1f}"],
            [
                f"CPU, of one processor, with heartbeats every {members['interval_s']:g} s",
                f"{members['cpu_a_second']:.1%}",
            ],
            ["bytes per member, including its group in the coordinator", f"{members['bytes_a_member']:,.0f}"],
            ["shards lost during this", str(members["lost"])],
            ["seconds until all have left", f"{members['left_s']:.1f}"],
        ],
        [],
    )


def _figure(measured: MedianAndSpread) -> str:
    return f"{measured.median:,.0f} ±{measured.spread / 2:.0%}"
