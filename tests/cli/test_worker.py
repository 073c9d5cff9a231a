"""Tests of ``callboard worker``: processes share the shards, are restarted, and leave when they are asked to stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from peers.server import ServerProcess
from program_helpers import DEADLINE_S, refusal
from tls_helpers import TlsFolder

from callboard.runtime.cli.worker.handler import find_handler
from callboard.runtime.cli.worker.restarts import LONGEST_DELAY_S, STABLE_RUN_S, restart_delay_s
from callboard.runtime.cli.worker.worker_command import parse_resource
from callboard.runtime.common.errors import StartError

SHARDS = 6

HANDLERS = """
import asyncio, os

def note(word, shard):
    with open("events.txt", "a") as file:
        file.write(f"{word} {shard.name} {os.getpid()}\\n")

def in_thread(shard):
    note("start", shard)
    shard.revoked.wait()
    note("end", shard)

async def in_task(shard):
    note("start", shard)
    try:
        await asyncio.Event().wait()
    finally:
        note("end", shard)

def ignores_its_end(shard):
    note("start", shard)
    import threading
    threading.Event().wait()

def fails(shard):
    note("start", shard)
    raise RuntimeError("this handler always fails")

number = 7
"""


class Event(NamedTuple):
    word: str
    shard: str
    pid: int


class Workers:
    """A running ``callboard worker`` in ``folder``."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._events = folder / "events.txt"

    def events(self) -> list[Event]:
        """The complete lines that the handlers have written."""
        text = self._events.read_text() if self._events.exists() else ""
        rows = [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]
        return [Event(word, shard, int(pid)) for word, shard, pid in rows]

    def running(self) -> dict[str, int]:
        """The process that works on each shard now."""
        running: dict[str, int] = {}
        for word, shard, pid in self.events():
            if word == "start":
                running[shard] = pid
            elif running.get(shard) == pid:
                del running[shard]
        return running

    def wait_until(self, is_reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not is_reached():
            assert self.process.poll() is None, f"it ended with {self.process.returncode}"
            assert time.monotonic() < deadline, self.events()
            time.sleep(0.05)

    def wait_until_shared(self, processes: int) -> None:
        """Wait until each shard is worked on, by so many processes that live."""
        self.wait_until(
            lambda: (
                len(self.running()) == SHARDS
                and len(set(self.running().values())) == processes
                and all(is_alive(pid) for pid in self.running().values())
            )
        )

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def workers(folder: Path, handler: str, *options: str, processes: int = 3) -> Iterator[Workers]:
    given = ["--group", "g", "--resource", f"jobs:{SHARDS}", "--processes", str(processes), "--restart-delay", "0.1"]
    with started(folder, handler, *given, "--session-timeout-ms", "6000", *options) as running:
        yield running


@contextmanager
def started(folder: Path, handler: str, *options: str) -> Iterator[Workers]:
    """``callboard worker`` with exactly these options."""
    (folder / "work.py").write_text(HANDLERS)
    command = [sys.executable, "-m", "callboard", "worker", f"work:{handler}", *options]
    with (folder / "stderr.txt").open("w") as stderr:
        process = subprocess.Popen(command, cwd=folder, stderr=stderr, text=True)
    try:
        yield Workers(folder, process)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("handler", ["in_thread", "in_task"])
def test_processes_share_the_shards_and_end_their_handlers_on_sigterm(handler: str, tmp_path: Path) -> None:
    with workers(tmp_path, handler) as running:
        running.wait_until_shared(3)
        pids = set(running.running().values())
        assert running.stop() == 0
    assert running.running() == {}, "each handler has ended"
    assert not any(is_alive(pid) for pid in pids)


def test_killed_process_is_restarted_and_its_shards_are_worked_on(tmp_path: Path) -> None:
    with workers(tmp_path, "in_thread") as running:
        running.wait_until_shared(3)
        victim = running.running()["0"]
        os.kill(victim, signal.SIGKILL)
        running.wait_until(lambda: not is_alive(victim))
        running.wait_until_shared(3)
        assert victim not in running.running().values()
        assert running.stop(signal.SIGINT) == 0
    assert "a worker process ended and is restarted" in (tmp_path / "stderr.txt").read_text()


def test_processes_leave_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    with workers(tmp_path, "in_thread", processes=2) as running:
        running.wait_until_shared(2)
        pids = set(running.running().values())
        running.process.kill()
        running.process.wait()
        deadline = time.monotonic() + DEADLINE_S
        while any(is_alive(pid) for pid in pids):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert running.running() == {}, "the handlers ended, too"


def test_process_that_does_not_leave_in_time_is_killed(tmp_path: Path) -> None:
    with workers(tmp_path, "ignores_its_end", "--stop-timeout", "0.5", processes=1) as running:
        running.wait_until_shared(1)
        assert running.stop() == 1
    assert "did not leave in time and is killed" in (tmp_path / "stderr.txt").read_text()


def test_handler_that_fails_is_restarted(tmp_path: Path) -> None:
    with workers(tmp_path, "fails", processes=1) as running:
        running.wait_until(lambda: len({event.pid for event in running.events()}) >= 2)
        assert running.stop() == 0
    assert "this handler always fails" in (tmp_path / "stderr.txt").read_text()


def test_variables_are_options_and_processes_join_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CALLBOARD_DATA may be there for the server on the same machine."""
    monkeypatch.setenv("CALLBOARD_GROUP", "g")
    monkeypatch.setenv("CALLBOARD_RESOURCE", f"jobs:{SHARDS - 2} others:2")
    monkeypatch.setenv("CALLBOARD_PROCESSES", "2")
    monkeypatch.setenv("CALLBOARD_LOG_FORMAT", "json")
    monkeypatch.setenv("CALLBOARD_DATA", "unused")
    with ServerProcess(tmp_path) as server:
        monkeypatch.setenv("CALLBOARD_BOOTSTRAP_SERVER", server.bootstrap)
        with started(tmp_path, "in_task") as running:
            running.wait_until(lambda: len({event.pid for event in running.events()}) == 2)
            assert running.stop() == 0
    assert not (tmp_path / "unused").exists()
    lines = (tmp_path / "stderr.txt").read_text().splitlines()
    assert [json.loads(line)["number"] for line in lines if "a worker process started" in line] == [0, 1]


def test_own_coordinator_keeps_its_data_and_overrides_the_variable_of_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBOARD_BOOTSTRAP_SERVER", "127.0.0.1:1")
    with workers(tmp_path, "in_task", "--data", "data", processes=1) as running:
        running.wait_until_shared(1)
        assert running.stop() == 0
    assert (tmp_path / "data" / "callboard.json").exists()


def test_processes_join_a_server_with_the_security_settings_of_the_file_of_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = TlsFolder(tmp_path)
    keys = (f"ssl_keystore_location={files.keystore}", f"ssl_truststore_location={files.truststore}")
    settings = [part for each in (*keys, "ssl_client_auth=required") for part in ("--set", each)]
    properties = {
        "security.protocol": "SSL",
        "ssl.truststore.location": files.truststore,
        "ssl.keystore.location": files.client("worker"),
    }
    (tmp_path / "client.properties").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    monkeypatch.setenv("CALLBOARD_COMMAND_CONFIG", "client.properties")
    with (
        ServerProcess(tmp_path, listener="SSL", options=settings) as server,
        workers(tmp_path, "in_task", "--bootstrap-server", server.bootstrap, processes=1) as running,
    ):
        running.wait_until_shared(1)
        assert running.stop() == 0


def test_own_coordinator_needs_no_security_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the environment are for servers."""
    monkeypatch.setenv("CALLBOARD_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("CALLBOARD_SSL_TRUSTSTORE_LOCATION", str(TlsFolder(tmp_path).truststore))
    with workers(tmp_path, "in_task", processes=1) as running:
        running.wait_until_shared(1)
        assert running.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["work", "--resource", "jobs:1"], "bad handler 'work': expected MODULE:FUNCTION"),
        (["work:handle", "--resource", "jobs"], "bad --resource 'jobs': expected NAME:SHARDS"),
        (["work:handle", "--resource", "jobs:1", "-b", "h:1", "--data", "d"], "leave out --data or"),
        (["work:handle", "--resource", "jobs:1", "-b", "h"], "bad --bootstrap-server"),
    ],
)
def test_worker_with_wrong_options_is_refused(arguments: Sequence[str], message: str, tmp_path: Path) -> None:
    assert message in refusal("worker", *arguments, "--group", "g", folder=tmp_path)


def test_worker_with_unknown_handler_is_refused_by_its_processes(tmp_path: Path) -> None:
    with workers(tmp_path, "in_tread") as running:
        assert running.process.wait(DEADLINE_S) == 2
    assert "in_tread does not exist in work; did you mean in_thread?" in (tmp_path / "stderr.txt").read_text()


def test_handler_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "found_work.py").write_text(HANDLERS)
    (tmp_path / "broken_work.py").write_text("import no_such_library")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert find_handler("found_work:in_task").__name__ == "in_task"
    for name, message in (
        ("found_work:number", "number is no function in found_work"),
        ("no_such_work:handle", "found no module no_such_work"),
    ):
        with pytest.raises(StartError, match=message):
            find_handler(name)
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        find_handler("broken_work:handle")


def test_delays_before_restarts_double_up_to_a_minute_and_begin_again_after_a_long_run() -> None:
    delays: list[float] = []
    for _ in range(9):
        delays.append(restart_delay_s(1, delays[-1] if delays else None, ran_s=0.5))
    assert delays == [1, 2, 4, 8, 16, 32, LONGEST_DELAY_S, LONGEST_DELAY_S, LONGEST_DELAY_S]
    assert restart_delay_s(1, 32, ran_s=STABLE_RUN_S) == 1
    assert restart_delay_s(0, 0, ran_s=1) == 0 and restart_delay_s(100, 100, ran_s=1) == 100


def test_resource_may_have_a_colon_in_its_name() -> None:
    assert parse_resource("urn:jobs:12") == ("urn:jobs", 12)
    for text in ("jobs:0", "jobs:x", ":3", "jobs", "jobs:\u0661", "jobs:" + "9" * 5000):
        with pytest.raises(StartError):
            parse_resource(text)
