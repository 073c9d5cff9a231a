"""Source distributions of other projects, whose tests run here: downloaded once by pip, verified and cached.

These tests are not part of this repository. Each release has its digest here, so only reviewed code runs.
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

from archives import extract

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "callboard-tests"
DOWNLOAD_DEADLINE_S = 600


class SourceUnavailable(Exception):
    """A source distribution is not available on this machine; the message has the reason."""


class SourceArchive(NamedTuple):
    """A release of a project: its name as pip knows it, and the SHA-256 of its archive."""

    project: str
    version: str
    sha256: str

    @property
    def stem(self) -> str:
        """The name of the archive without its suffix, and of its top folder."""
        return f"{self.project.replace('-', '_')}-{self.version}"

    def unpack(self, folder: Path, *subfolders: str) -> Path:
        """Unpack some folders of the archive; return the path of its top folder. Raises SourceUnavailable.

        The same version must be installed, since the tests belong to one release.
        """
        installed = importlib.metadata.version(self.project)
        if installed != self.version:
            raise SourceUnavailable(
                f"{self.project} {installed} is installed; its tests have a digest for {self.version} only"
            )
        archive = CACHE / f"{self.stem}.tar.gz"
        if not archive.exists():
            self._download(archive)
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        assert digest == self.sha256, (
            f"{archive} has the wrong SHA-256 {digest} for {self.project} {self.version}; remove it"
        )
        prefixes = tuple(f"{self.stem}/{name}/" for name in subfolders)
        with tarfile.open(archive) as tar:
            extract(tar, folder, [member for member in tar.getmembers() if member.name.startswith(prefixes)])
        return folder / self.stem

    def _download(self, archive: Path) -> None:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            # Not ":all:", with which pip would build the build backend from source too.
            command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", self.project]
            command += ["--dest", folder, f"{self.project}=={self.version}"]
            try:
                subprocess.run(command, check=True, capture_output=True, text=True, timeout=DOWNLOAD_DEADLINE_S)
            except (subprocess.SubprocessError, OSError) as error:
                message = str(getattr(error, "stderr", None) or error).strip().splitlines()
                raise SourceUnavailable(
                    f"pip could not download the source of {self.project} {self.version}: {message[-1]}"
                ) from error
            Path(folder, archive.name).replace(archive)
