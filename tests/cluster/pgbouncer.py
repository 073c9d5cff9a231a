"""PgBouncer in front of a private PostgreSQL, with a connection of the server for each transaction."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from types import TracebackType
from typing import Self

from .postgres_server import HOST, PostgresServer, free_port

PROGRAM = "pgbouncer"
START_S = 30.0


def missing_pgbouncer() -> str | None:
    """Why there can be none here, and how to get it; None if there can."""
    return None if shutil.which(PROGRAM) else "PgBouncer is not installed: apt-get install pgbouncer"


class PgBouncer:
    """Runs from ``with`` to its end."""

    def __init__(self, server: PostgresServer) -> None:
        self.port = free_port()
        self._server = server
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        folder = self._server.folder
        (folder / "users.txt").write_text('"postgres" ""\n')
        settings = (
            *("[databases]", f"* = host={HOST} port={self._server.port}", "[pgbouncer]", "pool_mode = transaction"),
            *(f"listen_addr = {HOST}", f"listen_port = {self.port}", "unix_socket_dir =", "auth_type = trust"),
            *(f"auth_file = {folder / 'users.txt'}", "default_pool_size = 4", f"logfile = {folder / 'pgbouncer.log'}"),
        )
        settings_file = folder / "pgbouncer.ini"
        settings_file.write_text("\n".join(settings))
        command = (PROGRAM, "-q", settings_file)
        self._process = subprocess.Popen(command, user=self._server.owner, stderr=subprocess.DEVNULL)
        self._wait_until_it_listens()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def url(self) -> str:
        return self._server.url(port=self.port)

    def _wait_until_it_listens(self) -> None:
        end = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection((HOST, self.port)).close()
                return
            except ConnectionRefusedError:
                assert time.monotonic() < end, (self._server.folder / "pgbouncer.log").read_text()
                time.sleep(0.02)
