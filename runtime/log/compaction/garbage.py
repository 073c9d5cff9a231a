"""What compaction leaves behind, removed when nobody can be reading it any more.

Readers list files and open them later, so what a manifest names stays for a time of grace after a newer one came. What
no manifest ever named was left by a run that was killed or lost; one of a generation that exists can never count any
more, whatever its run does, and a younger one may still be written, so it goes when it is a day old.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ...disk.disk import Disk
from ..manifest import FOLDER, Manifest, generations, manifest_folder, manifest_name, read_manifest, segments_folder
from .publish import GRACE_MS, publish, try_lock
from .swap import random_id

ORPHAN_MS = 24 * 60 * 60 * 1000  # longer than a run takes

_MADE = re.compile(r"(?:\d{20}-)?(?P<generation>\d{10})-(?P<seconds>[0-9a-f]{8})[0-9a-f]{8}\.(?:log|spill)")
_SIDE = re.compile(r"\.(?P<seconds>[0-9a-f]{8})[0-9a-f]{8}\.(?:new|link)")


class Tidied(NamedTuple):
    """How many old files under Kafka's names were replaced, and how many of compaction's own were collected."""

    replaced: int
    collected: int


def publish_and_collect(
    disk: Disk, folder: Path, now_ms: int, grace_ms: int = GRACE_MS, new_id: Callable[[], str] = random_id
) -> Tidied:
    """Publish what is old enough and remove what nobody reads. Nothing while somebody else is at it. OSError.

    ``grace_ms``: how long whoever listed the files of a partition's folder may still open one of them.
    """
    if not disk.names(folder / FOLDER):
        return Tidied(0, 0)
    with try_lock(disk, folder) as alone:
        if not alone:
            return Tidied(0, 0)
        replaced = publish(disk, folder, now_ms, grace_ms, new_id)
        return Tidied(replaced, collect(disk, folder, now_ms, grace_ms))


def collect(disk: Disk, folder: Path, now_ms: int, grace_ms: int) -> int:
    """Remove what has had its time in a partition's folder; how many files went. OSError.

    The caller is alone (``publish.try_lock``).
    """
    manifests = [read_manifest(disk, folder, generation) for generation in generations(disk, folder)]
    kept = list(_kept(manifests, now_ms - grace_ms))
    named = {segment.file for manifest in kept for segment in manifest.segments}
    newest = manifests[-1].generation if manifests else 0
    where = segments_folder(folder)
    paths = [where / name for name in disk.names(where) if name not in named and _is_over(name, newest, now_ms)]
    paths += [
        place / name
        for place in (folder / FOLDER, manifest_folder(folder))
        for name in disk.names(place)
        if (side := _SIDE.fullmatch(name)) and _is_old(side, now_ms)
    ]
    gone = [manifest for manifest in manifests if manifest not in kept]
    paths += [manifest_folder(folder) / manifest_name(manifest.generation) for manifest in gone]
    for path in paths:
        with suppress(FileNotFoundError):  # a run that lost may be removing its own just now
            disk.remove(path)
    return len(paths)


def _kept(manifests: list[Manifest], time_ms: int) -> Iterable[Manifest]:
    """The newest, and those that were the newest at some time since then."""
    successors = [*manifests[1:], None][: len(manifests)]
    for manifest, successor in zip(manifests, successors, strict=True):
        if successor is None or successor.created_ms > time_ms:
            yield manifest


def _is_over(name: str, newest: int, now_ms: int) -> bool:
    """Whether a file that no manifest names can never be named by one, or is too old for that."""
    made = _MADE.fullmatch(name)
    return made is not None and (int(made["generation"]) <= newest or _is_old(made, now_ms))


def _is_old(made: re.Match[str], now_ms: int) -> bool:
    return int(made["seconds"], 16) * 1000 < now_ms - ORPHAN_MS
