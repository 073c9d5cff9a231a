"""Pykka's source distribution, for the tests in it: fetched once by pip, checked, kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "4.5.0"
SHA256 = "820fcc36046552b49d7eb61fe98088d1a29631cf3314e8ce4bc26aaead8dcd4f"
ARCHIVE = f"pykka-{VERSION}.tar.gz"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "callboard-tests"

DOWNLOAD_DEADLINE_S = 120


class SuiteUnavailable(Exception):
    """Pykka's tests cannot be had on this machine; the text says why."""


def unpack_suite(folder: Path) -> Path:
    """Unpack pykka's tests below ``folder``; the folder to run them in. Raises SuiteUnavailable."""
    installed = importlib.metadata.version("pykka")
    if installed != VERSION:
        raise SuiteUnavailable(f"pykka {installed} is installed; the digest of its tests is known for {VERSION} only")
    archive = CACHE / ARCHIVE
    if not archive.exists():
        _download(archive)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert digest == SHA256, f"{archive} is not what pykka {VERSION} is known to be: its SHA-256 is {digest}; remove it"
    with tarfile.open(archive) as opened:
        opened.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)  # 3.11.3 has none
        opened.extractall(
            folder, [one for one in opened.getmembers() if one.name.startswith(f"pykka-{VERSION}/tests/")]
        )
    return folder / f"pykka-{VERSION}"


def _download(archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        # Not ":all:", which would have pip build its build backend from source too.
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "pykka", "--dest", folder]
        try:
            subprocess.run(
                [*command, f"pykka=={VERSION}"], check=True, capture_output=True, text=True, timeout=DOWNLOAD_DEADLINE_S
            )
        except (subprocess.SubprocessError, OSError) as error:
            said = str(getattr(error, "stderr", None) or error).strip().splitlines()
            raise SuiteUnavailable(f"pip could not download the source of pykka {VERSION}: {said[-1]}") from error
        Path(folder, ARCHIVE).replace(archive)
