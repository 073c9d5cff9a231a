"""The web workers of docs/running.md: its application and its two commands, with two workers on a free port."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from doc_pages import DOCS
from peers.server import ServerProcess
from peers.waiting import wait_until
from program_helpers import DEADLINE_S, run
from real_kafka.kafka import HOST, free_ports

TEXT = (DOCS / "running.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^CALLBOARD_BOOTSTRAP_SERVER=\S+ ((?:uvicorn|gunicorn) .*)$", TEXT, re.MULTILINE)
PORT_OPTIONS = {"uvicorn": ("--port", "{port}"), "gunicorn": ("-b", "{host}:{port}")}
SHARDS = 12
WORKERS = 2


@contextmanager
def web_server(command: str, port: int, bootstrap: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    program, *arguments = shlex.split(re.sub(r"(?<=-w |rs )\d+", str(WORKERS), command))
    arguments += [option.format(host=HOST, port=port) for option in PORT_OPTIONS[program]]
    environment = {**os.environ, "CALLBOARD_BOOTSTRAP_SERVER": bootstrap}
    process = subprocess.Popen([sys.executable, "-m", program, *arguments], cwd=folder, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def shares(bootstrap: str) -> list[int]:
    """How many shards each process owns."""
    described = run("groups", "describe", "imports", "-b", bootstrap, "--json", folder=DOCS)
    if described.returncode != 0:
        return []  # there is no group before its first member
    members: Any = json.loads(described.stdout)["members"]
    return [len(member["assigned"] or ()) for member in members]


def test_the_page_has_two_commands() -> None:
    assert [command.split()[0] for command in COMMANDS] == ["uvicorn", "gunicorn"]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command.split()[0]))
def test_web_workers_of_the_page_share_the_shards(command: str, tmp_path: Path) -> None:
    [block] = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    (tmp_path / "web.py").write_text(block)
    [port] = free_ports(1)
    with ServerProcess(tmp_path) as server:
        with web_server(command, port, server.bootstrap, tmp_path) as process:
            wanted = [SHARDS // WORKERS] * WORKERS
            wait_until(lambda: shares(server.bootstrap), lambda found: found == wanted, "shares", DEADLINE_S)
            with urlopen(f"http://{HOST}:{port}/shards", timeout=DEADLINE_S) as answer:
                assert len(json.load(answer)) in (0, SHARDS // WORKERS)  # 0: not received yet
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0
        assert shares(server.bootstrap) == [], "each process has left, at once"
