"""A virtual environment for a program whose requirements differ from those of the tests, made once and cached."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
from pathlib import Path

from source_archive import CACHE, DOWNLOAD_DEADLINE_S, SourceUnavailable


def make_environment(requirements: Path) -> Path:
    """The interpreter of an environment with exactly these requirements. Raises SourceUnavailable.

    Its folder is named after the requirements and the version of Python, so a change of them makes another one.
    """
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    folder = CACHE / f"{requirements.stem}-{sys.version_info.major}.{sys.version_info.minor}-{digest}"
    python, complete = folder / "venv" / "bin" / "python", folder / "complete"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:  # another test process may make it at this moment
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            _run(sys.executable, "-m", "venv", "--clear", folder / "venv")
            pip = (python, "-m", "pip", "--disable-pip-version-check")
            _run(*pip, "install", "--quiet", "--no-deps", "--requirement", requirements)
            complete.touch()
    return python


def _run(*command: str | Path) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=DOWNLOAD_DEADLINE_S)
    except (subprocess.SubprocessError, OSError) as error:
        message = str(getattr(error, "stderr", None) or error).strip().splitlines()
        raise SourceUnavailable(f"{' '.join(map(str, command))}: {message[-1]}") from error
