"""Runs pytest with Callboard's plugin in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import links

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 600
PYTEST = ("-m", "pytest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")
"""Hypothesis takes two seconds of CPU in each process, also for tests that do not use it."""

PLUGIN = "callboard.runtime.testing.plugin.plugin"
IS_INSTALLED = f"""
from importlib.metadata import entry_points
print(any(entry.value == {PLUGIN!r} for entry in entry_points(group="pytest11")))
"""


@cache
def plugins() -> tuple[str, ...]:
    """The options that load the plugin; none if it is installed. A child process checks, since its path differs."""
    printed = start(Path("/"), "-c", IS_INSTALLED)
    return () if printed.strip() == "True" else ("-p", PLUGIN)


def start(folder: Path, *arguments: str) -> str:
    """The output of a Python process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([links.python_path(), str(HERE)])}
    environment.pop("PYTEST_ADDOPTS", None)
    command = (sys.executable, *arguments)
    process = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return process.stdout + process.stderr


def run(folder: Path, source: str, *options: str) -> str:
    """The output of pytest for a file of tests."""
    (folder / "test_made_up.py").write_text(source)
    return start(folder, *PYTEST, "--strict-markers", *plugins(), *options)


def dedented(source: str) -> str:
    lines = source.strip("\n").splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[indent:] for line in lines) + "\n"
