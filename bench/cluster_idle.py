"""What nodes of a cluster without clients do, for ``callboard bench cluster``."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from callboard.bench.harness import Server, process_cpu_s
from callboard.runtime.common.printing import print_line

NODES = 3
SETTLE_S = 10.0
POSTGRES = ("postgresql://", "postgres://")


def measure_idle(url: str, seconds: float) -> dict[str, Any]:
    """CPU and store operations of each node, while it has a third of the partitions and no clients."""
    with tempfile.TemporaryDirectory(prefix="bench-cluster-", dir=Path.cwd()) as folder, ExitStack() as stack:
        servers = [stack.enter_context(_server(url, Path(folder), number)) for number in range(NODES)]
        time.sleep(SETTLE_S)
        cpu_s, operations = _cpu_s(servers), asyncio.run(_operations(url))
        started_s = time.monotonic()
        time.sleep(seconds)
        elapsed_s = time.monotonic() - started_s
        used_s, done = _cpu_s(servers) - cpu_s, asyncio.run(_operations(url)) - operations
    share, rate = used_s / elapsed_s / NODES, done / elapsed_s / NODES
    text = f"{rate:.1f} store operations/s" if url.startswith(POSTGRES) else "store operations are not counted"
    print_line(f"{NODES} idle nodes, {elapsed_s:.0f} s: {share:.2%} of a core and {text} for each node")
    return {"nodes": NODES, "seconds": elapsed_s, "cpu_share": share, "operations_per_s": rate}


def _server(url: str, folder: Path, number: int) -> Server:
    arguments = ["-m", "callboard", "serve", "--cluster", url, "--node-name", f"idle-{number}"]
    arguments += ["--listen", "127.0.0.1:0", "--data", str(folder / str(number))]
    return Server(arguments, "callboard serve --cluster")


def _cpu_s(servers: Sequence[Server]) -> float:
    return sum(process_cpu_s(server.pid) or 0.0 for server in servers)


async def _operations(url: str) -> int:
    """Transactions of the database: each operation is one. 0 for other engines."""
    if not url.startswith(POSTGRES):
        return 0
    import asyncpg  # only if the store is in PostgreSQL

    connection = await asyncpg.connect(url)
    try:
        await connection.execute("select pg_stat_clear_snapshot()")
        return int(
            await connection.fetchval("select xact_commit from pg_stat_database where datname = current_database()")
        )
    finally:
        await connection.close()
