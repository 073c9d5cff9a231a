"""The tests with other versions of Python, each in a virtual environment of its own: ``.venv-3.12``."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

VERSIONS = ("3.12", "3.13")
"""``make test`` runs with the oldest one, 3.11. setup.cfg's classifiers name what was run."""

TESTS = ("test-real-time", "test-others")
"""Ruff and mypy check the same code for all versions, so ``make test`` runs them once."""


def interpreter(version: str) -> Path | None:
    """An interpreter of this version: on PATH, or one of pyenv's. None if there is none."""
    name = f"python{version}"
    on_path = (Path(folder, name) for folder in os.get_exec_path())
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    return first_working([*on_path, *sorted(pyenv.glob(f"versions/{version}*/bin/{name}"))], version)


def first_working(paths: Iterable[Path], version: str) -> Path | None:
    """The first interpreter that starts. pyenv puts scripts on PATH that only say that a version is not selected."""
    for path in paths:
        if shutil.which(path) and run([str(path), "--version"]).stdout.startswith(f"Python {version}."):
            return path
    return None


def make_command(version: str, python: Path) -> list[str]:
    return ["make", "--jobs=1", *TESTS, f"PYTHON={python}", f"VENV=.venv-{version}"]


def run(command: Sequence[str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, env=clean_environment(os.environ), capture_output=True, text=True)


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what names the environment that ``make soak`` runs in."""
    names = ("PYTHONPATH", "VIRTUAL_ENV", "PYSPARK_PYTHON", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    return {name: value for name, value in environment.items() if name not in names}
