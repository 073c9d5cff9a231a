"""No free file descriptors (EMFILE, ENFILE): treated as no room until some are free."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from math import inf
from pathlib import Path
from typing import Any

import pytest
from log_failure_helpers import (
    NO_ROOM,
    PARTITIONS,
    RETRIABLE,
    ROOM_AGAIN,
    ROOT,
    STORED,
    LogHarness,
    new_faulty_disk,
    offsets_after_crash,
    problem_events,
)
from peers.peer import client_environment
from project_paths import TESTS_FOLDER
from structlog.testing import capture_logs

from callboard.runtime.disk.disk import is_full, no_space_reason
from callboard.runtime.testing.disk.faulty import Fault

ERRORS = [errno.EMFILE, errno.ENFILE]
TIMEOUT_S = 240


@pytest.mark.parametrize("error", ERRORS)
def test_missing_descriptor_is_reported_as_no_room(error: int) -> None:
    failure = OSError(error, "Too many open files", "/data/x.log")
    assert is_full(failure)
    assert "no file descriptor is free" in no_space_reason(failure) and "ulimit -n" in no_space_reason(failure)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("operation", ["open", "sync_folder"])
@pytest.mark.parametrize("path", ["*journal*", "*__consumer_offsets*", "*"])
def test_log_without_descriptors_fails_nothing_and_recovers(error: int, operation: str, path: str) -> None:
    disk = new_faulty_disk(7)
    harness = LogHarness(disk, checkpoint_bytes=1, segment_bytes=200)
    harness.commit(0)
    harness.advance()
    disk.faults.fail(Fault(operation, error, path, times=inf))
    with capture_logs() as lines:
        for _ in range(5):
            harness.commit(0, 1, 2)
            harness.advance(2.0)
        assert not harness.log.stats().failure and not harness.log.stats().failures
        assert set(harness.errors) <= {STORED, RETRIABLE}
        assert offsets_after_crash(disk.kill()) == harness.stored
    assert problem_events(lines)[0] == NO_ROOM
    assert "no file descriptor is free" in lines[0]["reason"]


@pytest.mark.parametrize("seed", range(10))
def test_log_with_descriptors_again_has_all_records(seed: int) -> None:
    disk = new_faulty_disk(seed)
    harness = LogHarness(disk, checkpoint_bytes=1, segment_bytes=200)
    disk.faults.fail(Fault("open", errno.EMFILE, "*", times=inf, chance=0.8))
    disk.faults.fail(Fault("sync_folder", errno.EMFILE, "*", times=inf, chance=0.8))
    with capture_logs() as lines:
        for _ in range(8):
            harness.commit(0, 1, 2)
            harness.advance(2.0)
        disk.faults.clear()
        for _ in range(3):
            harness.advance()
        harness.commit(0, 1)
        harness.advance()
    assert problem_events(lines)[-1] == ROOM_AGAIN, lines
    assert harness.errors[-1] is STORED
    assert len(disk.names(ROOT / "journal")) == 1
    assert harness.offsets() == harness.stored == offsets_after_crash(disk)


def test_full_memory_refuses_commits_until_a_descriptor_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.runtime.log.writer.WAITING_BYTES", 1000)
    disk = new_faulty_disk()
    harness = LogHarness(disk)
    disk.faults.fail(Fault("open", errno.EMFILE, "*.log", times=inf))
    with capture_logs():
        for _ in range(30):
            harness.commit(0)
            harness.advance(2.0)
        assert harness.errors[-1] is RETRIABLE
        disk.faults.clear()
        harness.advance()
        harness.commit(0)
    assert harness.errors[-1] is STORED
    assert harness.offsets() == harness.stored == offsets_after_crash(disk)


PROGRAM = """
import json, os, resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from log_helpers import append, entry, offsets_in
from callboard.runtime.log.offsets_log import OffsetsLog

root = Path(sys.argv[1])
log = OffsetsLog(root, 3, checkpoint_bytes=1)
log.open()
errors = [append(log, [entry(0, 0)])[0].error.name]
list(log.read(0))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
taken = []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
for number in range(1, 30):
    errors.append(append(log, [entry(number % 3, number)])[0].error.name)
while not log.stats().full:
    pass
full = log.stats()
for fd in taken:
    os.close(fd)
while log.stats().full:
    pass
errors.append(append(log, [entry(0, 99)])[0].error.name)
found = {number: offsets_in(log, number) for number in range(3)}
log.close()
print(json.dumps({"errors": errors, "failure": full.failure + log.stats().failure, "found": found}), flush=True)
"""


def test_process_without_descriptors_continues_and_recovers(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(TESTS_FOLDER)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=client_environment(),
        check=False,
    )
    assert process.returncode == 0, f"{process.stdout}\n{process.stderr}"
    result: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    assert set(result["errors"]) <= {"NONE", "COORDINATOR_NOT_AVAILABLE"} and result["errors"][-1] == "NONE"
    assert result["failure"] == ""
    stored_numbers = [
        number for number, error in zip([*range(30), 99], result["errors"], strict=True) if error == "NONE"
    ]
    assert result["found"] == {
        str(partition): [number for number in stored_numbers if number % PARTITIONS == partition]
        for partition in range(3)
    }
    assert "no file descriptor is free" in process.stdout + process.stderr
