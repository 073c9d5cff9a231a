"""How long a node of a cluster takes to load partitions with many groups, for ``callboard bench cluster``."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from callboard.actors.javahash import offsets_partition
from callboard.actors.records import OffsetRecord, OffsetValue
from callboard.bench.harness import BenchError, Server, process_and_children_cpu_s
from callboard.bench.process_usage import descendants
from callboard.runtime.cluster.engines import open_store
from callboard.runtime.cluster.keys import alive_key
from callboard.runtime.cluster.manifest import Manifest, Tail, create_manifest
from callboard.runtime.cluster.patient_store import PatientStore
from callboard.runtime.cluster.register_log import RegisterLog
from callboard.runtime.cluster.segments import write_segment
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.cluster.store import Store
from callboard.runtime.common.printing import print_line
from callboard.runtime.log.format.batch import encode_batch, frame_record
from callboard.runtime.log.format.records import encode
from callboard.runtime.log.partition_counts import PartitionCounts

COUNTS = PartitionCounts(50, 50)
FILLED = 17
"""A node of three has so many of the 50 partitions."""
BATCH_RECORDS = 500
NOW_MS = round(1000 * time.time())
DEADLINE_S = 120.0
DEAD = "dead-0000000000000000"
"""The session that owns all partitions until it has shown no sign of life for too long."""
ENDED, LOADED = "session ended", "partition taken over"


def measure_takeover(url: str, groups: int) -> dict[str, Any]:
    """Fill some partitions, and let a node take over all from a dead one. The others are empty."""
    size = asyncio.run(_fill(url, groups))
    with tempfile.TemporaryDirectory(prefix="bench-cluster-", dir=Path.cwd()) as folder:
        log = Path(folder) / "log"
        arguments = ["-m", "callboard", "serve", "--cluster", url, "--node-name", "bench", "--listen", "127.0.0.1:0"]
        arguments += ["--data", str(Path(folder) / "data"), "--log-format", "json"]
        with Server(arguments, "callboard serve --cluster", errors=log) as server:
            started_cpu_s = _cpu_s(server.pid)
            seconds = _load_seconds(log)
            cpu_s = _cpu_s(server.pid) - started_cpu_s
    of_groups = groups * FILLED // COUNTS.offsets
    print_line(
        f"takeover of {FILLED} partitions with {of_groups:,} groups ({size:,} bytes): loaded {seconds[-1]:.2f} s after "
        f"the register's change, half of the partitions after {seconds[len(seconds) // 2]:.2f} s; the node and its "
        f"loaders used {cpu_s:.2f} s of CPU"
    )
    return {"groups": of_groups, "bytes": size, "seconds": seconds[-1], "cpu_s": cpu_s}


def _cpu_s(pid: int) -> float:
    """That of the node, and of its loaders, which may have ended."""
    return sum(process_and_children_cpu_s(each) for each in (pid, *descendants(pid)))


async def _fill(url: str, groups: int) -> int:
    store = open_store(url, "bench")
    try:
        patient = PatientStore(store)
        await _create_register(patient)
        names: list[list[str]] = [[] for _ in range(COUNTS.offsets)]
        for number in range(groups):
            name = f"group-{number}"
            names[offsets_partition(name, COUNTS.offsets)].append(name)
        return sum([await _fill_partition(patient, partition, names[partition]) for partition in range(FILLED)])
    finally:
        await store.close()


async def _create_register(store: Store) -> None:
    """With a session that has died after one sign of life."""
    register = RegisterLog(store, SessionEnvironment())
    await register.create(COUNTS)
    await store.put(alive_key(DEAD), b"1")
    await register.change(lambda current: current.with_node(DEAD, "dead", {}, ""), _believe)


async def _believe() -> None:
    """Nobody else changes the register."""


async def _fill_partition(store: Store, partition: int, names: list[str]) -> int:
    """One offset of each group, in one segment, as after a compaction. The dead session has written nothing since."""
    batches = []
    for start in range(0, len(names), BATCH_RECORDS):
        records = [
            frame_record(0, delta, *encode(OffsetRecord(name, "orders", 0, OffsetValue(start, -1, "", NOW_MS))))
            for delta, name in enumerate(names[start : start + BATCH_RECORDS])
        ]
        batches.append(encode_batch(start, NOW_MS, NOW_MS, records))
    segment = await write_segment(store, partition, 1, batches, b"filled00")
    assert await create_manifest(store, Manifest(partition, 1, "filled", 1, (segment,), Tail(DEAD, 0)))
    return segment.size


def _load_seconds(log: Path) -> list[float]:
    """When each partition was loaded, in seconds after the register's change."""
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        events = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        times = {name: [_time(event) for event in events if event["event"] == name] for name in (ENDED, LOADED)}
        if len(times[LOADED]) == sum(COUNTS):
            return sorted((loaded - times[ENDED][0]).total_seconds() for loaded in times[LOADED])
        time.sleep(0.2)
    raise BenchError(f"not all partitions were loaded in {DEADLINE_S:g} s; the node's log: {log.read_text()[-2000:]}")


def _time(event: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(event["timestamp"])
