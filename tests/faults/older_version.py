"""An earlier version of this project, from a commit of its repository, for clusters whose nodes have both versions."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from archives import extract

ROOT = Path(__file__).resolve().parents[2]
COMMIT = os.environ.get("CALLBOARD_OLDER", "") or "4d9527f7e9f7250b75a2447ff72bac72c0a58990"
"""By default the first version with a cluster."""


def missing_older_version() -> str | None:
    """Why it cannot be installed here; None if it can."""
    found = _git("cat-file", "-e", f"{COMMIT}^{{commit}}")
    if found.returncode:
        return f"this repository has no commit {COMMIT[:12]}: git fetch --unshallow, or CALLBOARD_OLDER=COMMIT"
    return None


def install(folder: Path) -> Path:
    """Install it below ``folder``, without its libraries: it uses those of this version. Returns its ``PYTHONPATH``."""
    source, packages = folder / "source", folder / "packages"
    archive = _git("archive", COMMIT)
    assert archive.returncode == 0, archive.stderr.decode()
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        extract(files, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    _run([*pip, "--no-deps", "--no-build-isolation", "--target", str(packages), str(source)])
    imported = _run([*command(packages), sys.executable, "-c", "import callboard; print(callboard.__file__)"])
    assert Path(imported.strip()).is_relative_to(packages), imported
    return packages


def command(packages: Path) -> tuple[str, ...]:
    """Runs a program with the version that is installed there."""
    return ("env", f"PYTHONPATH={packages}")


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)


def _run(arguments: list[str]) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
