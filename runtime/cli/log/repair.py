"""Taking out of a log what cannot be read, so that no start warns of it again. The server must be stopped.

A server lives with damage: it reads round it. So nobody needs this in a hurry, and a copy of the file from before the
damage is always better. What is taken out is kept: the file as it was stays beside the new one under ``.damaged``. In
place of a damaged stretch stands a batch without records over the same offsets, as compaction leaves them, so that
Kafka too reads the log without a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from ...common.errors import StartError
from ...disk.crc import crc32c
from ...disk.disk import Disk
from ...engine.clock import wall_clock_ms
from ...log.compaction.rewrite import empty_batch, filler_batch, filter_batch
from ...log.compaction.swap import random_id
from ...log.folder import INFO_NAME, lock_folder
from ...log.format.batch import Batch, inflate, read_batches
from ...log.format.errors import Damage, DamagedBatch, DamagedRecord, UnsupportedCompression
from ...log.journal import FOLDER as JOURNAL
from ...log.journal import journal_number
from ...log.manifest import (
    LogFile,
    LogFiles,
    Manifest,
    log_files,
    manifest_folder,
    put_if_absent,
    segments_folder,
    write_file,
)
from ...log.reading.segment import segment_name
from ...log.reading.spans import read_spans
from ...log.recovery.missing import missing_files
from ...log.recovery.quarantine import DAMAGED, free_name
from .walk import Decode, LogPartition, Unreadable, batches, decoder, is_torn_tail

DELTA_MAX = 2**31 - 1
"""So many offsets one batch can stand for."""

REPAIRING = ".repairing"


class Mend(NamedTuple):
    """A file that needs repair and all that is wrong with it."""

    partition: LogPartition
    file: LogFile
    troubles: tuple[Damage | Unreadable, ...]


def find_mends(partition: LogPartition, disk: Disk) -> list[Mend]:
    """The files of a partition that need repair. A torn end does not: the next start cuts it, and keeps it.

    A file that is gone by the manifest is one of them: one without records takes its place.
    """
    found: dict[LogFile, list[Damage | Unreadable]] = {}
    listed, missing = missing_files(disk, partition.folder)
    for damage in missing:
        found.setdefault(_file_of(listed, damage), []).append(damage)
    decode = decoder(partition)
    for file, piece in batches(partition, disk):
        if isinstance(piece, Batch):
            found.setdefault(file, []).extend(_troubles(partition, file, piece, decode))
        elif not is_torn_tail(piece, partition, disk):
            found.setdefault(file, []).append(piece)
    return [Mend(partition, file, tuple(troubles)) for file, troubles in found.items() if troubles]


def mend(mend: Mend, disk: Disk) -> Path | None:
    """Put a file without its troubles in the place of the one that has them.

    Gives where that is kept; None if it was missing.
    """
    partition, file, troubles = mend
    if disk.kind(file.path) != "file":
        data = b"".join(
            filler_batch for one in troubles if isinstance(one, Damage) for filler_batch in _fillers(one, 0)
        )
    else:
        pieces = [piece for one, piece in batches(partition, disk) if one == file]
        data = b"".join(_mended(partition, file, pieces))
    return _swap_clean(disk, mend, data) if file.is_clean else _swap_plain(disk, file.path, data)


def _file_of(listed: LogFiles, damage: Damage) -> LogFile:
    """The file that a damage concerns; for a hole behind the compacted files the one that should fill it."""
    file = next(file for file in listed.files if file.path == damage.path)
    if file.is_clean:
        return file
    base = listed.manifest.clean_end
    return LogFile(file.path.with_name(segment_name(base)), base, True, False)


@contextmanager
def stopped_server(data: Path, disk: Disk) -> Iterator[None]:
    """Keep servers off a data folder. StartError when one runs, or was killed and has not mended its log since."""
    if not (data / INFO_NAME).exists():
        raise StartError(
            f"{data}: found no {INFO_NAME}, expected a data folder of Callboard; Kafka's is not mended here"
        )
    lock = lock_folder(disk, data)
    try:
        if any(journal_number(name) is not None for name in disk.names(data / JOURNAL)):
            raise StartError(
                f"{data}: found a journal, expected a folder that was left cleanly; start the server and stop it, which"
                " lays into the log what the journal holds, then try again"
            )
        yield
    finally:
        lock.close()


# What stays ----------------------------------------------------------------------------------------------------------


def _troubles(partition: LogPartition, file: LogFile, batch: Batch, decode: Decode) -> Iterator[Unreadable]:
    try:
        for offset, _, key, value in batch.records():
            with_trouble = _trouble(batch, decode, key, value)
            if with_trouble:
                yield Unreadable(partition, file.path, batch.position, offset, with_trouble)
    except DamagedBatch as damage:
        yield Unreadable(partition, file.path, batch.position, batch.base_offset, str(damage))


def _trouble(batch: Batch, decode: Decode, key: bytes | None, value: bytes | None) -> str:
    try:
        decode(batch, key, value)
    except DamagedRecord as damage:
        return str(damage)
    return ""


def _mended(partition: LogPartition, file: LogFile, pieces: Iterable[Batch | Damage]) -> Iterator[bytes]:
    """The new content: good batches as they are, others without what cannot be read, fillers for what is lost."""
    timestamp_ms = 0
    for piece in pieces:
        if isinstance(piece, Damage):
            yield from _fillers(piece, timestamp_ms)
        else:
            timestamp_ms = max(timestamp_ms, piece.max_timestamp_ms)
            yield _readable(partition, file, piece)


def _fillers(damage: Damage, timestamp_ms: int) -> Iterator[bytes]:
    if damage.offset_after is None:
        return
    for base in range(damage.offset_before, damage.offset_after, DELTA_MAX):
        yield filler_batch(base, min(base + DELTA_MAX, damage.offset_after) - 1, timestamp_ms)


def _readable(partition: LogPartition, file: LogFile, batch: Batch) -> bytes:
    """The batch without the records that make no sense."""
    decode = decoder(partition)
    if not list(_troubles(partition, file, batch, decode)):
        return bytes(batch.data)
    with suppress(DamagedBatch, UnsupportedCompression):
        return _without_unreadable(inflate(batch), decode)
    return empty_batch(bytes(batch.data), 0)


def _without_unreadable(batch: Batch, decode: Decode) -> bytes:
    data, spans = bytes(batch.data), read_spans(bytes(batch.data), [0], fast=False)
    good = [
        (start, end, timestamp_ms)
        for start, end, (_, timestamp_ms, key, value) in zip(spans.start, spans.end, batch.records(), strict=True)
        if not _trouble(batch, decode, key, value)
    ]
    if not good:
        return empty_batch(data, 0)
    records = b"".join(data[start:end] for start, end, _ in good)
    return filter_batch(data, 0, records, len(good), max(timestamp_ms for _, _, timestamp_ms in good))


# Putting it in place -------------------------------------------------------------------------------------------------


def _swap_plain(disk: Disk, path: Path, data: bytes) -> Path | None:
    """At every instant there is a whole file under the name. What is there already from an earlier try is made anew."""
    side = path.with_name(path.name + REPAIRING)
    with suppress(FileNotFoundError):
        disk.remove(side)
    write_file(disk, side, data)
    kept = _keep(disk, path, path.parent)
    disk.rename(side, path)
    disk.sync_folder(path.parent)
    return kept


def _keep(disk: Disk, path: Path, folder: Path) -> Path | None:
    """Give a file a second name in ``folder``, durably; None if it is missing."""
    if disk.kind(path) != "file":
        return None
    kept = free_name(disk, folder / path.name, DAMAGED)
    disk.link(path, kept)
    disk.sync_folder(folder)
    return kept


def _swap_clean(disk: Disk, mend: Mend, data: bytes) -> Path | None:
    """A compacted file never changes: another one takes its place in the next manifest. The old one is collected by
    and by, so a copy of it is kept in the partition's folder."""
    folder, path = mend.partition.folder, mend.file.path
    kept = _keep(disk, path, folder)
    manifest = log_files(disk, folder).manifest
    now_ms = wall_clock_ms()  # readers know of the new file from now on: the old one has its time of grace
    name = f"{mend.file.base:020d}-{manifest.generation + 1:010d}-{now_ms // 1000:08x}{random_id()}.log"
    write_file(disk, segments_folder(folder) / name, data)
    disk.sync_folder(segments_folder(folder))
    if not put_if_absent(disk, folder, _next(manifest, path.name, name, data, now_ms), random_id()):
        raise StartError(f"{manifest_folder(folder)}: somebody compacts this folder; stop that, then try again")
    return kept


def _next(manifest: Manifest, old: str, new: str, data: bytes, now_ms: int) -> Manifest:
    records = sum(batch.record_count for batch in read_batches(data))
    segments = tuple(
        one._replace(file=new, size=len(data), crc32c=crc32c(data), records=records) if one.file == old else one
        for one in manifest.segments
    )
    return manifest._replace(
        generation=manifest.generation + 1,
        parent=manifest.generation,
        owner="callboard log repair",
        created_ms=now_ms,
        segments=segments,
        replaced=(old,),
    )
