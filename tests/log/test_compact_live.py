"""Compaction while a coordinator writes: nothing blocks and nothing is lost, even after kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from log_helpers import LazyDisk, append, offset
from peers.peer import client_environment
from peers.server import TEST_SETTINGS, ServerProcess
from peers.waiting import wait_until
from peers.wire import Wire

from callboard.actors.ports import Entry
from callboard.actors.records import OffsetRecord, Record
from callboard.runtime.disk.disk import Disk
from callboard.runtime.engine.clock import wall_clock_ms
from callboard.runtime.log.compaction.garbage import publish_and_collect
from callboard.runtime.log.compaction.swap import CompactionSettings, compact
from callboard.runtime.log.manifest import newest_manifest
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.reading.partition_reader import OffsetKey, live_offsets

SECONDS = float(os.environ.get("CALLBOARD_STRESS_SECONDS", "2"))
GRACE_MS = 2000  # reading these small logs takes much less
GENERATIONS_MIN = 4
READS_MIN = 10
GROUPS = 40
COMMITS = 600
PAUSE_S = 0.01  # between commits while the compactions that are waited for run
PARTITION = "__consumer_offsets-0"


class Stress(NamedTuple):
    """Threads that repeat an action until they are stopped, and their errors."""

    stop: threading.Event
    errors: list[BaseException]
    counts: dict[str, int]

    def thread(self, name: str, work: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            try:
                while not self.stop.is_set():
                    if work():
                        self.counts[name] = self.counts.get(name, 0) + 1
            except BaseException as error:
                self.errors.append(error)
                self.stop.set()

        result = threading.Thread(target=run)
        result.start()
        return result


class Writer:
    """Writes rounds of commits and remembers the last values."""

    def __init__(self, log: OffsetsLog) -> None:
        self.written: dict[OffsetKey, int] = {}
        self._log = log
        self._numbers = count(1)

    def write(self) -> bool:
        entries = []
        for number in (next(self._numbers) for _ in range(20)):
            group = f"g{number % 97 % GROUPS}"
            self.written[group, "t", 0] = number
            entries.append(Entry(0, (offset(group, number),)))
        append(self._log, entries)
        return True


class Reader:
    """Reads repeatedly: keys must not disappear, and offsets must not decrease."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before: dict[OffsetKey, int] = {}

    def read(self) -> bool:
        current = live(self._folder) if self._folder.exists() else {}
        assert self._before.keys() <= current.keys()
        assert all(offset <= current[key] for key, offset in self._before.items())
        self._before = current
        return bool(current)


def live(folder: Path) -> dict[OffsetKey, int]:
    return {key: value.offset for key, (_, value) in live_offsets(folder).items()}


def compact_once(folder: Path) -> bool:
    compaction_settings = CompactionSettings(
        wall_clock_ms(), "stress", 0.1, delete_retention_ms=100, segment_bytes=8000
    )
    result = compact(Disk(), folder, compaction_settings)
    publish_and_collect(Disk(), folder, wall_clock_ms(), GRACE_MS)
    return result is not None


def test_log_with_concurrent_compactors_and_readers_keeps_all_records(tmp_path: Path) -> None:
    """A writer with small segments, two compactors that publish and collect, two readers; then a restart.

    ``CALLBOARD_STRESS_SECONDS`` sets a longer duration.
    """
    log = OffsetsLog(tmp_path, 1, disk=LazyDisk(), segment_bytes=6000)
    log.open()
    writer, folder, stress = Writer(log), tmp_path / PARTITION, Stress(threading.Event(), [], {})
    threads = [stress.thread("writes", writer.write)]
    threads += [stress.thread("generations", lambda: compact_once(folder)) for _ in range(2)]
    threads += [stress.thread("reads", Reader(folder).read) for _ in range(2)]
    end = time.monotonic() + SECONDS

    def is_enough(counts: dict[str, int]) -> bool:
        has_minimum = counts.get("generations", 0) >= GENERATIONS_MIN and counts.get("reads", 0) >= READS_MIN
        return bool(stress.errors) or (has_minimum and time.monotonic() > end)

    wait_until(lambda: dict(stress.counts), is_enough, "compactions and readings")
    stress.stop.set()
    for thread in threads:
        thread.join()
    log.close()
    for error in stress.errors:
        raise error
    assert newest_manifest(Disk(), folder).generation == stress.counts["generations"]
    assert live(folder) == writer.written
    reopened = OffsetsLog(tmp_path, 1, disk=LazyDisk(), segment_bytes=6000)
    reopened.open()
    replayed = dict(_written(record) for _, _, record in reopened.read(0))
    reopened.close()
    assert replayed == writer.written
    print(stress.counts)


def _written(record: Record) -> tuple[OffsetKey, int]:
    assert isinstance(record, OffsetRecord) and record.value is not None
    return (record.group_id, record.topic, record.partition), record.value.offset


def commit(client: Wire, group: str, value: int) -> None:
    partition = {
        "partition_index": 0,
        "committed_offset": value,
        "committed_leader_epoch": -1,
        "committed_metadata": "x" * 40,
    }
    values = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    response = client.ask("offset_commit", 8, **values, topics=[{"name": "t", "partitions": [partition]}])
    assert response["topics"][0]["partitions"][0]["error_code"] == "NONE"


def committed(client: Wire, group: str) -> int:
    topics = [{"name": "t", "partition_indexes": [0]}]
    response = client.ask("offset_fetch", 5, group_id=group, topics=topics)
    current: int = response["topics"][0]["partitions"][0]["committed_offset"]
    return current


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that compacts as soon as a partition is due."""
    settings = {
        **TEST_SETTINGS,
        "offsets_topic_num_partitions": 2,
        "offsets_topic_segment_bytes": 10_000,
        "log_cleaner_backoff_ms": 50,
        "log_cleaner_min_cleanable_ratio": 0.1,
    }
    with ServerProcess(tmp_path, settings=settings, options=("--topic", "t:1")) as current:
        yield current


def commit_until(server: ServerProcess, condition: Callable[[], bool]) -> dict[str, int]:
    """Commit round robin, many times and until ``enough``; returns the last acknowledged values."""
    latest: dict[str, int] = {}
    with Wire(server.host, server.port) as client:
        for number in count(1):
            group = f"group-{number % GROUPS}"
            commit(client, group, number)
            latest[group] = number
            if number >= COMMITS:
                if number % 20 == 0 and condition():
                    return latest
                time.sleep(PAUSE_S)
    raise AssertionError


def assert_committed(server: ServerProcess, expected: dict[str, int]) -> None:
    with Wire(server.host, server.port) as client:
        assert {group: committed(client, group) for group in expected} == expected


def generations(server: ServerProcess) -> int:
    return sum(newest_manifest(Disk(), server.data / f"__consumer_offsets-{number}").generation for number in range(2))


def test_server_compacts_its_log_and_keeps_all_commits(server: ServerProcess) -> None:
    latest = commit_until(server, lambda: generations(server) >= 4)
    assert '"event": "compacted"' in server.log()
    server.restart()
    assert_committed(server, latest)
    latest = commit_until(server, lambda: True)
    server.kill()
    server.start()
    assert_committed(server, latest)


def test_server_with_two_more_compactors_keeps_all_commits(server: ServerProcess) -> None:
    """Users may run ``callboard compact`` while the server compacts, and kill it."""
    command = [sys.executable, "-m", "callboard", "compact", "--data", str(server.data), "--force", "--processes", "1"]
    started: list[subprocess.Popen[bytes]] = []

    def run_compactors() -> bool:
        running = [process for process in started if process.poll() is None]
        if len(running) < 2:
            started.append(subprocess.Popen([*command, "--grace-minutes", "0.05"], env=client_environment()))
        elif len(started) % 3 == 0:
            running[0].send_signal(signal.SIGKILL)
        return generations(server) >= 4 and len(started) >= 4

    latest_values = commit_until(server, run_compactors)
    for process in started:
        assert process.wait() in (0, -signal.SIGKILL)
    assert_committed(server, latest_values)
    server.restart()
    assert_committed(server, latest_values)


def test_server_with_cleaner_disabled_does_not_compact(tmp_path: Path) -> None:
    settings: dict[str, object] = {**TEST_SETTINGS, "offsets_topic_segment_bytes": 5_000, "log_cleaner_backoff_ms": 1}
    settings["log_cleaner_enable"] = "false"
    with ServerProcess(tmp_path, settings=settings, options=("--topic", "t:1")) as server:
        commit_until(server, lambda: True)
        assert generations(server) == 0
