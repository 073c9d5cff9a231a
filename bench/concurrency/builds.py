"""The numbers of cores and the Python builds that a run is repeated with."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

from callboard.bench.harness import BenchError

THIS_PYTHON = ""
"""The interpreter that runs the laboratory."""

FREE_THREADED_NAMES = ("python3.13t", "python3.14t", "python3.15t")

CHECK = (
    "import json\n"
    "from callboard.bench.concurrency import measured_process, measures\n"
    "print(json.dumps(measures.python()))"
)
CHECK_TIMEOUT_S = 60.0
ERROR_LINES = 5


def doubled_cores(count: int) -> list[int]:
    """1, 2, 4 and so on, and last ``count``."""
    return [*(2**power for power in range(count.bit_length()) if 2**power < count), count]


def free_threaded_pythons(which: Callable[[str], str | None] = shutil.which) -> list[str]:
    """The names of the free-threaded builds of CPython on PATH."""
    return [name for name in FREE_THREADED_NAMES if which(name)]


def check_pythons(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What each interpreter says of itself; see ``measures.python``. Raises BenchError if one cannot run Callboard."""
    return {name: _check(name) for name in names}


def _check(name: str) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [name or sys.executable, "-c", CHECK], capture_output=True, text=True, timeout=CHECK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"{name} cannot be run: {error}") from None
    if done.returncode:
        cause = " / ".join(done.stderr.split("\n")[-ERROR_LINES:]) or "no message"
        raise BenchError(f"{name} cannot run the measurements; install callboard for it. Its error: {cause}")
    description: dict[str, Any] = json.loads(done.stdout)
    return description


def describe_builds(builds: dict[str, dict[str, Any]]) -> list[str]:
    """A line for each build, and one that says so if none is free-threaded."""
    lines = [
        f"{name or sys.executable}: {build['implementation']} {build['version']}, "
        f"{'free-threaded' if build['free_threaded'] else 'with the global interpreter lock'}"
        for name, build in builds.items()
    ]
    if builds and not any(build["free_threaded"] for build in builds.values()):
        lines.append(
            f"none of them is free-threaded; --sweep takes those that are on PATH: {', '.join(FREE_THREADED_NAMES)}"
        )
    return lines
