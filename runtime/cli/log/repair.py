"""Removes unreadable records from a log, so that later starts do not warn of them. The server must be stopped.

A server skips damage, so a repair is never urgent, and an undamaged copy of the file is always better. The original
file is kept next to the new one, with the suffix ``.damaged``. A damaged range is replaced by a batch without records
over the same offsets, as after compaction, so that Kafka also reads the log without a gap.
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
from .scan import Decode, LogPartition, Unreadable, is_torn_tail, record_decoder, scan_batches

DELTA_MAX = 2**31 - 1
"""The maximum of offsets that one batch can cover."""

REPAIRING = ".repairing"


class FileRepair(NamedTuple):
    """A file that needs repair, and its problems."""

    partition: LogPartition
    file: LogFile
    problems: tuple[Damage | Unreadable, ...]


def find_repairs(partition: LogPartition, disk: Disk) -> list[FileRepair]:
    """The files of a partition that need repair. A torn tail does not: the next start cuts it and keeps a copy.

    A file that is named in the manifest and missing is one of them: it is replaced by one without records.
    """
    problems_by_file: dict[LogFile, list[Damage | Unreadable]] = {}
    listed, missing = missing_files(disk, partition.folder)
    for damage in missing:
        problems_by_file.setdefault(_file_of(listed, damage), []).append(damage)
    decode = record_decoder(partition)
    for file, item in scan_batches(partition, disk):
        if isinstance(item, Batch):
            problems_by_file.setdefault(file, []).extend(_find_problems(partition, file, item, decode))
        elif not is_torn_tail(item, partition, disk):
            problems_by_file.setdefault(file, []).append(item)
    return [FileRepair(partition, file, tuple(problems)) for file, problems in problems_by_file.items() if problems]


def repair_file(repair: FileRepair, disk: Disk) -> Path | None:
    """Replace a damaged file by one without its problems.

    Returns the path of the backup; None if the file was missing.
    """
    partition, file, problems = repair
    if disk.kind(file.path) != "file":
        data = b"".join(
            filler_batch for problem in problems if isinstance(problem, Damage) for filler_batch in _fillers(problem, 0)
        )
    else:
        items = [item for scanned_file, item in scan_batches(partition, disk) if scanned_file == file]
        data = b"".join(_repaired_batches(partition, file, items))
    return _replace_compacted(disk, repair, data) if file.is_compacted else _replace_file(disk, file.path, data)


def _file_of(listed: LogFiles, damage: Damage) -> LogFile:
    """The file with the damage; for a gap after the compacted files, the missing file."""
    file = next(file for file in listed.files if file.path == damage.path)
    if file.is_compacted:
        return file
    base = listed.manifest.clean_end
    return LogFile(file.path.with_name(segment_name(base)), base, True, False)


@contextmanager
def require_stopped_server(data: Path, disk: Disk) -> Iterator[None]:
    """Lock a data folder against servers. StartError when one runs, or was killed and not started since."""
    if not (data / INFO_NAME).exists():
        raise StartError(
            f"{data}: found no {INFO_NAME}, expected a data folder of Callboard, not one of Kafka; check the path"
        )
    lock = lock_folder(disk, data)
    try:
        if any(journal_number(name) is not None for name in disk.names(data / JOURNAL)):
            raise StartError(
                f"{data}: found a journal, expected a folder after a clean stop; start the server and stop it, which"
                " flushes the journal to the log, then try again"
            )
        yield
    finally:
        lock.close()


# New content ---------------------------------------------------------------------------------------------------------


def _find_problems(partition: LogPartition, file: LogFile, batch: Batch, decode: Decode) -> Iterator[Unreadable]:
    try:
        for offset, _, key, value in batch.records():
            reason = _find_problem(batch, decode, key, value)
            if reason:
                yield Unreadable(partition, file.path, batch.position, offset, reason)
    except DamagedBatch as damage:
        yield Unreadable(partition, file.path, batch.position, batch.base_offset, str(damage))


def _find_problem(batch: Batch, decode: Decode, key: bytes | None, value: bytes | None) -> str:
    try:
        decode(batch, key, value)
    except DamagedRecord as damage:
        return str(damage)
    return ""


def _repaired_batches(partition: LogPartition, file: LogFile, items: Iterable[Batch | Damage]) -> Iterator[bytes]:
    """The new content: valid batches unchanged, others without unreadable records, empty batches for lost ones."""
    timestamp_ms = 0
    for item in items:
        if isinstance(item, Damage):
            yield from _fillers(item, timestamp_ms)
        else:
            timestamp_ms = max(timestamp_ms, item.max_timestamp_ms)
            yield _readable_batch(partition, file, item)


def _fillers(damage: Damage, timestamp_ms: int) -> Iterator[bytes]:
    if damage.offset_after is None:
        return
    for base in range(damage.offset_before, damage.offset_after, DELTA_MAX):
        yield filler_batch(base, min(base + DELTA_MAX, damage.offset_after) - 1, timestamp_ms)


def _readable_batch(partition: LogPartition, file: LogFile, batch: Batch) -> bytes:
    """The batch without its invalid records."""
    decode = record_decoder(partition)
    if not list(_find_problems(partition, file, batch, decode)):
        return bytes(batch.data)
    with suppress(DamagedBatch, UnsupportedCompression):
        return _without_unreadable(inflate(batch), decode)
    return empty_batch(bytes(batch.data), 0)


def _without_unreadable(batch: Batch, decode: Decode) -> bytes:
    data, spans = bytes(batch.data), read_spans(bytes(batch.data), [0], fast=False)
    readable = [
        (start, end, timestamp_ms)
        for start, end, (_, timestamp_ms, key, value) in zip(spans.start, spans.end, batch.records(), strict=True)
        if not _find_problem(batch, decode, key, value)
    ]
    if not readable:
        return empty_batch(data, 0)
    records = b"".join(data[start:end] for start, end, _ in readable)
    return filter_batch(data, 0, records, len(readable), max(timestamp_ms for _, _, timestamp_ms in readable))


# Replacing files -----------------------------------------------------------------------------------------------------


def _replace_file(disk: Disk, path: Path, data: bytes) -> Path | None:
    """Replace a file atomically. A temporary file of an earlier attempt is removed."""
    temporary = path.with_name(path.name + REPAIRING)
    with suppress(FileNotFoundError):
        disk.remove(temporary)
    write_file(disk, temporary, data)
    backup = _back_up(disk, path, path.parent)
    disk.rename(temporary, path)
    disk.sync_folder(path.parent)
    return backup


def _back_up(disk: Disk, path: Path, folder: Path) -> Path | None:
    """Give a file a second name in ``folder``, durably; None if it is missing."""
    if disk.kind(path) != "file":
        return None
    backup = free_name(disk, folder / path.name, DAMAGED)
    disk.link(path, backup)
    disk.sync_folder(folder)
    return backup


def _replace_compacted(disk: Disk, repair: FileRepair, data: bytes) -> Path | None:
    """Replace a compacted file through the next manifest, since compacted files never change.

    The old file is deleted by the garbage collection, so a copy of it is kept in the partition's folder.
    """
    folder, path = repair.partition.folder, repair.file.path
    backup = _back_up(disk, path, folder)
    manifest = log_files(disk, folder).manifest
    now_ms = wall_clock_ms()  # the grace period of the old file begins when readers see the new manifest
    name = f"{repair.file.base:020d}-{manifest.generation + 1:010d}-{now_ms // 1000:08x}{random_id()}.log"
    write_file(disk, segments_folder(folder) / name, data)
    disk.sync_folder(segments_folder(folder))
    if not put_if_absent(disk, folder, _next_manifest(manifest, path.name, name, data, now_ms), random_id()):
        raise StartError(f"{manifest_folder(folder)}: a compaction runs on this folder; stop it, then try again")
    return backup


def _next_manifest(manifest: Manifest, old: str, new: str, data: bytes, now_ms: int) -> Manifest:
    records = sum(batch.record_count for batch in read_batches(data))
    segments = tuple(
        segment._replace(file=new, size=len(data), crc32c=crc32c(data), records=records)
        if segment.file == old
        else segment
        for segment in manifest.segments
    )
    return manifest._replace(
        generation=manifest.generation + 1,
        parent=manifest.generation,
        owner="callboard log repair",
        created_ms=now_ms,
        segments=segments,
        replaced=(old,),
    )
