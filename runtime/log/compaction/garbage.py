"""Removes files of compaction that no reader can be using.

Readers list files and open them later, so the files of a manifest stay for a grace period after its successor was
created. A file that no manifest names was left by a run that was killed, or that lost against another run. If its
generation exists already, it can never be used and is removed; otherwise its run may still be active, so it is removed
when it is a day old.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ...disk.disk import Disk
from ..manifest import FOLDER, Manifest, generations, manifest_folder, manifest_name, read_manifest, segments_folder
from .defaults import GRACE_MS
from .publish import publish, try_lock
from .swap import random_id

ORPHAN_MS = 24 * 60 * 60 * 1000  # longer than any run

_OUTPUT_NAME = re.compile(
    r"(?:[0-9]{20}-)?(?P<generation>[0-9]{10})-(?P<seconds>[0-9a-f]{8})[0-9a-f]{8}\.(?:log|spill)"
)
_TEMPORARY_NAME = re.compile(r"\.(?P<seconds>[0-9a-f]{8})[0-9a-f]{8}\.(?:new|link)")


class CleanupCounts(NamedTuple):
    """Numbers of old files under Kafka's names that were replaced, and of compaction's own files that were removed."""

    replaced: int
    collected: int


def publish_and_collect(
    disk: Disk, folder: Path, now_ms: int, grace_ms: int = GRACE_MS, new_id: Callable[[], str] = random_id
) -> CleanupCounts:
    """Publish generations that are old enough, and remove unused files. Does nothing if another process holds the lock.

    ``grace_ms``: how long after listing a partition's folder a reader may open the files. Raises OSError.
    """
    if not disk.names(folder / FOLDER):
        return CleanupCounts(0, 0)
    with try_lock(disk, folder) as is_locked:
        if not is_locked:
            return CleanupCounts(0, 0)
        replaced = publish(disk, folder, now_ms, grace_ms, new_id)
        return CleanupCounts(replaced, collect(disk, folder, now_ms, grace_ms))


def collect(disk: Disk, folder: Path, now_ms: int, grace_ms: int) -> int:
    """Remove expired files from a partition's folder; returns their number. Raises OSError.

    The caller must hold the lock (``publish.try_lock``).
    """
    manifests = [read_manifest(disk, folder, generation) for generation in generations(disk, folder)]
    manifests_in_use = list(_manifests_in_use(manifests, now_ms - grace_ms))
    named = {segment.file for manifest in manifests_in_use for segment in manifest.segments}
    newest = manifests[-1].generation if manifests else 0
    segments = segments_folder(folder)
    paths = [segments / name for name in disk.names(segments) if name not in named and _is_unused(name, newest, now_ms)]
    paths += [
        directory / name
        for directory in (folder / FOLDER, manifest_folder(folder))
        for name in disk.names(directory)
        if (match := _TEMPORARY_NAME.fullmatch(name)) and _is_old(match, now_ms)
    ]
    expired = [manifest for manifest in manifests if manifest not in manifests_in_use]
    paths += [manifest_folder(folder) / manifest_name(manifest.generation) for manifest in expired]
    for path in paths:
        with suppress(FileNotFoundError):  # a run that lost may remove its own files at the same time
            disk.remove(path)
    return len(paths)


def _manifests_in_use(manifests: list[Manifest], since_ms: int) -> Iterable[Manifest]:
    """The newest manifest, and those that were the newest at some time since ``since_ms``."""
    successors = [*manifests[1:], None][: len(manifests)]
    for manifest, successor in zip(manifests, successors, strict=True):
        if successor is None or successor.created_ms > since_ms:
            yield manifest


def _is_unused(name: str, newest: int, now_ms: int) -> bool:
    """Whether a file that no manifest names can never be named by one, or is too old to be of an active run."""
    match = _OUTPUT_NAME.fullmatch(name)
    return match is not None and (int(match["generation"]) <= newest or _is_old(match, now_ms))


def _is_old(match: re.Match[str], now_ms: int) -> bool:
    return int(match["seconds"], 16) * 1000 < now_ms - ORPHAN_MS
