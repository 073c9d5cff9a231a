"""Cron on several machines: each job runs exactly once, although machines start, stop and freeze.

    python examples/sharded_scheduler.py   # a short demonstration

With one crontab on one machine no job runs while the machine is down; with two machines each job runs twice. Here jobs
belong to named shards, any number of schedulers share them, and each shard has one owner at a time.

A scheduler that was frozen (by a long pause, a sleeping laptop, kill -STOP) cannot notice that its shards were
reassigned. So each write has the shard's fencing token, which grows with each change of owner, and the database refuses
a token that is smaller than the greatest one so far. The demonstration freezes a scheduler between its work and its
write.
"""

import asyncio
import os
import signal
import sqlite3
import sys
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path

import callboard

GROUP = "schedulers"
JOBS = {"emea": ["invoices", "digest"], "apac": ["invoices"], "americas": ["invoices", "cleanup"]}
EVERY_S = 0.2  # the interval of each job; a real scheduler would read a crontab
SESSION_MS = 1_000  # without heartbeats for this long a scheduler loses its shards; in production use 10 s
FROZEN = "south"

TABLES = """
CREATE TABLE IF NOT EXISTS fences (shard TEXT PRIMARY KEY, token INTEGER, tick INTEGER);
CREATE TABLE IF NOT EXISTS runs (shard TEXT, job TEXT, tick INTEGER, scheduler TEXT);
"""


class StaleToken(Exception):
    """The database has a greater token, of a later owner of the shard."""


def save(database: sqlite3.Connection, scheduler: str, shard: str, token: int, tick: int) -> None:
    """Write the runs of a tick, unless they are already there. Raises StaleToken if a later owner has written."""
    with database:
        database.execute("BEGIN IMMEDIATE")  # token and rows in one transaction
        newest, done = database.execute("SELECT max(token), max(tick) FROM fences WHERE shard = ?", (shard,)).fetchone()
        if newest is not None and token < newest:
            raise StaleToken(f"shard {shard}: token {token} is older than {newest}")
        if done is None or tick > done:  # else the tick is written, but its offset was not committed
            database.execute("INSERT OR REPLACE INTO fences VALUES (?, ?, ?)", (shard, token, tick))
            rows = [(shard, job, tick, scheduler) for job in JOBS[shard]]
            database.executemany("INSERT INTO runs VALUES (?, ?, ?, ?)", rows)


# A scheduler ---------------------------------------------------------------------------------------------------------


class Scheduler:
    def __init__(self, name: str, database: sqlite3.Connection) -> None:
        self.name = name
        self.database = database
        self.freezes = name == FROZEN

    async def run_shard(self, shard: callboard.Shard) -> None:
        """Run the jobs of one shard while this scheduler owns it. Ticks without an owner are skipped."""
        name, next_tick = str(shard.name), shard.next_offset or 0
        print(f"{self.name} runs {name}, token {shard.token}", flush=True)
        while True:
            tick = int(time.time() / EVERY_S)
            if tick >= next_tick:
                self.run_jobs(name, shard.token, tick)
                next_tick = tick + 1
                await shard.commit(next_tick, note=self.name)
            await asyncio.sleep(next_tick * EVERY_S - time.time())

    def run_jobs(self, shard: str, token: int, tick: int) -> None:
        # The work would be here.
        if self.freezes:
            self.freezes = False
            os.kill(os.getpid(), signal.SIGSTOP)  # for the demonstration; the parent sends SIGCONT
        try:
            save(self.database, self.name, shard, token, tick)
        except StaleToken as error:  # this member loses the shard at its next heartbeat
            print(f"{self.name} cannot write: {error}", flush=True)


async def schedule(name: str, bootstrap: str, path: str) -> None:
    with closing(connect(path)) as database:
        async with (
            callboard.connect(bootstrap) as coordinator,
            coordinator.member(
                GROUP, resources={"shards": list(JOBS)}, client_id=name, session_timeout_ms=SESSION_MS
            ) as member,
        ):
            running = asyncio.create_task(member.run(Scheduler(name, database).run_shard))
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
            with suppress(asyncio.CancelledError):
                await running
    print(f"{name} left")


def connect(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, timeout=30)
    database.executescript(TABLES)
    return database


# The demonstration ---------------------------------------------------------------------------------------------------


async def demonstrate(path: str) -> None:
    with closing(connect(path)) as database:
        # With data="state" tokens would also grow over restarts of the coordinator.
        async with callboard.Coordinator(
            listen="127.0.0.1:0", group_initial_rebalance_delay_ms=200, group_min_session_timeout_ms=SESSION_MS
        ) as coordinator:
            schedulers = {}
            for name in ("north", FROZEN):
                arguments = ("run", name, coordinator.bootstrap, path)
                schedulers[name] = await asyncio.create_subprocess_exec(sys.executable, __file__, *arguments)
            await wait_until(
                database, "SELECT count(DISTINCT shard) = 3 FROM runs"
            )  # north runs all shards while south is frozen
            os.kill(schedulers[FROZEN].pid, signal.SIGCONT)
            await wait_until(
                database, "SELECT count(*) > 2 FROM runs WHERE scheduler = 'south'"
            )  # south has shards again
            for process in schedulers.values():
                process.terminate()
                await process.wait()
        runs, distinct_runs = database.execute(
            "SELECT count(*), count(DISTINCT shard || job || tick) FROM runs"
        ).fetchone()
        print("each job ran once per tick:", 0 < runs == distinct_runs)


async def wait_until(database: sqlite3.Connection, query: str) -> None:
    while database.execute(query).fetchone() != (1,):
        await asyncio.sleep(EVERY_S / 4)


def main() -> None:
    match sys.argv[1:]:
        case ["run", name, bootstrap, path]:
            asyncio.run(schedule(name, bootstrap, path))
        case _:
            with tempfile.TemporaryDirectory() as folder:
                asyncio.run(demonstrate(str(Path(folder, "runs.db"))))


if __name__ == "__main__":
    main()
