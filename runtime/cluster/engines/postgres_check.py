"""Whether a PostgreSQL is configured so that it keeps what it has answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import asyncpg

from .finding import Finding, Level
from .postgres_session import address_of, host_urls, reason_of

LIMIT_S = 5.0
SETTINGS = ("synchronous_standby_names", "synchronous_commit", "fsync", "full_page_writes", "autovacuum")
QUERY = f"""select pg_backend_pid() pid, pg_is_in_recovery() is_standby, current_setting('server_version') as version,
{", ".join(f"current_setting('{name}') {name}" for name in SETTINGS)}"""


async def check(url: str, is_single: bool) -> list[Finding]:
    """Whether there is a primary, and when it answers. Its settings are those of the role in the URL.

    All hosts of the URL are looked at: nodes use the primary, and after a failover another one.
    """
    rows, problems = [], []
    for host_url in host_urls(url):
        try:
            rows.append(await _look(host_url))
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            problems.append(f"cannot connect to {address_of(host_url)}: {reason_of(error)}")
    if not rows:
        return [Finding(Level.ERROR, problem) for problem in problems]
    row = min(rows, key=lambda row: bool(row["is_standby"]))
    judged = findings(row, is_pooled=row["pid"] != row["server_pid"], is_single=is_single)
    return [*judged, *(Finding(Level.WARNING, problem) for problem in problems)]


async def _look(url: str) -> dict[str, object]:
    """The row of ``QUERY``, and the process of the server as the connection's start has named it."""
    connection = await asyncpg.connect(url, timeout=LIMIT_S, statement_cache_size=0)
    try:
        async with asyncio.timeout(LIMIT_S):
            return {**await connection.fetchrow(QUERY), "server_pid": connection.get_server_pid()}
    finally:
        connection.terminate()


def findings(row: Mapping[str, object], *, is_pooled: bool, is_single: bool) -> Iterator[Finding]:
    """Judge what ``QUERY`` has answered."""
    if row["is_standby"]:
        yield Finding(
            Level.ERROR,
            "this is a read replica, which may be behind; give the address of the primary",
        )
        return
    yield Finding(Level.OK, f"PostgreSQL {row['version']}, a primary")
    yield from _durability(str(row["synchronous_commit"]), str(row["synchronous_standby_names"]), is_single)
    for name in ("fsync", "full_page_writes"):
        if row[name] != "on":
            yield Finding(Level.ERROR, f"{name} = {row[name]}: a power failure loses commits; set it to on")
    if row["autovacuum"] != "on":
        yield Finding(Level.WARNING, "autovacuum = off: the table callboard.store will grow for ever; set it to on")
    if is_pooled:
        yield Finding(
            Level.OK,
            "behind a pooler: nodes learn of changes by polling; the pooler must not repeat statements or read from "
            "replicas, which nobody can see from here",
        )


def _durability(commit: str, standbys: str, is_single: bool) -> Iterator[Finding]:
    if commit == "off":
        yield Finding(
            Level.ERROR,
            "synchronous_commit = off: it answers before a commit is on disk; set it for the role: alter role ... set "
            "synchronous_commit = on",
        )
    elif standbys and commit in ("on", "remote_apply"):
        yield Finding(Level.OK, f"a commit is on a standby before it is answered ({standbys})")
    elif standbys:
        yield Finding(
            Level.WARNING,
            f"synchronous_commit = {commit}: a commit is answered before a standby has it on disk; set it to on",
        )
    elif not is_single:
        yield Finding(
            Level.WARNING,
            "synchronous_standby_names is empty: a commit is on one machine only, and a failover to a standby may lose "
            "acknowledged commits; set it, or give --single if that is accepted",
        )
    else:
        yield Finding(Level.OK, "a commit is on the disk of one machine before it is answered (--single)")
