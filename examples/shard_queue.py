"""A task queue with workers, retries and progress, as in Celery, that quarantines a task that kills its worker.

    python examples/shard_queue.py                             # a short demonstration
    callboard serve --listen 127.0.0.1:9092 --data state       # or: start a coordinator, then workers on any machine
    python examples/shard_queue.py work NAME HOST:9092 FOLDER

In a usual queue any worker gets the next task, so two tasks of one customer may run at the same time, and a task that
crashes its worker is given to one worker after the other. Here a task belongs to a shard, by its key. A shard is a file
to which tasks are appended. It has one worker at a time, which runs its tasks in order. Before each attempt the worker
commits the offset of the task and the number of attempts, so an attempt also counts if the worker dies. A task without
attempts left is quarantined. Tasks run at least once. All workers must have access to FOLDER.
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
RETRY_DELAY_S = 0.05  # before the second attempt; doubled before each further one
POLL_S = 0.05


def shard_of(key: str) -> int:
    return zlib.crc32(key.encode()) % SHARDS


def append(path: Path, line: object) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def enqueue(folder: Path, task: str, key: str) -> None:
    append(folder / f"shard-{shard_of(key)}.jsonl", {"task": task, "key": key, "id": uuid4().hex})


def lines_from(path: Path, number: int) -> list[Any]:
    """The complete lines from ``number`` on; the last line may be incomplete."""
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
                await self.run_task(task, shard, next_offset, attempts)
                next_offset, attempts = next_offset + 1, 0
                await shard.commit(next_offset, note="0")
            await asyncio.sleep(POLL_S)

    async def run_task(self, task: dict[str, str], shard: callboard.Shard, next_offset: int, attempts: int) -> None:
        """Try a task until it succeeds or has no attempts left."""
        while attempts < ATTEMPTS_MAX:
            attempts += 1
            await shard.commit(next_offset, note=str(attempts))
            try:
                await TASKS[task["task"]](task["key"], attempts)
            except Exception as error:
                print(f"{self.name}: {task['task']} of {task['key']}, attempt {attempts}: {error}", flush=True)
                await asyncio.sleep(RETRY_DELAY_S * 2 ** (attempts - 1))
            else:
                append(self.folder / "done.jsonl", task)
                return
        append(self.folder / "quarantine.jsonl", task)


async def greet(key: str, attempt: int) -> None:
    await asyncio.sleep(0.001)  # the work would be here


async def flaky(key: str, attempt: int) -> None:
    if attempt < 2:
        raise ConnectionError("the server is busy")


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


# Demonstration -------------------------------------------------------------------------------------------------------


async def run_with_restarts(name: str, bootstrap: str, folder: Path, starts: dict[str, int]) -> None:
    """Restart a worker when it dies, as systemd or Kubernetes would."""
    process = None
    try:
        while process is None or process.returncode:
            starts[name] = starts.get(name, 0) + 1
            command = (sys.executable, __file__, "work", name, bootstrap, str(folder))
            process = await asyncio.create_subprocess_exec(*command)
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
    starts: dict[str, int] = {}
    async with (
        callboard.Coordinator(listen="127.0.0.1:0", group_initial_rebalance_delay_ms=200) as coordinator,
        asyncio.TaskGroup() as group,
    ):
        supervisors = [
            group.create_task(run_with_restarts(name, coordinator.bootstrap, folder, starts)) for name in ("ann", "bob")
        ]
        enqueue(folder, "greet", keys[0])  # after the task that kills its worker
        while sum(committed.offset for committed in (await coordinator.offsets(GROUP)).values()) < len(keys) + 3:
            await asyncio.sleep(POLL_S)
        for supervisor in supervisors:
            supervisor.cancel()
    done = {task["id"] for task in lines_from(folder / "done.jsonl", 0)}
    quarantined = [task["task"] for task in lines_from(folder / "quarantine.jsonl", 0)]
    print(f"{len(done)} tasks are done; quarantined: {quarantined}")
    print("workers were started", sum(starts.values()), "times")


def main() -> None:
    match sys.argv[1:]:
        case ["work", name, bootstrap, folder]:
            asyncio.run(work(name, bootstrap, Path(folder)))
        case _:
            with tempfile.TemporaryDirectory() as temporary:
                asyncio.run(demonstrate(Path(temporary)))


if __name__ == "__main__":
    main()
