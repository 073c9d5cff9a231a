"""Shared by the benchmarks: child processes, their CPU time and memory, medians, tables and JSON.

Benchmarks report times and do not assert them, except the bars of ``overload``.
"""

from __future__ import annotations

import json
import os
import platform
import re
import select
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from callboard.actors.text import did_you_mean
from callboard.runtime.common.python_build import python_build

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
CPU_CLOCK = 2  # as the kernel's CPUCLOCK_SCHED, in the number of a process's clock
ERROR_TAIL_LINES = 20
FILE_COLUMNS = 136  # of a table that is written to a file or a pipe

Key = TypeVar("Key", bound=Hashable)

_READY = re.compile(r" ready on (\S+:\d+)$")


class BenchError(Exception):
    """A benchmark cannot continue; the text gives the cause and the remedy."""


class ChildProcess:
    """A child process with line-based input and output.

    Its standard error goes to a file, by default one without a name, and is shown only if it fails.
    """

    def __init__(
        self, arguments: Sequence[str], name: str, python: str = sys.executable, errors: Path | None = None
    ) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile() if errors is None else errors.open("w+b")  # noqa: SIM115 (stop closes it)
        self._pending = b""
        self._process = subprocess.Popen(
            [python, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def write_line(self, text: str) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(text.encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            raise BenchError(self._error_text("ended")) from None

    def read_line(self, timeout_s: float) -> str:
        """The next line of its standard output. Raises BenchError if it ends, or after ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            self._pending += self._read(deadline - time.monotonic())
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode().rstrip()

    def has_output(self, timeout_s: float) -> bool:
        """Whether a line can be read, or the process has ended. Waits at most ``timeout_s``."""
        stdout = self._process.stdout
        assert stdout is not None
        return bool(self._pending or select.select([stdout], (), (), timeout_s)[0])

    def _read(self, timeout_s: float) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None
        poll = select.poll()  # select() takes no descriptor above 1023, and some benches have thousands of connections
        poll.register(stdout, select.POLLIN)
        if timeout_s <= 0 or not poll.poll(timeout_s * 1000):
            raise BenchError(self._error_text("sent no output in time"))
        data = os.read(stdout.fileno(), 65536)
        if not data:
            self._process.wait(STOP_TIMEOUT_S)
            raise BenchError(self._error_text(f"ended with exit code {self._process.returncode}"))
        return data

    def _error_text(self, description: str) -> str:
        self._errors.seek(0)
        tail = self._errors.read().decode(errors="replace").splitlines()[-ERROR_TAIL_LINES:]
        return "\n".join([f"{self.name} {description}. The end of its standard error:", *(tail or ["(none)"])])

    def stop(self) -> None:
        """Stop the process with SIGTERM, and SIGKILL if it does not end. Can be called twice."""
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()


class Server(ChildProcess):
    """A child process that is a server and prints ``... ready on HOST:PORT`` when it is ready.

    ``ready_s``: seconds from the start of the process until that line was read.
    """

    def __init__(self, arguments: Sequence[str], name: str, errors: Path | None = None) -> None:
        started = time.perf_counter()
        super().__init__(arguments, name, errors=errors)
        try:
            self.address = self._await_ready()
        except BaseException:
            self.stop()
            raise
        self.ready_s = time.perf_counter() - started

    def _await_ready(self) -> str:
        line = self.read_line(START_TIMEOUT_S)
        match = _READY.search(line)
        if match is None:
            raise BenchError(f"{self.name}: expected a line '... ready on HOST:PORT', got {line!r}")
        return match[1]


def run_once(arguments: Sequence[str], name: str, timeout_s: float) -> dict[str, Any]:
    """Run a child process that prints one line of JSON and ends; returns the parsed line.

    Raises BenchError if the process fails, or after ``timeout_s``.
    """
    with ChildProcess(arguments, name) as child:
        result: dict[str, Any] = json.loads(child.read_line(timeout_s))
        return result


def interleaved(
    jobs: Mapping[Key, Sequence[str]], rounds: int, timeout_s: float
) -> Iterator[tuple[Key, dict[str, Any]]]:
    """Run all jobs (arguments of child processes), each in a new process, ``rounds`` times in the same order.

    Yields each result at once. Disturbances of the machine affect all jobs of a round alike, so ratios within a round
    are meaningful.
    """
    for _ in range(rounds):
        for key, arguments in jobs.items():
            yield key, run_once(arguments, " ".join(str(part) for part in arguments), timeout_s)


def add_output(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write the figures to this file, too, as JSON"
    )


def numbers(text: str) -> list[int]:
    """Parse ``10,1000``, the value of an option."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise ArgumentTypeError(f"{text!r}: expected numbers, each at least 1, as in 10,1000")
    return [int(part) for part in parts]


def some_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """The type of an option whose value is one or more of the ``known`` names, as in ``fetch,metadata``."""

    def parse(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",")]
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ArgumentTypeError(
                f"{unknown[0]!r}:{did_you_mean(unknown[0], known)} expected some of {', '.join(known)}"
            )
        return names

    return parse


def parse_address(text: str) -> tuple[str, int]:
    """Parse ``HOST:PORT``. Raises BenchError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise BenchError(f"{text!r} is not an address; expected HOST:PORT, for example 127.0.0.1:9092")
    return host.strip("[]"), int(port)


def process_cpu_s(pid: int | None) -> float | None:
    """CPU time of a process, user and kernel, in seconds; None on other systems than Linux, or without a process.

    Linux has a clock for each process. ``/proc`` has the same time in steps of 10 ms, too large for short runs.
    """
    if pid is None or not sys.platform.startswith("linux"):
        return None
    try:
        return time.clock_gettime((~pid << 3) | CPU_CLOCK)
    except OSError:
        return None


def process_and_children_cpu_s(pid: int) -> float:
    """The same of a process and its children that have ended, in steps of 10 ms; 0 without ``/proc``."""
    fields = (_proc(pid, "stat") or "").rpartition(")")[2].split()  # the name before it may hold spaces
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int | None) -> int | None:
    """Resident memory of a process in bytes; None without ``/proc`` or without a process."""
    statm = _proc(pid, "statm")
    return None if statm is None else int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_resident_bytes(pid: int | None) -> int | None:
    """The highest resident memory of a process so far in bytes; None without ``/proc`` or without a process."""
    match = re.search(r"^VmHWM:\s+(\d+) kB$", _proc(pid, "status") or "", re.MULTILINE)
    return None if match is None else int(match[1]) * 1024


def _proc(pid: int | None, name: str) -> str | None:
    try:
        return None if pid is None else Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return None


class MedianAndSpread(NamedTuple):
    """The median of several rounds; ``spread`` is (largest - smallest) / median."""

    median: float
    spread: float


def summarise(values: Sequence[float]) -> MedianAndSpread:
    middle_value = median(values)
    return MedianAndSpread(middle_value, (max(values) - min(values)) / middle_value if middle_value else 0.0)


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> MedianAndSpread:
    """The summary of each round's ratio, for figures of the same rounds."""
    return summarise([numerator / denominator for numerator, denominator in zip(numerators, denominators, strict=True)])


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value that ``share`` of all values are below. ``ordered`` rises and is not empty."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def median_or_none(values: Sequence[float | None]) -> float | None:
    """The median of the values that are not None; None if there are none."""
    numbers = [value for value in values if value is not None]
    return median(numbers) if numbers else None


def machine() -> dict[str, Any]:
    """A description of the machine for the results."""
    return {
        "cpus": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "python_build": python_build(),
    }


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str], python: str | None = None
) -> None:
    """Print a table: text in the first column, figures right-aligned in the others. Then the notes, and the Python.

    ``python``: which one has measured, by default the one that runs this; "" if the table has figures of several.
    """
    console = Console()
    if not console.is_terminal:
        console = Console(width=FILE_COLUMNS)
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    measured_with = python_build() if python is None else python
    for note in (*notes, *([f"Measured with {measured_with}."] if measured_with else [])):
        console.print(f"- {note}", highlight=False, markup=False)


def write_json(path: Path, result: dict[str, Any]) -> None:
    path.write_text(json.dumps(result, indent=2) + "\n")
