"""Compaction beside a coordinator that goes on writing: nobody waits, nothing is missing, whoever is killed."""

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
from peers.server import TEST_SETTINGS, ServerProcess
from peers.stage import client_environment
from peers.waiting import wait_until
from peers.wire import Wire

from callboard.actors.ports import Entry
from callboard.actors.records import OffsetRecord, Record
from callboard.runtime.disk.disk import Disk
from callboard.runtime.engine.clock import wall_clock_ms
from callboard.runtime.log.compaction.garbage import tidy
from callboard.runtime.log.compaction.swap import Settings, compact
from callboard.runtime.log.manifest import newest_manifest
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.reading.transactions import OffsetKey, live_offsets

SECONDS = float(os.environ.get("CALLBOARD_STRESS_SECONDS", "3"))
GRACE_MS = 2000  # a reader of these small logs needs far less
GENERATIONS_MIN = 4
READS_MIN = 10
GROUPS = 40
COMMITS = 1200
PARTITION = "__consumer_offsets-0"


class Stress(NamedTuple):
    """What some threads do until they are told to stop, and what went wrong in them."""

    stop: threading.Event
    errors: list[BaseException]
    counted: dict[str, int]

    def thread(self, name: str, work: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            try:
                while not self.stop.is_set():
                    if work():
                        self.counted[name] = self.counted.get(name, 0) + 1
            except BaseException as error:
                self.errors.append(error)
                self.stop.set()

        made = threading.Thread(target=run)
        made.start()
        return made


class Writer:
    """Writes rounds of commits and knows what was written last."""

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
    """Reads again and again: what was once there stays, and no offset goes back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before: dict[OffsetKey, int] = {}

    def read(self) -> bool:
        found = live(self._folder) if self._folder.exists() else {}
        assert self._before.keys() <= found.keys()
        assert all(offset <= found[key] for key, offset in self._before.items())
        self._before = found
        return bool(found)


def live(folder: Path) -> dict[OffsetKey, int]:
    return {key: value.offset for key, (_, value) in live_offsets(folder).items()}


def compact_once(folder: Path) -> bool:
    how = Settings(wall_clock_ms(), "stress", 0.1, delete_retention_ms=100, segment_bytes=8000)
    made = compact(Disk(), folder, how)
    tidy(Disk(), folder, wall_clock_ms(), GRACE_MS)
    return made is not None


def test_a_log_under_writing_compactors_and_readers_says_what_was_written(tmp_path: Path) -> None:
    """A writer that rolls all the time, two compactors that publish and collect, two readers; then a new start.

    ``CALLBOARD_STRESS_SECONDS`` makes it longer.
    """
    log = OffsetsLog(tmp_path, 1, disk=LazyDisk(), segment_bytes=6000)
    log.open()
    writer, folder, stress = Writer(log), tmp_path / PARTITION, Stress(threading.Event(), [], {})
    threads = [stress.thread("writes", writer.write)]
    threads += [stress.thread("generations", lambda: compact_once(folder)) for _ in range(2)]
    threads += [stress.thread("reads", Reader(folder).read) for _ in range(2)]
    end = time.monotonic() + SECONDS

    def is_enough(counted: dict[str, int]) -> bool:
        enough = counted.get("generations", 0) >= GENERATIONS_MIN and counted.get("reads", 0) >= READS_MIN
        return bool(stress.errors) or (enough and time.monotonic() > end)

    wait_until(lambda: dict(stress.counted), is_enough, "compactions and readings")
    stress.stop.set()
    for thread in threads:
        thread.join()
    log.close()
    for error in stress.errors:
        raise error
    assert newest_manifest(Disk(), folder).generation == stress.counted["generations"]
    assert live(folder) == writer.written
    again = OffsetsLog(tmp_path, 1, disk=LazyDisk(), segment_bytes=6000)
    again.open()
    replayed = dict(_written(record) for _, _, record in again.read(0))
    again.close()
    assert replayed == writer.written
    print(stress.counted)


def _written(record: Record) -> tuple[OffsetKey, int]:
    assert isinstance(record, OffsetRecord) and record.value is not None
    return (record.group_id, record.topic, record.partition), record.value.offset


def commit(wire: Wire, group: str, value: int) -> None:
    one = {
        "partition_index": 0,
        "committed_offset": value,
        "committed_leader_epoch": -1,
        "committed_metadata": "x" * 40,
    }
    values = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    answer = wire.ask("offset_commit", 8, **values, topics=[{"name": "t", "partitions": [one]}])
    assert answer["topics"][0]["partitions"][0]["error_code"] == "NONE"


def committed(wire: Wire, group: str) -> int:
    topics = [{"name": "t", "partition_indexes": [0]}]
    answer = wire.ask("offset_fetch", 5, group_id=group, topics=topics)
    found: int = answer["topics"][0]["partitions"][0]["committed_offset"]
    return found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """One that compacts as soon as there is anything to compact."""
    settings = {
        **TEST_SETTINGS,
        "offsets_topic_num_partitions": 2,
        "offsets_topic_segment_bytes": 20_000,
        "log_cleaner_backoff_ms": 50,
        "log_cleaner_min_cleanable_ratio": 0.1,
    }
    with ServerProcess(tmp_path, settings=settings, options=("--topic", "t:1")) as found:
        yield found


def commit_until(server: ServerProcess, enough: Callable[[], bool]) -> dict[str, int]:
    """Commit round robin, many times and until something has happened; what was acknowledged last."""
    latest: dict[str, int] = {}
    with Wire(server.host, server.port) as wire:
        for number in count(1):
            group = f"group-{number % GROUPS}"
            commit(wire, group, number)
            latest[group] = number
            if number >= COMMITS and number % 100 == 0 and enough():
                return latest
    raise AssertionError


def assert_committed(server: ServerProcess, expected: dict[str, int]) -> None:
    with Wire(server.host, server.port) as wire:
        assert {group: committed(wire, group) for group in expected} == expected


def generations(server: ServerProcess) -> int:
    return sum(newest_manifest(Disk(), server.data / f"__consumer_offsets-{number}").generation for number in range(2))


def test_a_server_compacts_its_own_log_and_loses_nothing(server: ServerProcess) -> None:
    latest = commit_until(server, lambda: generations(server) >= 4)
    assert '"event": "compacted"' in server.log()
    server.restart()
    assert_committed(server, latest)
    latest = commit_until(server, lambda: True)
    server.kill()
    server.start()
    assert_committed(server, latest)


def test_two_compactors_more_beside_a_server(server: ServerProcess) -> None:
    """People do start it by hand while the server does it, too; and kill it."""
    command = [sys.executable, "-m", "callboard", "compact", "--data", str(server.data), "--force", "--processes", "1"]
    started: list[subprocess.Popen[bytes]] = []

    def more() -> bool:
        running = [one for one in started if one.poll() is None]
        if len(running) < 2:
            started.append(subprocess.Popen([*command, "--grace-minutes", "0.05"], env=client_environment()))
        elif len(started) % 3 == 0:
            running[0].send_signal(signal.SIGKILL)
        return generations(server) >= 6 and len(started) >= 6

    latest = commit_until(server, more)
    for one in started:
        assert one.wait() in (0, -signal.SIGKILL)
    assert_committed(server, latest)
    server.restart()
    assert_committed(server, latest)


def test_a_server_that_is_told_not_to_compact_does_not(tmp_path: Path) -> None:
    settings: dict[str, object] = {**TEST_SETTINGS, "offsets_topic_segment_bytes": 5_000, "log_cleaner_backoff_ms": 1}
    settings["log_cleaner_enable"] = "false"
    with ServerProcess(tmp_path, settings=settings, options=("--topic", "t:1")) as server:
        commit_until(server, lambda: True)
        assert generations(server) == 0


def test_the_child_ends_with_whoever_started_it() -> None:
    """Also when that one is killed: its end of the pipe goes with it."""
    program = (
        "import threading, time\n"
        "from callboard.runtime.cli import compact\n"
        "threading.Thread(target=compact._exit_when_stdin_closes, daemon=True).start()\n"
        "print('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=client_environment()
    )
    assert child.stdout is not None and child.stdin is not None
    assert child.stdout.readline() == b"up\n"
    assert child.poll() is None
    child.stdin.close()
    assert child.wait(60) == 0
    child.stdout.close()
