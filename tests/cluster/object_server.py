"""A private server with S3's protocol for tests: moto's, which keeps everything in memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from .postgres_server import HOST, free_port

BUCKET = "callboard"
START_S = 60.0
PROGRAM = Path(__file__).with_name("moto_program.py")
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
"""Environment variables of its clients. It looks at none of them."""


def missing_object_server() -> str | None:
    """Why there can be no server here, and how to get one; None if there can."""
    if any(find_spec(name) is None for name in ("moto", "flask", "flask_cors", "obstore")):
        return "moto's server is not installed: pip install 'callboard[test]'"
    return None


class ObjectServer:
    """Runs while it is entered. It has one bucket."""

    def __init__(self) -> None:
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, prefix: str = "test", port: int | None = None) -> str:
        return f"s3://{BUCKET}/{prefix}?endpoint=http://{HOST}:{port or self.port}"

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, PROGRAM, HOST, str(self.port)],
            env={**os.environ, "MOTO_CALL_RESET_API": "false"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline_s = time.monotonic() + START_S
        while not self._has_made_bucket():
            assert time.monotonic() < deadline_s and self._process.poll() is None, "moto's server does not start"
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _has_made_bucket(self) -> bool:
        connection = HTTPConnection(HOST, self.port, timeout=START_S)
        try:
            connection.request("PUT", f"/{BUCKET}")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()
