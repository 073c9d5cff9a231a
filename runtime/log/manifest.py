"""Which files make the log of a partition: the one place that says so, for whoever writes, loads, compacts or looks.

Compaction writes new files beside the old ones and then says that they count, by a numbered manifest::

    __consumer_offsets-7/
      00000000000000184478.log          Kafka's names: what the coordinator appends to and rolls
      .compaction/segments/<base>-<generation>-<id>.log    compacted, never changed
      .compaction/manifest/00000000000000000012.json       generation 12

**The log is the segments of the newest manifest, then every ``%020d.log`` whose base is at least its ``clean_end``.**
A manifest is created whole or not at all, and only if there is none of its number: so of two compactors that began
from the same generation one wins, and the log is one of the two at every instant. The coordinator never waits for it.
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

TRIES = 100  # a new generation comes once in seconds at most: so many in the time of one listing are a bug

_NAME = re.compile(r"(\d{20})\.json")


class ManifestError(StartError):
    """A manifest that is damaged, or of a newer version. Without it nobody knows what the log is."""


class Compacted(NamedTuple):
    """A compacted file. It holds all of the log from ``base`` up to ``end``, which is the base of the next one.

    ``delete_horizon_ms``: when the first of its tombstones or markers may go, in ms since 1970; None when it has none.
    """

    file: str
    base: int
    end: int
    size: int
    crc32c: int
    records: int
    delete_horizon_ms: int | None


class Manifest(NamedTuple):
    """What makes the log below ``clean_end``. ``replaced`` are the files that it was made from, to be read by people.

    ``owner`` says who made it, ``created_ms`` when, in ms since 1970.
    """

    generation: int
    parent: int
    owner: str
    created_ms: int
    clean_end: int
    segments: tuple[Compacted, ...]
    replaced: tuple[str, ...]


EMPTY = Manifest(0, 0, "", 0, 0, (), ())
"""What holds as long as nothing was compacted."""


class LogFile(NamedTuple):
    """A file of a log. ``is_closed``: it never changes again. ``is_clean``: compaction made it."""

    path: Path
    base: int
    is_closed: bool
    is_clean: bool


class LogFiles(NamedTuple):
    """The files of a log, in order, as one moment had them; all but the last are closed, and mostly not the last."""

    manifest: Manifest
    files: tuple[LogFile, ...]


def segments_folder(folder: Path) -> Path:
    return folder / FOLDER / "segments"


def manifest_folder(folder: Path) -> Path:
    return folder / FOLDER / "manifest"


def manifest_name(generation: int) -> str:
    return f"{generation:020d}.json"


def generations(disk: Disk, folder: Path) -> list[int]:
    """The generations of which there is a manifest, oldest first; ``folder`` is the partition's."""
    matches = (_NAME.fullmatch(name) for name in disk.names(manifest_folder(folder)))
    return [int(match[1]) for match in matches if match]


def side_name(now_ms: int, unique: str, ending: str) -> str:
    """A name for a file that is not whole yet; it says since when, so that what a crash left can be told."""
    return f".{now_ms // 1000:08x}{unique}.{ending}"


def log_files(disk: Disk, folder: Path) -> LogFiles:
    """The files that make the log in a partition's folder now. ManifestError when that cannot be said.

    A file may be gone when it is opened much later (FileNotFoundError): it was compacted, and what holds now has the
    same content. Then ask again. There is an hour for it, unless somebody has chosen less.
    """
    for _ in range(TRIES):
        manifest = newest_manifest(disk, folder)
        bases = sorted(base for name in disk.names(folder) if (base := segment_base(name)) is not None)
        if generations(disk, folder)[-1:] in ([], [manifest.generation]):
            return LogFiles(manifest, _clean_files(folder, manifest) + _plain_files(folder, manifest, bases))
    raise ManifestError(f"{folder}: {TRIES} times a new manifest while its files were listed; look what compacts there")


def refuse_replaced(disk: Disk, folder: Path, manifest: Manifest) -> None:
    """For who finds damage in files that he has listed by ``manifest``: FileNotFoundError if there is a newer one.

    What that one says may lie under names that were listed (``publish``), and does not fit the files beside it.
    """
    if generations(disk, folder)[-1:] not in ([], [manifest.generation]):
        raise FileNotFoundError(f"{folder}: it was compacted while it was read; list its files again")


def newest_manifest(disk: Disk, folder: Path) -> Manifest:
    """The manifest that holds now, ``EMPTY`` when there is none. ManifestError when it cannot be used."""
    for _ in range(TRIES):
        found = generations(disk, folder)
        if not found:
            return EMPTY
        try:
            return read_manifest(disk, folder, found[-1])
        except FileNotFoundError:  # collected since, because there is a newer one
            continue
    raise ManifestError(
        f"{manifest_folder(folder)}: {manifest_name(found[-1])} is listed and not there; check the disk"
    )


def read_manifest(disk: Disk, folder: Path, generation: int) -> Manifest:
    """The manifest of one generation. FileNotFoundError when there is none, ManifestError when it cannot be used."""
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
    """Make a manifest the newest, durably; False when somebody else was first with this generation.

    ``unique``: eight hexadecimal digits that nobody else has. OSError when the disk fails; then it is there or not, and
    if it is there it is whole.
    """
    where = manifest_folder(folder)
    if generations(disk, folder)[-1:] not in ([], [manifest.parent]):
        return False  # its number may be free again, because it was collected
    side = where / side_name(manifest.created_ms, unique, "new")
    write_file(disk, side, _content(manifest))
    try:
        disk.link(side, where / manifest_name(manifest.generation))
    except FileExistsError:
        return False
    finally:
        disk.remove(side)
    disk.sync_folder(where)
    return True


def write_file(disk: Disk, path: Path, data: bytes) -> None:
    """A new file with this content, durable but for its name."""
    fd = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        write_all(disk, fd, data, 0)
        disk.sync(fd)
    finally:
        disk.close(fd)


def _clean_files(folder: Path, manifest: Manifest) -> tuple[LogFile, ...]:
    where = segments_folder(folder)
    return tuple(LogFile(where / segment.file, segment.base, True, True) for segment in manifest.segments)


def _plain_files(folder: Path, manifest: Manifest, bases: list[int]) -> tuple[LogFile, ...]:
    """The next file is created only when the one before it is whole and synced, so only the last is open."""
    return tuple(
        LogFile(folder / segment_name(base), base, base != bases[-1], False)
        for base in bases
        if base >= manifest.clean_end
    )


def _content(manifest: Manifest) -> bytes:
    return json.dumps(with_checksum({"version": VERSION, **_fields(manifest)}), indent=1).encode() + b"\n"


def _fields(manifest: Manifest) -> dict[str, Any]:
    return {**manifest._asdict(), "segments": [segment._asdict() for segment in manifest.segments]}


def _parse(fields: Mapping[str, Any]) -> Manifest:
    """KeyError and TypeError when fields are missing, ValueError when they make no sense."""
    segments = tuple(Compacted(**segment) for segment in fields["segments"])
    values = {name: fields[name] for name in Manifest._fields}
    made = Manifest(**{**values, "segments": segments, "replaced": tuple(fields["replaced"])})
    ends = [0 if not segments else segments[0].base, *(segment.end for segment in segments)]
    bases = [*(segment.base for segment in segments), made.clean_end]
    if (segments and ends != bases) or "/" in "".join(segment.file for segment in segments):
        raise ValueError(f"segments from {bases} to {ends[1:]} do not follow one another")
    return made
