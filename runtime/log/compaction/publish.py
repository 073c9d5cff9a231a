"""Compacted files under Kafka's own names, for readers that know no manifest, and so that the old files go.

Hard links are put over the plain names, oldest first, and what they cover is removed after that. Each compacted file
ends with the last batch of what it was made from, if only with its header, so a reader of plain names is right at every
instant if it passes over offsets below the next one that it expects. The other way round would leave holes, or bring
back keys whose tombstones are gone.

It waits for a time of grace. Readers list the files and open them later, and one that opened a plain name then would
find records missing which it has no newer ones for. So what is published is the generation that was the newest one
then: whoever listed files since reads plain names behind its end only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...disk.disk import Disk, read_file, replace_file
from ..manifest import FOLDER, Manifest, generations, manifest_folder, read_manifest, segments_folder, side_name
from ..reading.segment import segment_base, segment_name

GRACE_MS = 60 * 60 * 1000
"""Longer than anybody reads a partition; Spark's tasks may open a file long after the listing."""

LOCK_NAME = "lock"
PUBLISHED_NAME = "published"


@contextmanager
def try_lock(disk: Disk, folder: Path) -> Iterator[bool]:
    """Whether we are the only one to change what is the log of a partition's folder, as long as the block lasts.

    Writing a draft needs no lock. This does: who goes on publishing an old generation after a pause would undo a newer
    one, and who collects must not take the files of a draft that is about to count.
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
    """Bring the plain names up to the newest generation that is older than the time of grace; how many files went.

    The caller is alone (``try_lock``). May be interrupted anywhere, and done again. OSError.
    """
    manifest = _oldest_in_use(disk, folder, now_ms - grace_ms)
    if manifest is None or manifest.generation <= published_generation(disk, folder):
        return 0
    disk.sync_folder(manifest_folder(folder))  # what replaces the old files must not be lost after them
    for segment in manifest.segments:
        _put_over(
            disk,
            segments_folder(folder) / segment.file,
            folder / segment_name(segment.base),
            side_name(now_ms, new_id(), "link"),
        )
        disk.sync_folder(folder)
    removed = _remove_covered(disk, folder, manifest)
    replace_file(disk, folder / FOLDER / PUBLISHED_NAME, f"{manifest.generation}\n".encode())
    return removed


def published_generation(disk: Disk, folder: Path) -> int:
    """The generation that the plain names show below its end; 0 when nothing was published."""
    try:
        return int(read_file(disk, folder / FOLDER / PUBLISHED_NAME))
    except (FileNotFoundError, ValueError):
        return 0  # at worst it is published again


def is_publishing_due(disk: Disk, folder: Path, manifest: Manifest, now_ms: int, grace_ms: int) -> bool:
    """Whether the newest manifest has had its time of grace and is not under plain names yet."""
    return (
        manifest.generation > 0
        and manifest.created_ms <= now_ms - grace_ms
        and (published_generation(disk, folder) < manifest.generation)
    )


def _oldest_in_use(disk: Disk, folder: Path, time_ms: int) -> Manifest | None:
    """The manifest that was the newest at that time."""
    for generation in reversed(generations(disk, folder)):
        with suppress(FileNotFoundError):
            manifest = read_manifest(disk, folder, generation)
            if manifest.created_ms <= time_ms:
                return manifest
    return None


def _put_over(disk: Disk, source: Path, target: Path, side: str) -> None:
    """A second name for a file, in the place of what has it now. Nothing when it has that name already."""
    path = target.parent / FOLDER / side
    disk.link(source, path)
    try:
        disk.rename(path, target)
    finally:
        with suppress(FileNotFoundError):
            disk.remove(path)  # still there when both were the same file


def _remove_covered(disk: Disk, folder: Path, manifest: Manifest) -> int:
    """Remove the plain files that are wholly in the published ones; what is removed when is all the same."""
    shown = {segment.base for segment in manifest.segments}
    bases = (segment_base(name) for name in disk.names(folder))
    covered = [base for base in bases if base is not None and base < manifest.clean_end and base not in shown]
    for base in covered:
        disk.remove(folder / segment_name(base))
    disk.sync_folder(folder)
    return len(covered)
