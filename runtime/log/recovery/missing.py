"""What a partition's manifest says must be there and is not: files of the log that are gone, or cut.

What is left reads like a whole log: a compacted log has holes anyway. But the manifest names every compacted file with
its size, and the log goes on at its clean end: the first plain segment that it does not cover must begin there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...disk.disk import Disk, file_size
from ..format.errors import Damage
from ..manifest import TRIES, LogFiles, Manifest, ManifestError, generations, log_files, segments_folder


class MissingFiles(ManifestError):
    """A partition is not compacted because files of its log are gone."""


def missing_files(disk: Disk, folder: Path) -> tuple[LogFiles, list[Damage]]:
    """The files of a partition's log, and what of it is gone by its manifest. OSError, ManifestError.

    A damage of size 0 at byte 0 says that a file, or what should lie before it, is missing.
    """
    for _ in range(TRIES):
        listed = log_files(disk, folder)
        damages = list(_damages(disk, folder, listed))
        if not damages or generations(disk, folder)[-1:] == [listed.manifest.generation]:
            return listed, damages
    raise ManifestError(f"{folder}: {TRIES} times a new manifest while its files were looked at")


def refuse_missing(disk: Disk, folder: Path) -> None:
    """MissingFiles when something of a partition's log is gone: compaction would make it look whole."""
    _, damages = missing_files(disk, folder)
    if damages:
        raise MissingFiles(
            f"{damages[0]}; put back the file while no server runs, or accept the loss with callboard log repair"
        )


def hole_behind(folder: Path, listed: LogFiles) -> Damage | None:
    """The offsets between the manifest's clean end and the first plain segment behind it, if there are any."""
    manifest, files = listed
    first = next((file for file in files if not file.is_clean), None)
    if manifest.generation == 0 or first is None or first.base <= manifest.clean_end:
        return None
    reason = f"the compacted segments end at offset {manifest.clean_end}, and {folder.name} goes on at {first.base}"
    return Damage(first.path, 0, 0, reason, manifest.clean_end, first.base)


def _damages(disk: Disk, folder: Path, listed: LogFiles) -> Iterator[Damage]:
    yield from _compacted(disk, folder, listed.manifest)
    hole = hole_behind(folder, listed)
    if hole is not None:
        yield hole


def _compacted(disk: Disk, folder: Path, manifest: Manifest) -> Iterator[Damage]:
    for segment in manifest.segments:
        path = segments_folder(folder) / segment.file
        try:
            size = file_size(disk, path)
        except FileNotFoundError:
            reason = f"it is missing, and manifest {manifest.generation} names it"
            yield Damage(path, 0, 0, reason, segment.base, segment.end)
            continue
        if size != segment.size:
            reason = f"found {size} bytes, expected {segment.size} by manifest {manifest.generation}"
            yield Damage(path, min(size, segment.size), 0, reason, segment.base, segment.end)
