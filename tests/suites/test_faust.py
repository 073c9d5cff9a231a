"""Faust with an agent and a table: the program and the command of docs/frameworks.md."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from doc_pages import DOCS, blocks
from peers.server import ServerProcess
from peers.waiting import wait_until
from real_kafka.kafka import free_ports
from source_archive import SourceUnavailable

from .separate_environment import make_environment

REQUIREMENTS = Path(__file__).with_name("faust.txt")
TEXT = (DOCS / "frameworks.md").read_text(encoding="utf-8")
[PROGRAM] = [block.code for block in blocks(TEXT) if "faust.App" in block.code]
[COMMAND] = re.findall(r"^faust (.+)$", TEXT, re.MULTILINE)
DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter that has Faust. If it cannot be installed, the test is skipped; in CI it fails."""
    try:
        return make_environment(REQUIREMENTS)
    except SourceUnavailable as unavailable:
        if os.environ.get("CI"):
            pytest.fail(f"in CI Faust is not optional: {unavailable}")
        pytest.skip(str(unavailable))


class Worker:
    """A Faust worker whose output goes to ``log``."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    def totals(self) -> list[int]:
        """What the agent has printed. Faust logs each argument of ``print`` as a line."""
        return [int(total) for total in re.findall(r"WARNING\] (\d+) *$", self._log.read_text(), re.MULTILINE)]

    def wait_for_totals(self, count: int) -> list[int]:
        return wait_until(self.totals, lambda totals: len(totals) >= count, f"{count} totals", DEADLINE_S)


@contextmanager
def worker(python: Path, folder: Path, number: int) -> Iterator[Worker]:
    """The worker of the page, on a free port for its web server. It leaves its group at the end."""
    [port] = free_ports(1)
    log = folder / f"worker-{number}.txt"
    command = [str(python), "-m", "faust", *shlex.split(COMMAND), "--web-port", str(port)]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
    try:
        yield Worker(process, log)
    except AssertionError:
        print(log.read_text()[-4000:])
        raise
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def test_page_names_the_version_that_is_run() -> None:
    [version] = re.findall(r"^faust-streaming==(.+)$", REQUIREMENTS.read_text(), re.MULTILINE)
    assert set(re.findall(r"faust-streaming[ =]+([\d.]+\d)", TEXT)) == {version}


def test_faust_agent_sums_records_and_recovers_its_table(python: Path, tmp_path: Path) -> None:
    """The table is in memory, so the second worker reads it from its changelog, and goes on at the group's offsets."""
    settings = {"log_cleaner_backoff_ms": 1000, "group_initial_rebalance_delay_ms": 0}
    with ServerProcess(tmp_path, settings=settings, options=("--topic", "orders:2")) as server:
        (tmp_path / "shop.py").write_text(PROGRAM.replace("127.0.0.1:9092", server.bootstrap))
        with worker(python, tmp_path, 1) as first:
            first.wait_for_totals(3)
        sums = first.totals()
        with worker(python, tmp_path, 2) as second:
            continued = second.wait_for_totals(2)
    assert sums == list(range(1, len(sums) + 1))
    assert continued[:2] == [len(sums) + 1, len(sums) + 2]
