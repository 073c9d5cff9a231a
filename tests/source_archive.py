"""Source distributions of other projects, for the tests in them: fetched once by pip, checked, kept in a cache folder.

Tests of others are no part of this repository. A release says its digest here, so that what runs is what was read.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "callboard-tests"
DOWNLOAD_DEADLINE_S = 600


class SourceUnavailable(Exception):
    """A source distribution cannot be had on this machine; the text says why."""


class SourceArchive(NamedTuple):
    """A release of a project: its name as pip knows it, and the SHA-256 of its archive."""

    project: str
    version: str
    sha256: str

    @property
    def stem(self) -> str:
        """The name of the archive without its ending, which is also the name of the folder in it."""
        return f"{self.project.replace('-', '_')}-{self.version}"

    def unpack(self, folder: Path, *below: str) -> Path:
        """Unpack what lies below some folders of the archive; return where it is. Raises SourceUnavailable.

        The same version must be installed: tests of one release say nothing about another.
        """
        installed = importlib.metadata.version(self.project)
        if installed != self.version:
            raise SourceUnavailable(
                f"{self.project} {installed} is installed; the digest of its tests is known for {self.version} only"
            )
        archive = CACHE / f"{self.stem}.tar.gz"
        if not archive.exists():
            self._download(archive)
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        assert digest == self.sha256, (
            f"{archive} is not what {self.project} {self.version} is known to be: its SHA-256 is {digest}; remove it"
        )
        prefixes = tuple(f"{self.stem}/{name}/" for name in below)
        with tarfile.open(archive) as opened:
            opened.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)  # 3.11.3 has none
            opened.extractall(folder, [one for one in opened.getmembers() if one.name.startswith(prefixes)])
        return folder / self.stem

    def _download(self, archive: Path) -> None:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            # Not ":all:", which would have pip build its build backend from source too.
            command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", self.project]
            command += ["--dest", folder, f"{self.project}=={self.version}"]
            try:
                subprocess.run(command, check=True, capture_output=True, text=True, timeout=DOWNLOAD_DEADLINE_S)
            except (subprocess.SubprocessError, OSError) as error:
                said = str(getattr(error, "stderr", None) or error).strip().splitlines()
                raise SourceUnavailable(
                    f"pip could not download the source of {self.project} {self.version}: {said[-1]}"
                ) from error
            Path(folder, archive.name).replace(archive)
