"""Finds files of a partition's log that are missing or truncated, by its manifest.

Without the manifest the remaining files would look complete, since a compacted log has gaps in its offsets. But the
manifest has the name and size of each compacted file, and its clean end, where the first uncompacted segment begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...disk.disk import Disk, file_size
from ..format.errors import Damage
from ..manifest import TRIES, LogFiles, Manifest, ManifestError, generations, log_files, segments_folder


class MissingFiles(ManifestError):
    """A partition cannot be compacted because files of its log are missing."""


def missing_files(disk: Disk, folder: Path) -> tuple[LogFiles, list[Damage]]:
    """The files of a partition's log, and what is missing by its manifest. Raises OSError, ManifestError.

    A damage of size 0 at byte 0 means that the file itself, or the log before it, is missing.
    """
    for _ in range(TRIES):
        listed = log_files(disk, folder)
        damages = list(_damages(disk, folder, listed))
        if not damages or generations(disk, folder)[-1:] == [listed.manifest.generation]:
            return listed, damages
    raise ManifestError(f"{folder}: {TRIES} times a new manifest while its files were checked")


def refuse_missing(disk: Disk, folder: Path) -> None:
    """Raise MissingFiles when part of a partition's log is missing: compaction would hide the loss."""
    _, damages = missing_files(disk, folder)
    if damages:
        raise MissingFiles(
            f"{damages[0]}; put back the file while no server runs, or accept the loss with callboard log repair"
        )


def gap_after_manifest(folder: Path, listed: LogFiles) -> Damage | None:
    """The missing offsets between the manifest's clean end and the first uncompacted segment, if any."""
    manifest, files = listed
    first = next((file for file in files if not file.is_compacted), None)
    if manifest.generation == 0 or first is None or first.base <= manifest.clean_end:
        return None
    reason = f"the compacted segments end at offset {manifest.clean_end}, and {folder.name} continues at {first.base}"
    return Damage(first.path, 0, 0, reason, manifest.clean_end, first.base)


def _damages(disk: Disk, folder: Path, listed: LogFiles) -> Iterator[Damage]:
    yield from _missing_compacted(disk, folder, listed.manifest)
    gap = gap_after_manifest(folder, listed)
    if gap is not None:
        yield gap


def _missing_compacted(disk: Disk, folder: Path, manifest: Manifest) -> Iterator[Damage]:
    for segment in manifest.segments:
        path = segments_folder(folder) / segment.file
        try:
            size = file_size(disk, path)
        except FileNotFoundError:
            reason = f"it is missing, but listed in manifest {manifest.generation}"
            yield Damage(path, 0, 0, reason, segment.base, segment.end)
            continue
        if size != segment.size:
            reason = f"found {size} bytes, expected {segment.size} by manifest {manifest.generation}"
            yield Damage(path, min(size, segment.size), 0, reason, segment.base, segment.end)
