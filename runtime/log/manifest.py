"""Determines which files make up the log of a partition, for all writers, readers and compactors.

Compaction writes new files beside the old ones, and puts them into effect by a numbered manifest::

    __consumer_offsets-7/
      00000000000000184478.log          Kafka's names: the coordinator appends to these and rolls
      .compaction/segments/<base>-<generation>-<id>.log    compacted, never changed
      .compaction/manifest/00000000000000000012.json       generation 12

**The log is the segments of the newest manifest, then every ``%020d.log`` whose base is at least its ``clean_end``.**
A manifest is created atomically, and only if none has its number. So if two compactors start from the same generation,
one of them fails, and the log is consistent at every instant. The coordinator never waits for compaction.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..common.errors import StartError
from ..common.json_files import parse_json
from ..disk.checksum import verify_checksum, with_checksum
from ..disk.disk import Disk, read_file, write_all
from .reading.segment import segment_base, segment_name

FOLDER = ".compaction"
VERSION = 2
"""1: without a checksum. 2: with one, over all other fields."""

TRIES = 100  # generations are seconds apart, so this many during one listing are a bug

_NAME = re.compile(r"([0-9]{20})\.json")


class ManifestError(StartError):
    """A manifest is damaged, or of a newer version, so the files of the log are unknown."""


class CompactedSegment(NamedTuple):
    """A compacted file. It covers the log from ``base`` up to ``end``, which is the base of the next one.

    ``delete_horizon_ms``: when the first of its tombstones or markers may be removed, in ms since 1970; None when it
    has none.
    """

    file: str
    base: int
    end: int
    size: int
    crc32c: int
    records: int
    delete_horizon_ms: int | None


class Manifest(NamedTuple):
    """The files of the log below ``clean_end``. ``replaced``: the files it was made from, for people to read.

    ``owner``: the program that made it. ``created_ms``: when, in ms since 1970.
    """

    generation: int
    parent: int
    owner: str
    created_ms: int
    clean_end: int
    segments: tuple[CompactedSegment, ...]
    replaced: tuple[str, ...]


EMPTY_MANIFEST = Manifest(0, 0, "", 0, 0, (), ())
"""The manifest of a partition that was never compacted."""


class LogFile(NamedTuple):
    """A file of a log. ``is_closed``: it never changes again. ``is_compacted``: compaction wrote it."""

    path: Path
    base: int
    is_closed: bool
    is_compacted: bool


class LogFiles(NamedTuple):
    """A consistent list of a log's files, in order. All but the last are closed, and the last is mostly open."""

    manifest: Manifest
    files: tuple[LogFile, ...]


def segments_folder(folder: Path) -> Path:
    return folder / FOLDER / "segments"


def manifest_folder(folder: Path) -> Path:
    return folder / FOLDER / "manifest"


def manifest_name(generation: int) -> str:
    return f"{generation:020d}.json"


def generations(disk: Disk, folder: Path) -> list[int]:
    """The generations that have a manifest, oldest first; ``folder`` is the partition's."""
    matches = (_NAME.fullmatch(name) for name in disk.names(manifest_folder(folder)))
    return [int(match[1]) for match in matches if match]


def temporary_name(now_ms: int, unique: str, ending: str) -> str:
    """A name for an incomplete file. It contains the time, so that files left by a crash can be recognized."""
    return f".{now_ms // 1000:08x}{unique}.{ending}"


def log_files(disk: Disk, folder: Path) -> LogFiles:
    """The files that make up the log in a partition's folder now. Raises ManifestError when they are unknown.

    A file may be gone when it is opened much later (FileNotFoundError), because it was compacted; then call this again.
    Replaced files stay for an hour, unless a shorter time is configured.
    """
    for _ in range(TRIES):
        manifest = newest_manifest(disk, folder)
        bases = sorted(base for name in disk.names(folder) if (base := segment_base(name)) is not None)
        if not is_replaced(disk, folder, manifest):
            return LogFiles(manifest, _compacted_files(folder, manifest) + _uncompacted_files(folder, manifest, bases))
    raise ManifestError(
        f"{folder}: {TRIES} times a new manifest while its files were listed; check which programs compact it"
    )


def is_replaced(disk: Disk, folder: Path, manifest: Manifest) -> bool:
    """Whether there is a newer manifest."""
    return generations(disk, folder)[-1:] not in ([], [manifest.generation])


def refuse_replaced(disk: Disk, folder: Path, manifest: Manifest) -> None:
    """Raise FileNotFoundError if there is a newer manifest. Called before damage in files of ``manifest`` is reported.

    Files of a newer manifest may have names that were listed (see ``publish``), and do not match the files beside them.
    """
    if is_replaced(disk, folder, manifest):
        raise FileNotFoundError(f"{folder}: it was compacted while it was read; list its files again")


def newest_manifest(disk: Disk, folder: Path) -> Manifest:
    """The manifest in effect, ``EMPTY_MANIFEST`` when there is none. Raises ManifestError when it cannot be used."""
    for _ in range(TRIES):
        numbers = generations(disk, folder)
        if not numbers:
            return EMPTY_MANIFEST
        try:
            return read_manifest(disk, folder, numbers[-1])
        except FileNotFoundError:  # removed in the meantime, because there is a newer one
            continue
    raise ManifestError(
        f"{manifest_folder(folder)}: {manifest_name(numbers[-1])} is listed but does not exist; check the disk"
    )


def read_manifest(disk: Disk, folder: Path, generation: int) -> Manifest:
    """The manifest of one generation. Raises FileNotFoundError, or ManifestError when it cannot be used."""
    path = manifest_folder(folder) / manifest_name(generation)
    data = read_file(disk, path)
    try:
        fields = parse_json(data)
        version = fields["version"]
        if version in (1, VERSION):
            verify_checksum(fields, VERSION)
            return _parse(fields)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ManifestError(
            f"{path}: found no manifest ({error!r}), expected version {VERSION} of one; put back a copy of this file"
        ) from None
    raise ManifestError(
        f"{path}: found manifest version {version}, expected {VERSION}; a newer version of Callboard has compacted this"
        " folder, use that version"
    )


def put_if_absent(disk: Disk, folder: Path, manifest: Manifest, unique: str) -> bool:
    """Create a manifest, durably; False when its generation exists already.

    ``unique``: eight unique hexadecimal digits. Raises OSError when the disk fails; then the manifest exists or not,
    and if it exists it is complete.
    """
    manifests = manifest_folder(folder)
    if generations(disk, folder)[-1:] not in ([], [manifest.parent]):
        return False  # the manifest of its number may have been removed again
    temporary = manifests / temporary_name(manifest.created_ms, unique, "new")
    write_file(disk, temporary, encode_manifest(manifest))
    try:
        disk.link(temporary, manifests / manifest_name(manifest.generation))
    except FileExistsError:
        return False
    finally:
        disk.remove(temporary)
    disk.sync_folder(manifests)
    return True


def write_file(disk: Disk, path: Path, data: bytes) -> None:
    """Create a file with this content. The content is durable, but not its name."""
    fd = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        write_all(disk, fd, data, 0)
        disk.sync(fd)
    finally:
        disk.close(fd)


def _compacted_files(folder: Path, manifest: Manifest) -> tuple[LogFile, ...]:
    segments = segments_folder(folder)
    return tuple(LogFile(segments / segment.file, segment.base, True, True) for segment in manifest.segments)


def _uncompacted_files(folder: Path, manifest: Manifest, bases: list[int]) -> tuple[LogFile, ...]:
    """Only the last one is open, because a file is created only when the one before it is complete and synced."""
    return tuple(
        LogFile(folder / segment_name(base), base, base != bases[-1], False)
        for base in bases
        if base >= manifest.clean_end
    )


def encode_manifest(manifest: Manifest) -> bytes:
    """The content of its file."""
    return json.dumps(with_checksum({"version": VERSION, **_fields(manifest)}), indent=1).encode() + b"\n"


def _fields(manifest: Manifest) -> dict[str, Any]:
    return {**manifest._asdict(), "segments": [segment._asdict() for segment in manifest.segments]}


def _parse(fields: Mapping[str, Any]) -> Manifest:
    """Raises KeyError or TypeError when fields are missing, ValueError when they are invalid."""
    segments = tuple(CompactedSegment(**segment) for segment in fields["segments"])
    values = {name: fields[name] for name in Manifest._fields}
    manifest = Manifest(**{**values, "segments": segments, "replaced": tuple(fields["replaced"])})
    ends = [0 if not segments else segments[0].base, *(segment.end for segment in segments)]
    bases = [*(segment.base for segment in segments), manifest.clean_end]
    if (segments and ends != bases) or "/" in "".join(segment.file for segment in segments):
        raise ValueError(f"segments from {bases} to {ends[1:]} do not follow one another")
    return manifest
