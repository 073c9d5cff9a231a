"""File descriptors that run out (EMFILE, ENFILE): no room now, and again room when some are free."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from math import inf
from pathlib import Path
from typing import Any

import pytest
from peers.peer import client_environment
from structlog.testing import capture_logs
from test_log_failures import (
    LATER,
    PARTITIONS,
    ROOM_AGAIN,
    ROOM_ENDED,
    ROOT,
    STORED,
    Desk,
    after_crash,
    events,
    new_disk,
)

from callboard.runtime.disk.disk import is_full, no_room_reason
from callboard.runtime.disk.faulty import Fault

ERRORS = [errno.EMFILE, errno.ENFILE]
PATIENCE_S = 240


@pytest.mark.parametrize("error", ERRORS)
def test_missing_descriptor_is_no_room_and_the_reason_says_so(error: int) -> None:
    failure = OSError(error, "Too many open files", "/data/x.log")
    assert is_full(failure)
    assert "no file descriptor is free" in no_room_reason(failure) and "ulimit -n" in no_room_reason(failure)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("operation", ["open", "sync_folder"])
@pytest.mark.parametrize("path", ["*journal*", "*__consumer_offsets*", "*"])
def test_log_without_descriptors_fails_nothing_and_heals(error: int, operation: str, path: str) -> None:
    disk = new_disk(7)
    desk = Desk(disk, checkpoint_bytes=1, segment_bytes=200)
    desk.commit(0)
    desk.later()
    disk.fail(Fault(operation, error, path, times=inf))
    with capture_logs() as lines:
        for _ in range(5):
            desk.commit(0, 1, 2)
            desk.later(2.0)
        assert not desk.log.stats().failure and not desk.log.stats().failures
        assert set(desk.errors) <= {STORED, LATER}
        assert after_crash(disk.kill()) == desk.stored
    assert events(lines)[0] == ROOM_ENDED
    assert "no file descriptor is free" in lines[0]["reason"]


@pytest.mark.parametrize("seed", range(10))
def test_log_that_has_descriptors_again_goes_on_as_before(seed: int) -> None:
    disk = new_disk(seed)
    desk = Desk(disk, checkpoint_bytes=1, segment_bytes=200)
    disk.fail(Fault("open", errno.EMFILE, "*", times=inf, chance=0.8))
    disk.fail(Fault("sync_folder", errno.EMFILE, "*", times=inf, chance=0.8))
    with capture_logs() as lines:
        for _ in range(8):
            desk.commit(0, 1, 2)
            desk.later(2.0)
        disk.mend()
        for _ in range(3):
            desk.later()
        desk.commit(0, 1)
        desk.later()
    assert events(lines)[-1] == ROOM_AGAIN, lines
    assert desk.errors[-1] is STORED
    assert len(disk.names(ROOT / "journal")) == 1
    assert desk.found() == desk.stored == after_crash(disk)


def test_bounded_memory_refuses_commits_until_there_is_a_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.runtime.log.writer.WAITING_BYTES", 1000)
    disk = new_disk()
    desk = Desk(disk)
    disk.fail(Fault("open", errno.EMFILE, "*.log", times=inf))
    with capture_logs():
        for _ in range(30):
            desk.commit(0)
            desk.later(2.0)
        assert desk.errors[-1] is LATER
        disk.mend()
        desk.later()
        desk.commit(0)
    assert desk.errors[-1] is STORED
    assert desk.found() == desk.stored == after_crash(disk)


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


def test_real_process_without_descriptors_goes_on_and_heals(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=client_environment(),
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert set(said["errors"]) <= {"NONE", "COORDINATOR_NOT_AVAILABLE"} and said["errors"][-1] == "NONE"
    assert said["failure"] == ""
    stored = [number for number, error in zip([*range(30), 99], said["errors"], strict=True) if error == "NONE"]
    assert said["found"] == {
        str(partition): [number for number in stored if number % PARTITIONS == partition] for partition in range(3)
    }
    assert "no file descriptor is free" in done.stdout + done.stderr
