"""A queue of tasks with workers, retries and progress, as with Celery, where a task that kills its worker is found out.

    python examples/shard_queue.py                             # a short demonstration
    callboard serve --listen 0.0.0.0:9092 --data state         # or: the coordinator; then, wherever you like, workers:
    python examples/shard_queue.py work NAME HOST:9092 FOLDER

A queue gives each task to whoever asks, so two tasks for one customer run at the same time, and a task that crashes its
worker is given to the next one, and the next. Here a task belongs to a shard, by its key. A shard is a file to which
tasks are appended, and has one worker at a time, which does them in order. How far it is, and how often it has tried
the next one, is committed before each attempt: so an attempt counts even if nobody is left to say how it ended. A task
that has had all its attempts is put aside, and its shard goes on.

Tasks are done at least once. FOLDER must be one that all workers see.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import callboard

GROUP = "shard-queue"
SHARDS = 4
ATTEMPTS_MAX = 2
PAUSE_S = 0.05  # before the second attempt; twice as long before each one after it
LOOK_S = 0.05


def shard_of(key: str) -> int:
    return zlib.crc32(key.encode()) % SHARDS


def append(path: Path, line: object) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def enqueue(folder: Path, task: str, key: str) -> None:
    append(folder / f"shard-{shard_of(key)}.jsonl", {"task": task, "key": key, "id": uuid4().hex})


def lines_from(path: Path, number: int) -> list[Any]:
    """Complete lines only; the last one may be half written."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines[number:] if line.endswith("\n")]


# A worker ------------------------------------------------------------------------------------------------------------


class Worker:
    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder

    async def drain(self, shard: callboard.Shard) -> None:
        """Run the tasks of one shard while this worker owns it."""
        next_offset, attempts = shard.next_offset or 0, int(shard.note or 0)
        while True:
            for task in lines_from(self.folder / f"shard-{shard.name}.jsonl", next_offset):
                await self.do(task, shard, next_offset, attempts)
                next_offset, attempts = next_offset + 1, 0
                await shard.commit(next_offset, note="0")
            await asyncio.sleep(LOOK_S)

    async def do(self, task: dict[str, str], shard: callboard.Shard, next_offset: int, attempts: int) -> None:
        """Try a task until it succeeds or has no attempts left."""
        while attempts < ATTEMPTS_MAX:
            attempts += 1
            await shard.commit(next_offset, note=str(attempts))
            try:
                await TASKS[task["task"]](task["key"], attempts)
            except Exception as error:
                print(f"{self.name}: {task['task']} of {task['key']}, attempt {attempts}: {error}", flush=True)
                await asyncio.sleep(PAUSE_S * 2 ** (attempts - 1))
            else:
                append(self.folder / "done.jsonl", task)
                return
        append(self.folder / "put-aside.jsonl", task)


async def greet(key: str, attempt: int) -> None:
    await asyncio.sleep(0.001)  # something useful


async def flaky(key: str, attempt: int) -> None:
    if attempt < 2:
        raise ConnectionError("the other side is busy")


async def crash(key: str, attempt: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


TASKS = {"greet": greet, "flaky": flaky, "crash": crash}


async def work(name: str, bootstrap: str, folder: Path) -> None:
    async with (
        callboard.connect(bootstrap) as coordinator,
        # A static member: if it restarts within its session it gets the same shards, without a rebalance.
        coordinator.member(GROUP, resources={"shards": SHARDS}, instance_id=name, client_id=name) as member,
    ):
        running = asyncio.create_task(member.run(Worker(name, folder).drain))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        with suppress(asyncio.CancelledError):
            await running


# The rest ------------------------------------------------------------------------------------------------------------


async def keep_alive(name: str, bootstrap: str, folder: Path, lives: dict[str, int]) -> None:
    """Start a worker again whenever it dies, as systemd or Kubernetes would."""
    process = None
    try:
        while process is None or process.returncode:
            lives[name] = lives.get(name, 0) + 1
            own = (sys.executable, __file__, "work", name, bootstrap, str(folder))
            process = await asyncio.create_subprocess_exec(*own)
            await process.wait()
    finally:
        if process is not None and process.returncode is None:
            process.terminate()
            await process.wait()


async def demonstrate(folder: Path) -> None:
    keys = [f"customer-{number}" for number in range(40)]
    for key in keys:
        enqueue(folder, "greet", key)
    enqueue(folder, "flaky", keys[0])
    enqueue(folder, "crash", keys[0])
    lives: dict[str, int] = {}
    async with (
        callboard.Coordinator(listen="127.0.0.1:0", group_initial_rebalance_delay_ms=200) as coordinator,
        asyncio.TaskGroup() as group,
    ):
        keepers = [group.create_task(keep_alive(name, coordinator.bootstrap, folder, lives)) for name in ("ann", "bob")]
        enqueue(folder, "greet", keys[0])  # behind the one that kills
        while sum(one.offset for one in (await coordinator.offsets(GROUP)).values()) < len(keys) + 3:
            await asyncio.sleep(LOOK_S)
        for keeper in keepers:
            keeper.cancel()
    done = {task["id"] for task in lines_from(folder / "done.jsonl", 0)}
    print(f"{len(done)} tasks are done; put aside: {[t['task'] for t in lines_from(folder / 'put-aside.jsonl', 0)]}")
    print("workers were started", sum(lives.values()), "times")


def main() -> None:
    match sys.argv[1:]:
        case ["work", name, bootstrap, folder]:
            asyncio.run(work(name, bootstrap, Path(folder)))
        case _:
            with tempfile.TemporaryDirectory() as temporary:
                asyncio.run(demonstrate(Path(temporary)))


if __name__ == "__main__":
    main()
