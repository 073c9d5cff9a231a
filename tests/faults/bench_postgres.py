"""``python -m faults.bench_postgres PART [OPTIONS]``: ``callboard bench cluster`` on private servers of PostgreSQL.

For commits there are two: one alone, and one with a synchronous standby on the same disk.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from cluster.postgres_server import PostgresServer

from callboard.bench.cluster import main as bench
from callboard.bench.harness import BenchError
from callboard.bench.workers import main as bench_workers

STANDBY = "standby"
WORKERS = "workers"

Rows = Sequence[Mapping[str, Any]]


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == [WORKERS]:
        return bench_workers(arguments[1:])
    with ExitStack() as stack:
        urls = [stack.enter_context(PostgresServer()).url()]
        if arguments[:1] == ["commits"]:
            urls.append(_with_standby(stack).url())
        options = [option for url in urls for option in ("--cluster", url)]
        return bench([*options, "--measure", *arguments])


def _with_standby(stack: ExitStack) -> PostgresServer:
    primary = stack.enter_context(PostgresServer())
    standby = primary.standby(STANDBY)
    stack.callback(standby.remove)
    standby.start()
    primary.sql(f"alter system set synchronous_standby_names = '{STANDBY}'; select pg_reload_conf()")
    return primary


def measured(part: str, *options: str) -> Mapping[str, float]:
    """What a benchmark measures, by the names of the bars. Raises BenchError."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        if main([part, *options, "--output", str(file)]) != 0:
            raise BenchError(f"the benchmark of {part} failed")
        result = json.loads(file.read_text())
    return VALUES[part](result["rows"] if part == WORKERS else result[part])


def _commits(rows: Rows) -> dict[str, float]:
    """Of the first store, and of the second, which has a standby."""
    suffixes = {"1": "", "2": f"-{STANDBY}"}
    stores = [row for row in rows if row["store"][0] in suffixes]
    return {f"commits-{row['in_flight']}{suffixes[row['store'][0]]}": row["of_journal"] for row in stores}


def _workers(rows: Rows) -> dict[str, float]:
    several = [row for row in rows if row["server"].endswith("workers")]
    return {f"workers-{row['requests']}-{row['in_flight']}": row["least_ratio"] for row in several}


VALUES: Mapping[str, Callable[[Rows], Mapping[str, float]]] = {
    "commits": _commits,
    "takeover": lambda rows: {"takeover": rows[0]["seconds"]},
    "idle": lambda rows: {"idle-operations": rows[0]["operations_per_s"], "idle-cpu": 100 * rows[0]["cpu_share"]},
    WORKERS: _workers,
}
"""By part: its values, by the names of the bars."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
