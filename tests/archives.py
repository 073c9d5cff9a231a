"""Extraction of tar archives with the data filter, where Python has it: 3.11.0 to 3.11.3 lack it."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path


def extract(archive: tarfile.TarFile, folder: Path, members: Iterable[tarfile.TarInfo] | None = None) -> None:
    """Extract these members, or all."""
    archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
    archive.extractall(folder, members)
