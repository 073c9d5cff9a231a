"""Commands with a Spark session print only their result on a terminal."""

from __future__ import annotations

import logging
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from links import LINKS
from partition_helpers import plain, write

from callboard.actors.records import OffsetRecord, OffsetValue
from callboard.runtime.log.folder import DataFolder

DEADLINE_S = 600.0
JVM = "WARNING: Using incubator modules"  # printed by Java before it reads Spark's or Callboard's settings


PROGRAM = """
import sys

from callboard.spark.commands import questions
from callboard.spark.session import short_message, session

def fail(batches):
    raise ValueError("what was wrong")
    yield

with session("test") as spark:
    try:
        spark.range(1).mapInArrow(fail, "id bigint").collect()
    except Exception as error:
        print(short_message(error))
    try:
        spark.range(1).write.format("nonsense").save("nowhere")
    except Exception as error:
        print(short_message(error))
    try:
        spark.read.schema("id bigint").parquet(sys.argv[1] + "/callboard.json").collect()
    except Exception as error:
        print(short_message(error))
    try:
        questions.main(["commits", "--data", sys.argv[1]])
    except SystemExit as end:
        print("exit code", end.code)
"""


def test_command_prints_only_its_result_and_task_failure_is_one_line(java: None, tmp_path: Path) -> None:
    """In the session of the commands, which this process starts and ends."""
    data = tmp_path / "data"
    DataFolder(data).close()
    write(data, 3, [plain(0, OffsetRecord("g", "t", 0, OffsetValue(1, -1, "", 5)))])
    completed = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(data)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(LINKS.parent), os.environ.get("PYTHONPATH", "")])},
    )
    assert completed.returncode == 0, completed.stderr
    first, second, third, *table, last = completed.stdout.splitlines()
    assert first == "ValueError: what was wrong" and "DATA_SOURCE_NOT_FOUND" in second and "nonsense" in second
    assert "FAILED_READ_FILE" in third and "; the cause: RuntimeException: file:" in third
    assert "is not a Parquet file" in third
    assert [line.split()[0] for line in table] == ["group", "g"] and last == "exit code 0"
    assert [line for line in completed.stderr.splitlines() if not line.startswith(JVM)] == []


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError])
def test_worker_after_disconnect_exits_silently(error: type[OSError]) -> None:
    quiet_daemon = pytest.importorskip("callboard.spark.quiet_daemon")

    def worker(_sock: socket.socket, _authenticated: bool) -> int:
        raise error

    with socket.socket() as sock:
        assert quiet_daemon.ignore_disconnect(worker)(sock, True) == quiet_daemon.DISCONNECTED_EXIT_CODE
        assert quiet_daemon.ignore_disconnect(lambda *_: 0)(sock, True) == 0


def test_stack_traces_of_py4j_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Ctrl-C printed fifty lines."""
    quiet_session = pytest.importorskip("callboard.spark.session")

    def log(path: str) -> None:
        logging.getLogger().handle(logging.LogRecord("root", logging.ERROR, path, 1, path, None, None))

    with quiet_session.without_log_of_py4j():
        log("site-packages/py4j/java_gateway.py")
        log("other/py4j.py")
    log("site-packages/py4j/clientserver.py")
    assert caplog.messages == ["other/py4j.py", "site-packages/py4j/clientserver.py"]


WORKER = """
def main(infile, outfile):
    import {module}
    infile.read(1)  # a request, or the end of the session
    outfile.write(b"answer")
"""


@pytest.fixture(params=["source", "tasks"])
def sparks_daemon(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """Spark's own daemon. Its workers plan a query, which imports the data source, or run a task of a job."""
    tmp_path.joinpath("pyspark_worker.py").write_text(WORKER.format(module=f"callboard.spark.{request.param}"))
    path = os.pathsep.join([str(tmp_path), str(LINKS.parent), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as sockets:  # a socket's path must be short
        spark_settings = {"PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SOCK_DIR": sockets}
        spark_settings |= {"SPARK_REUSE_WORKER": "1", "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1"}
        with subprocess.Popen(
            [sys.executable, "-m", "pyspark.daemon", "pyspark_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **spark_settings, "PYTHONPATH": path},
        ) as daemon:
            yield daemon


def read_number(stream: Any) -> int:
    return int(struct.unpack(">i", stream.read(4))[0])


def wait_until_ended(pid: int) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    raise TimeoutError(f"process {pid} still runs")


def test_idle_worker_of_sparks_own_daemon_exits_silently(sparks_daemon: subprocess.Popen[bytes]) -> None:
    """Spark closes its connection after a minute, and before the signal at the end of a session."""
    assert sparks_daemon.stdin and sparks_daemon.stdout and sparks_daemon.stderr
    address = sparks_daemon.stdout.read(read_number(sparks_daemon.stdout))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        with connection.makefile("rb") as answers:
            pid = read_number(answers)
            connection.sendall(b"1")
            assert answers.read(6) == b"answer"
    wait_until_ended(pid)
    sparks_daemon.stdin.close()
    assert sparks_daemon.stderr.read() == b""
