"""``callboard bench [NAME ...]``: runs a benchmark by its name, or lists all of them.

A benchmark is a module with ``main(argv) -> exit code`` and an entry here. Its module is imported when it is run, so
that listing is fast.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from callboard.actors.text import did_you_mean
from callboard.runtime.common.printing import print_error

BENCHES = {
    "server": "heartbeats and durable commits per second over TCP, compared with a minimal server",
    "profile": "where the time of a heartbeat or a commit goes: a table and a flame graph",
    "overload": "twice the requests that the server can handle: sessions, commits and latencies",
    "kafka": "heartbeats and commits compared with a Kafka on the same machine: rates, latencies and CPU time",
    "workers": "CPU time of a request to serve --workers, compared with one process",
    "commit": "cost of durability: group commit compared with one sync per commit, and with no sync",
    "start": "time until a coordinator is ready on an empty folder, as a process and embedded",
    "groups": "memory of many groups, passivated and active",
    "page": "time of a page of the HTTP API for every order and filter, and of heartbeats meanwhile",
    "members": "time that a group of many members takes to join, sync and rebalance",
    "reconnect": "how long heartbeats wait while many clients with TLS connect at once",
    "hostile": "how long heartbeats wait while another client sends very large requests",
    "memory": "memory of a server that clients fill, compared with memory_limit_bytes",
    "load": "loading one partition of the log, with and without numpy, compared with reading its file",
    "compact": "compaction of the log by one process, two, and Spark, compared with copying its files",
    "embed": "durable commits in process compared with TCP; thousands of members on one event loop",
    "concurrency": "one coordinator serialised by actors, by locks and by event loops; writes a report",
    "cluster": "a cluster's commits compared with the local journal, a takeover of many groups, idle nodes",
    "actors": "actors compared with asyncio tasks and queues, pykka's threads and a bare deque",
    "recorder": "what the flight recorder takes in the turns of a group, for a rebalance and for each member",
    "timers": "deadlines on the timing wheel, compared with a heap, sorted buckets and asyncio",
}

MODULES = {"load": "loading"}
"""Benchmarks whose module has a different name."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark named first in ``argv`` with the remaining arguments; returns the exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        _list()
        return 0
    name, *bench_arguments = arguments
    if name not in BENCHES:
        print_error(
            f"there is no benchmark '{name}':{did_you_mean(name, BENCHES)} expected one of {', '.join(BENCHES)}"
        )
        return 2
    code: int = import_module(f"callboard.bench.{MODULES.get(name, name)}").main(bench_arguments)
    return code


def _list() -> None:
    print("usage: callboard bench NAME [OPTIONS]   (NAME --help lists the options)\n")
    for name, purpose in BENCHES.items():
        print(f"  {name:<13}{purpose}")


if __name__ == "__main__":
    raise SystemExit(main())
