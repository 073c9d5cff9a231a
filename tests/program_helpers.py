"""Runs the program ``callboard`` in a process of its own: commands, refused commands, and servers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

DEADLINE_S = 300.0  # timeout for a process that hangs
PROGRAM = (sys.executable, "-m", "callboard")
STAND_IN = (sys.executable, str(Path(__file__).with_name("stand_in.py")))


def run(*arguments: str, folder: Path, program: Sequence[str] = PROGRAM) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*program, *arguments], cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


class Server:
    """A ready server process, and the lines of its standard output so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []
        self.ready = self.read_until("callboard ready on ").removeprefix("callboard ready on ")

    def read_until(self, start: str) -> str:
        """Read lines of standard output up to the first one with this prefix; return it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.rstrip("\n"))
            if line.startswith(start):
                return self.said[-1]
        raise AssertionError(f"no line starts with {start!r}; the process ended with {self.process.wait(DEADLINE_S)}")

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)

    def log(self) -> str:
        """Return standard error after the process has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read()


@contextmanager
def serving(
    folder: Path,
    *arguments: str,
    behaviour: str = "well",
    stderr: int = subprocess.PIPE,
    program: Sequence[str] = STAND_IN,
    listen: str = "127.0.0.1:0",
) -> Iterator[Server]:
    """A server on a free port, killed at the end if it still runs."""
    process = subprocess.Popen(
        [*program, "serve", "--listen", listen, *arguments],
        cwd=folder,
        env={**os.environ, "CALLBOARD_STAND_IN": behaviour},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    with process:
        try:
            yield Server(process)
        finally:
            process.kill()


def refusal(*arguments: str, folder: Path, program: Sequence[str] = PROGRAM) -> str:
    """Run a command that must be refused: one line on standard error, exit code 2, nothing changed on disk."""
    before = sorted(folder.rglob("*"))
    result = run(*arguments, folder=folder, program=program)
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert result.stderr.count("\n") == 1
    assert sorted(folder.rglob("*")) == before
    return result.stderr.removeprefix("callboard: ").rstrip("\n")
