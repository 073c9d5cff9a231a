"""``python -m faults.bench_postgres PART [OPTIONS]``: ``callboard bench cluster`` on private servers of PostgreSQL.

For commits there are two: one alone, and one with a synchronous standby on the same disk.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack

from cluster.postgres_server import PostgresServer

from callboard.bench.cluster import main as bench

STANDBY = "standby"


def main(arguments: Sequence[str]) -> int:
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
