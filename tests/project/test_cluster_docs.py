"""The commands of docs/cluster.md run in their order, on a private PostgreSQL, and its links exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cluster.engine_cases import skip_or_fail
from cluster.postgres_server import PostgresServer, free_port, missing_postgres
from doc_pages import DOCS, dead_links

from callboard.runtime.log.folder import DataFolder

PAGE = DOCS / "cluster.md"
URL = "postgresql://callboard@db.example/callboard"
PORTS = ("9092", "9192", "9292")
COMMAND = re.compile(r"^callboard (.*)$", re.MULTILINE)
END_S = 120


def blocks(language: str) -> Iterator[str]:
    """The code blocks of the page, in their order."""
    for match in re.finditer(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        yield match[1]


def commands() -> list[str]:
    return [match[1] for block in blocks("sh") for match in COMMAND.finditer(block)]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    if (reason := missing_postgres()) is not None:
        skip_or_fail(reason)
    with PostgresServer() as server:
        yield server


def test_commands_of_the_page_work_in_their_order(postgres: PostgresServer, tmp_path: Path) -> None:
    for block in blocks("sql"):
        postgres.sql(block)
    postgres.sql("create database empty owner callboard;")
    DataFolder(tmp_path / "data").close()
    ports = {port: str(free_port()) for port in PORTS}
    with ExitStack() as servers:
        for command in commands():
            database = "empty" if command.startswith("cluster import") else "callboard"
            text = command.replace(URL, postgres.url("callboard", database=database))
            for port, free in ports.items():
                text = text.replace(f":{port}", f":{free}")
            run(shlex.split(text), tmp_path, servers)
        assert sum(command.startswith("serve") for command in commands()) == len(PORTS)
    assert (tmp_path / "copy" / "callboard.json").exists()


def run(arguments: list[str], folder: Path, servers: ExitStack) -> None:
    """Start a server and wait until it has joined, or run another command until it has ended well."""
    program = [sys.executable, "-m", "callboard", *arguments]
    if arguments[0] == "serve":
        path = folder / f"{arguments[arguments.index('--node-name') + 1]}.log"
        with path.open("w") as log:
            server = subprocess.Popen(program, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True)
        assert server.stdout is not None
        servers.callback(server.stdout.close)
        servers.callback(server.wait)
        servers.callback(server.kill)
        assert "ready on" in server.stdout.readline(), path.read_text()
        wait_until_joined(path)
        return
    ended = subprocess.run(program, cwd=folder, capture_output=True, text=True, timeout=END_S, check=False)
    # A check warns that there is no standby, which is no error.
    assert ended.returncode == 0, (arguments, ended.stdout, ended.stderr)


def wait_until_joined(log: Path) -> None:
    deadline_s = time.monotonic() + END_S
    while "joined the cluster" not in log.read_text():
        assert time.monotonic() < deadline_s, log.read_text()
        time.sleep(0.02)


def test_links_of_the_page_exist() -> None:
    assert dead_links(PAGE) == []
