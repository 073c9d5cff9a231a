"""Commands with a Spark session print only their result on a terminal."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from links import LINKS
from partition_helpers import plain, write

from callboard.actors.records import OffsetRecord, OffsetValue
from callboard.runtime.log.folder import DataFolder

DEADLINE_S = 600.0
JVM = "WARNING: Using incubator modules"  # printed by Java before it reads Spark's or Callboard's settings


def test_spark_command_prints_only_its_result(java: None, tmp_path: Path) -> None:
    data = tmp_path / "data"
    DataFolder(data).close()
    write(data, 3, [plain(0, OffsetRecord("g", "t", 0, OffsetValue(1, -1, "", 5)))])
    completed = subprocess.run(
        [sys.executable, "-m", "callboard", "analyse", "commits", "--data", str(data)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(LINKS.parent), os.environ.get("PYTHONPATH", "")])},
    )
    assert completed.returncode == 0, completed.stderr
    assert [line.split()[0] for line in completed.stdout.splitlines()] == ["group", "g"]
    assert [line for line in completed.stderr.splitlines() if not line.startswith(JVM)] == []


FAILING_TASK = """
from callboard.spark.session import short_message, session

def fail(batches):
    raise ValueError("what was wrong")
    yield

with session("test", "local[1]") as spark:
    try:
        spark.range(1).mapInArrow(fail, "id bigint").collect()
    except Exception as error:
        print(short_message(error))
    try:
        spark.range(1).write.format("nonsense").save("nowhere")
    except Exception as error:
        print(short_message(error))
"""


def test_task_failure_is_printed_as_one_line(java: None) -> None:
    completed = subprocess.run(
        [sys.executable, "-c", FAILING_TASK],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(LINKS.parent), os.environ.get("PYTHONPATH", "")])},
    )
    first, second = completed.stdout.splitlines()
    assert first == "ValueError: what was wrong" and "DATA_SOURCE_NOT_FOUND" in second and "nonsense" in second
    assert [line for line in completed.stderr.splitlines() if not line.startswith(JVM)] == []


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError])
def test_worker_after_disconnect_exits_silently(error: type[OSError]) -> None:
    quiet_daemon = pytest.importorskip("callboard.spark.quiet_daemon")

    def worker(_sock: socket.socket, _authenticated: bool) -> int:
        raise error

    with socket.socket() as sock:
        assert quiet_daemon.ignore_disconnect(worker)(sock, True) == quiet_daemon.DISCONNECTED_EXIT_CODE
        assert quiet_daemon.ignore_disconnect(lambda *_: 0)(sock, True) == 0
