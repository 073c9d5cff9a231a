"""A worker with a coordinator of its own: python cluster_worker_program.py URL NAME FILE GROUPS SHARDS

It commits to its shards until SIGTERM, and writes each step and each acknowledgement to a file that all workers share.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

import callboard

STEP_S = 0.25
SESSION_MS = 6000


async def main(url: str, name: str, path: str, groups: int, shards: int) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)

    async def work(group: str, shard: callboard.Shard) -> None:
        offset = shard.next_offset or 0
        while True:
            now_ns = time.monotonic_ns()
            if shard.is_revoked:
                return
            os.write(file, f"step {now_ns} {group}/{shard.name} {shard.token} {name} {offset}\n".encode())
            await shard.commit(offset + 1)
            offset += 1
            os.write(file, f"ack {time.monotonic_ns()} {group}/{shard.name} {shard.token} {name} {offset}\n".encode())
            await asyncio.sleep(STEP_S)

    async def take_part(coordinator: callboard.Coordinator, group: str) -> None:
        options = {"resources": {"jobs": shards}, "session_timeout_ms": SESSION_MS}
        async with coordinator.member(group, **options) as member:  # type: ignore[arg-type]
            await member.run(lambda shard: work(group, shard))

    async with callboard.Coordinator(cluster=url, node_name=name) as coordinator:
        print("ready", flush=True)
        tasks = [asyncio.create_task(take_part(coordinator, f"group-{number}")) for number in range(groups)]
        await stopping.wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
