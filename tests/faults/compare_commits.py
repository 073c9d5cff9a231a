"""``python -m faults.compare_commits PYTHON``: a single node of this commit and one of another, under the same load.

``PYTHON``: the interpreter of the other checkout's environment. Heartbeats and durable commits are sent to both in
turns; the order changes from round to round.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from callboard.bench.load_generator import COMMITS, HEARTBEATS
from callboard.bench.workers import IN_FLIGHT, ONE, load_of, rows_of, serving

THIS = "this commit"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m faults.compare_commits", description=__doc__)
    parser.add_argument("python", metavar="PYTHON")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each run")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--connections", type=int, default=50)
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        servers = {
            ONE: stack.enter_context(serving(0, options.python)),
            THIS: stack.enter_context(serving(0)),
        }
        loads = {name: stack.enter_context(load_of(server, options.connections)) for name, server in servers.items()}
        for in_flight in IN_FLIGHT:
            for requests in (HEARTBEATS, COMMITS):
                _, row = rows_of(loads, requests, in_flight, options)
                print(
                    f"{requests}, {in_flight} in flight: {row.least_cpu_us:.1f} us of CPU, to the other commit's "
                    f"{row.least_ratio:.2f} (least) and {row.ratio:.2f} (median)",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
