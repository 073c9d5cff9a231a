"""A private PostgreSQL for tests: Debian's programs, a temporary folder, a free port, no password.

Its processes belong to the user ``postgres`` if the tests run as root, because the server refuses to run as root.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
INSTALLED = Path("/usr/lib/postgresql")
ADMINISTRATOR = "postgres"
GUARDED_USER, GUARDED_PASSWORD = "guarded", "open-sesame"
TIMEOUT_S = 120
SETTINGS = {
    "listen_addresses": HOST,
    "shared_buffers": "16MB",
    "max_wal_size": "256MB",
    "max_connections": "100",
    "log_min_messages": "log",
}
ACCESS = f"""local all all trust
host all {GUARDED_USER} {HOST}/32 scram-sha-256
host all all {HOST}/32 trust
host replication all {HOST}/32 trust
"""


def missing_postgres() -> str | None:
    """Why there can be no server here, and how to get one; None if there can."""
    if programs() is None:
        return "PostgreSQL is not installed: apt-get install postgresql"
    return None


def programs() -> Path | None:
    """The folder of ``initdb`` and the others, of the newest version."""
    versions = [path.parent for path in INSTALLED.glob("*/bin/initdb")]
    if versions:
        return max(versions, key=lambda folder: int(folder.parent.name))
    found = shutil.which("initdb")
    return Path(found).parent if found else None


def wait_for_end(pid: int) -> None:
    """Until no such process runs; it may be a child of nobody who would wait for it."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while (status := _status(pid)) and " Z " not in status:
        assert time.monotonic() < deadline_s, f"process {pid} does not end"
        time.sleep(0.01)


def _status(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text()
    return ""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
        return port


class PostgresServer:
    """A server that runs from ``with`` to its end. ``settings``: of ``postgresql.conf``, beside ``SETTINGS``.

    ``network``: may connect, too, without a password.
    """

    def __init__(self, settings: Mapping[str, str] | None = None, network: str = "") -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="callboard-postgres-"))
        self.data = self.folder / "data"
        self._access = ACCESS + (f"host all all {network} trust\n" if network else "")
        self._settings = {**SETTINGS, **(settings or {})}
        self.owner = ADMINISTRATOR if os.geteuid() == 0 else None
        if self.owner:
            shutil.chown(self.folder, self.owner)

    def __enter__(self) -> Self:
        try:
            self.make()
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def make(self) -> None:
        """Make the files of a new server."""
        self._run(
            "initdb", "-D", self.data, "-U", ADMINISTRATOR, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"
        )
        (self.data / "pg_hba.conf").write_text(self._access)
        self._configure()

    def start(self) -> None:
        """Start, and wait until connections are accepted."""
        self._run("pg_ctl", "start", "-w", "-D", self.data, "-l", self.folder / "log")

    def stop(self, mode: str = "fast") -> None:
        """``immediate`` is a crash: the next start replays the log. Does nothing if it does not run."""
        if (self.data / "postmaster.pid").exists():
            self._run("pg_ctl", "stop", "-w", "-D", self.data, "-m", mode)

    def crash(self) -> None:
        """End all its processes with ``kill -9``, the postmaster first, so that it cannot stop the others cleanly."""
        postmaster = int((self.data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for pid in (postmaster, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in (postmaster, *map(int, children)):
            wait_for_end(pid)
        # Where nobody waits for processes without a parent, their ids stay in use, and a start would believe the locks.
        (self.data / "postmaster.pid").unlink()
        (self.folder / f".s.PGSQL.{self.port}.lock").unlink(missing_ok=True)

    def remove(self) -> None:
        try:
            self.stop("immediate")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def standby(self, name: str) -> PostgresServer:
        """A standby of this server, not started. It is synchronous if ``synchronous_standby_names`` has its name."""
        standby = PostgresServer(self._settings)
        self._run("pg_basebackup", "-D", standby.data, "-d", self._conninfo(name), "-R", "--no-sync", "-c", "fast")
        standby._configure()
        return standby

    def promote(self) -> None:
        """Make a standby a primary."""
        self._run("pg_ctl", "promote", "-w", "-D", self.data)

    def start_if_stopped(self) -> None:
        if not (self.data / "postmaster.pid").exists():
            self.start()

    def sql(self, statement: str, database: str = ADMINISTRATOR) -> str:
        """What ``psql`` prints for statements, each of which commits by itself."""
        command = ("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", self.url(database=database))
        lines = statement if statement.rstrip().endswith(";") else f"{statement};"
        return self._run(*command, text=lines).strip()

    def url(
        self,
        user: str = ADMINISTRATOR,
        password: str = "",
        database: str = "postgres",
        port: int = 0,
        host: str = HOST,
    ) -> str:
        """``port``: of a proxy in front of the server."""
        secret = f":{password}" if password else ""
        return f"postgresql://{user}{secret}@{host}:{port or self.port}/{database}"

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def _conninfo(self, name: str) -> str:
        return f"host={HOST} port={self.port} user={ADMINISTRATOR} application_name={name}"

    def _configure(self) -> None:
        settings = {**self._settings, "port": str(self.port), "unix_socket_directories": str(self.folder)}
        lines = [f"{name} = '{value}'\n" for name, value in settings.items()]
        (self.data / "postgresql.conf").write_text("".join(lines))

    def _run(self, program: str, *arguments: str | Path, text: str = "") -> str:
        folder = programs()
        assert folder is not None, missing_postgres()
        completed = subprocess.run(
            (folder / program, *arguments),
            cwd=self.folder,
            user=self.owner,
            group=self.owner,
            extra_groups=[] if self.owner else None,
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        log = self.folder / "log"
        told = log.read_text() if program == "pg_ctl" and completed.returncode and log.exists() else ""
        assert completed.returncode == 0, f"{program}: {completed.stdout}{told}"
        return completed.stdout
