"""After ``kill -9`` the server still has every acknowledged commit and every member that has received its assignment.

A process commits and joins as fast as it can and records the responses. The server is killed at random moments, also
during its start, and checked afterwards. ``CALLBOARD_TEST_SEED`` repeats the random moments of a printed seed.
``CALLBOARD_KILL_ROUNDS`` is the number of rounds; ``make soak`` runs 20.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from crash_client import PARTITIONS, TOPIC
from crash_helpers import ClientReport, wrong_commits, wrong_members
from log_helpers import scan_journal_file
from peers.peer import client_environment
from peers.server import TEST_SETTINGS, ServerProcess
from peers.waiting import wait_until

from callboard.runtime.log.journal import journal_number

ROUNDS = int(os.environ.get("CALLBOARD_KILL_ROUNDS", "5"))
LOAD_S_MAX = 0.4
# Long enough that some starts are killed before and some after the replay of the journal.
START_S_MAX = 0.5
INTERRUPTED_STARTS_SHARE = 0.3
GARBAGE_BYTES_MAX = 5000
# So small that partitions roll all the time, and there are always segments to compact.
TINY_SEGMENTS = {"offsets_topic_segment_bytes": 2000, "log_cleaner_enable": "false"}
BUSY_CLEANER = {"offsets_topic_segment_bytes": 500, "log_cleaner_min_cleanable_ratio": 0, "log_cleaner_backoff_ms": 1}
COMPACTING_ROUNDS = 4


class LoadProcess:
    """``crash_client.py`` as a subprocess, whose output is read from a file."""

    def __init__(self, folder: Path) -> None:
        self._stdout = folder / "load.jsonl"
        self._stderr = folder / "load.stderr.txt"
        self._lines_read = 0
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "crash_client"],
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                env=client_environment(),
            )

    def run(self, server: ServerProcess) -> None:
        """Start a run; return when each connection has had its first responses."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"run {server.host} {server.port}\n".encode())
        self._process.stdin.flush()
        line = self._next_line()
        assert line == "begun", f"a connection had no response: {line[-2000:]}"

    def report(self) -> ClientReport:
        """The responses received until the server ended."""
        report = json.loads(self._next_line())
        return ClientReport(
            {(group, partition): (sent, acknowledged) for group, partition, sent, acknowledged in report["commits"]},
            [(group, member, generation, assignment) for group, member, generation, assignment in report["members"]],
            report["refusals"],
        )

    def finish(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        print(self._stderr.read_text(errors="replace")[-2000:])

    def _next_line(self) -> str:
        lines = wait_until(self._lines, lambda lines: len(lines) > self._lines_read, "the next line of the load")
        self._lines_read += 1
        return lines[self._lines_read - 1]

    def _lines(self) -> list[str]:
        code = self._process.poll()
        assert code is None, f"the load ended with {code}: {self._stderr.read_text(errors='replace')[-2000:]}"
        text = self._stdout.read_text()
        return text[: text.rfind("\n") + 1].splitlines()


class Compactor:
    """Runs ``callboard compact`` on a data folder, again each time that a run has ended."""

    def __init__(self, data: Path) -> None:
        options = ["--data", str(data), "--force", "--grace-minutes", "0", "--segment-bytes", "500"]
        self._command = [sys.executable, "-m", "callboard", "compact", *options]
        self._process: subprocess.Popen[bytes] | None = None

    def start_if_ended(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.finish()
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def finish(self) -> None:
        """Wait until it ends; it must have succeeded, unless it was killed."""
        if self._process is not None:
            _, stderr = self._process.communicate(timeout=300)
            assert self._process.returncode in (0, -signal.SIGKILL), stderr.decode()
            self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def __enter__(self) -> Compactor:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.finish()


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get("CALLBOARD_TEST_SEED") or random.randrange(1 << 32))
    print(f"CALLBOARD_TEST_SEED={seed} repeats the random moments of this run")
    return random.Random(seed)


@pytest.fixture
def load(tmp_path: Path) -> Iterator[LoadProcess]:
    load = LoadProcess(tmp_path)
    yield load
    load.finish()


def serve(folder: Path, sync: str = "always", settings: Mapping[str, object] = MappingProxyType({})) -> ServerProcess:
    options = ["--topic", f"{TOPIC}:{PARTITIONS}", "--sync", sync]
    return ServerProcess(folder, settings={**TEST_SETTINGS, **settings}, options=options)


def kill_under_load(server: ServerProcess, load: LoadProcess, rng: random.Random) -> ClientReport:
    """Run the load for a random time, kill the server, and return the report of the load."""
    load.run(server)
    time.sleep(rng.uniform(0, LOAD_S_MAX))
    server.kill()
    report = load.report()
    assert report.refusals == []
    return report


@pytest.mark.parametrize(
    ("sync", "settings"),
    [("always", {}), ("interval", {}), ("always", TINY_SEGMENTS)],
    ids=["always", "interval", "tiny segments"],
)
def test_kill_9_loses_no_acknowledged_commit_or_member(
    tmp_path: Path, load: LoadProcess, rng: random.Random, sync: str, settings: dict[str, object]
) -> None:
    """The server is killed under load in each round, and in a third of them once more during its start.

    Without a sync for each commit nothing is lost either: written data of a killed process stays in the page cache.
    """
    checked: set[str] = set()
    with serve(tmp_path, sync, settings) as server:
        for number in range(ROUNDS):
            report = kill_under_load(server, load, rng)
            if rng.random() < INTERRUPTED_STARTS_SHARE:
                server.launch()
                time.sleep(rng.uniform(0, START_S_MAX))
                server.kill()
            server.start()
            assert wrong_commits(server, report) == {}, f"(sent, acknowledged, fetched) after kill {number + 1}"
            new_members = [member for member in report.members if member[0] not in checked]
            checked |= {group for group, *_ in new_members}
            assert wrong_members(server, ClientReport({}, new_members, [])) == [], f"after kill {number + 1}"
        assert wrong_members(server, report) == []
    assert len(checked) >= ROUNDS and min(acknowledged for _, acknowledged in report.commits.values()) > ROUNDS


def test_kill_9_during_compaction_loses_no_acknowledged_commit(
    tmp_path: Path, load: LoadProcess, rng: random.Random
) -> None:
    """The cleaner of the server is killed with it, and ``callboard compact`` is killed in half of the rounds.

    Without a grace time it also publishes its files and removes the old ones while the server loads.
    """
    with serve(tmp_path, settings=BUSY_CLEANER) as server, Compactor(server.data) as compactor:
        for number in range(COMPACTING_ROUNDS):
            compactor.start_if_ended()
            report = kill_under_load(server, load, rng)
            if rng.random() < 0.5:
                compactor.kill()
            server.start()
            assert wrong_commits(server, report) == {}, f"(sent, acknowledged, fetched) after kill {number + 1}"
            assert wrong_members(server, report) == [], f"after kill {number + 1}"
        compactor.finish()
        server.restart()
        assert wrong_commits(server, report) == {}
        assert "damage in the log" not in server.log_since(0)
        manifests = "__consumer_offsets-*/.compaction/manifest/*.json"
        wait_until(lambda: list(server.data.glob(manifests)), bool, "a compaction that is not killed")


def test_torn_journal_frame_is_truncated(tmp_path: Path, load: LoadProcess, rng: random.Random) -> None:
    """Garbage in place of the next frame, as after a torn write, is cut and logged. Nothing else is changed."""
    with serve(tmp_path) as server:
        for _ in range(3):
            report = kill_under_load(server, load, rng)
            garbage = rng.randbytes(rng.randrange(20, GARBAGE_BYTES_MAX)) + b"\xff"
            tear(newest_journal(server), garbage)
            mark = server.log_size()
            server.start()
            assert wrong_commits(server, report) == {}
            assert wrong_members(server, report) == []
            assert str(len(garbage)) in server.log_since(mark)


def test_journal_replay_restores_lost_ends_of_partition_files(
    tmp_path: Path, load: LoadProcess, rng: random.Random
) -> None:
    """Partition files are not synced with each commit, so a power loss may remove any unsynced part."""
    with serve(tmp_path) as server:
        load.run(server)
        files = wait_until(lambda: partition_files(server), bool, "a partition file with data")
        server.kill()
        report = load.report()
        before = {path: path.read_bytes() for path in files}
        for path, content in before.items():
            with path.open("r+b") as file:
                # The first is cut within a batch, the others anywhere.
                file.truncate(len(content) - 1 if path == files[0] else rng.randrange(len(content)))
        mark = server.log_size()
        server.start()
        assert wrong_commits(server, report) == {}
        assert wrong_members(server, report) == []
        assert {path: path.read_bytes()[: len(content)] for path, content in before.items()} == before
        log_text = server.log_since(mark)
        assert "journal replayed" in log_text and "torn tail cut" in log_text


def newest_journal(server: ServerProcess) -> Path:
    """The journal with the highest number."""
    return max(path for path in (server.data / "journal").iterdir() if journal_number(path.name) is not None)


def tear(journal: Path, garbage: bytes) -> None:
    """Write garbage in place of the next frame."""
    end = scan_journal_file(journal).valid_bytes
    assert end > 0, "nothing was written to the journal"
    with journal.open("r+b") as file:
        file.seek(end)
        file.write(garbage)


def partition_files(server: ServerProcess) -> list[Path]:
    """The non-empty files of the offsets partitions; the server writes them some time after the journal."""
    return [path for path in server.data.glob("__consumer_offsets-*/*.log") if path.stat().st_size > 0]
