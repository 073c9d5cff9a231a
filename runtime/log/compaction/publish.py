"""Publishes compacted files under Kafka's plain names, for readers without manifests, and removes the old files.

The plain names are replaced by hard links to the compacted files, oldest first; then the old files that these cover are
removed. Each compacted file ends with the last batch of its sources, at least with its header. So a reader of the plain
names sees a consistent log at any time, provided it skips offsets below the next one it expects. In the opposite order
it could miss records, or see keys again whose tombstones are removed.

Publishing waits for a grace period, because readers list files first and open them later: a reader that has listed the
old files must not open compacted ones under their names, since these lack records whose newer versions are in files
that it has not listed. The generation published is the one that was the newest a grace period ago: readers that listed
the files since then use plain names only above its end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...disk.disk import Disk, read_file, replace_file
from ..manifest import FOLDER, Manifest, generations, manifest_folder, read_manifest, segments_folder, temporary_name
from ..reading.segment import segment_base, segment_name

LOCK_NAME = "lock"
PUBLISHED_NAME = "published"


@contextmanager
def try_lock(disk: Disk, folder: Path) -> Iterator[bool]:
    """Lock a partition's folder for the duration of the block; yields False if another process has the lock.

    Writing a draft needs no lock. Publishing does, since publishing an old generation after a pause would undo a newer
    one. Collecting does, since it must not remove the files of a draft that is about to take effect.
    """
    fd = disk.open(folder / FOLDER / LOCK_NAME, os.O_RDWR | os.O_CREAT)
    try:
        try:
            disk.lock(fd)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        disk.close(fd)


def publish(disk: Disk, folder: Path, now_ms: int, grace_ms: int, new_id: Callable[[], str]) -> int:
    """Publish the newest generation that is older than the grace period; returns how many old files were removed.

    The caller must hold the lock (``try_lock``). It can be interrupted anywhere and repeated. Raises OSError.
    """
    manifest = _oldest_in_use(disk, folder, now_ms - grace_ms)
    if manifest is None or manifest.generation <= published_generation(disk, folder):
        return 0
    disk.sync_folder(manifest_folder(folder))  # the manifest must be durable before old files are removed
    for segment in manifest.segments:
        _link_over(
            disk,
            segments_folder(folder) / segment.file,
            folder / segment_name(segment.base),
            temporary_name(now_ms, new_id(), "link"),
        )
        disk.sync_folder(folder)
    removed = _remove_covered(disk, folder, manifest)
    replace_file(disk, folder / FOLDER / PUBLISHED_NAME, f"{manifest.generation}\n".encode())
    return removed


def published_generation(disk: Disk, folder: Path) -> int:
    """The generation that the plain names show, up to its end; 0 if none was published."""
    try:
        return int(read_file(disk, folder / FOLDER / PUBLISHED_NAME))
    except (FileNotFoundError, ValueError):
        return 0  # then it is published again


def is_publishing_due(disk: Disk, folder: Path, manifest: Manifest, now_ms: int, grace_ms: int) -> bool:
    """Whether the newest manifest is older than the grace period and is not published."""
    return (
        manifest.generation > 0
        and manifest.created_ms <= now_ms - grace_ms
        and (published_generation(disk, folder) < manifest.generation)
    )


def _oldest_in_use(disk: Disk, folder: Path, at_ms: int) -> Manifest | None:
    """The manifest that was the newest at ``at_ms``."""
    for generation in reversed(generations(disk, folder)):
        with suppress(FileNotFoundError):
            manifest = read_manifest(disk, folder, generation)
            if manifest.created_ms <= at_ms:
                return manifest
    return None


def _link_over(disk: Disk, source: Path, target: Path, temporary_file_name: str) -> None:
    """Replace ``target`` by a hard link to ``source``. Does nothing if it is the same file already."""
    path = target.parent / FOLDER / temporary_file_name
    disk.link(source, path)
    try:
        disk.rename(path, target)
    finally:
        with suppress(FileNotFoundError):
            disk.remove(path)  # rename keeps it if both are the same file


def _remove_covered(disk: Disk, folder: Path, manifest: Manifest) -> int:
    """Remove the plain files that the published ones cover, in any order."""
    published_bases = {segment.base for segment in manifest.segments}
    bases = (segment_base(name) for name in disk.names(folder))
    covered = [base for base in bases if base is not None and base < manifest.clean_end and base not in published_bases]
    for base in covered:
        disk.remove(folder / segment_name(base))
    disk.sync_folder(folder)
    return len(covered)
