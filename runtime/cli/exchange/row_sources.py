"""Reads committed offsets from a data folder, which may be in use, or from a running server.

A folder is only read. If a server runs on it, or was killed, the newest commits are in the journal and not yet in the
partition files. In that case a snapshot of the partition, completed from the journal, is made in a temporary folder and
read there. The journal is read first, so a batch that is flushed in between is found in the journal or in the files.

Offsets of open transactions are not committed, and are left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, NamedTuple

from ....actors.group.offsets import GroupData
from ...client.cluster import Cluster
from ...common.errors import StartError
from ...disk.disk import Disk, file_size, read_at, read_file
from ...log.folder import INFO_NAME, parse_info
from ...log.format.batch import LOG_OFFSET_MAX, Batch, offsets_of
from ...log.format.errors import UNKNOWN_OFFSET, Damage, UnsupportedCompression
from ...log.journal import FOLDER as JOURNAL
from ...log.journal import journal_names, journal_salt, read_rounds, scan_journal
from ...log.manifest import LogFile, log_files, manifest_folder, manifest_name, segments_folder
from ...log.partition import TOPIC, folder_name
from ...log.reading.damage_scan import scan_past_damage
from ...log.reading.newest import LoadedPartition, load_partition
from ...log.reading.segment import segment_name
from ..log.dump import format_time
from ..log.scan import LogPartition, find_missing, find_partitions, is_torn_tail
from .rows import Row

ProblemCallback = Callable[[object], None]
"""Called with each damage and each other unreadable item."""

OFFSET_INFINITY = 2**63
"""Larger than every offset."""

_COPY_BYTES = 1024 * 1024


class PartitionSource(NamedTuple):
    """A partition of a log, and the batches of it that are in the journal."""

    partition: LogPartition
    journal: Sequence[bytes]


def find_partition_sources(data: Path, disk: Disk, on_problem: ProblemCallback) -> list[PartitionSource]:
    """The partitions of a data folder, Callboard's or Kafka's. StartError when it is not a data folder."""
    partitions = {partition.number: partition for partition in find_partitions(data, TOPIC, disk=disk)}
    journal = _journal(data, disk, on_problem)
    for number in journal.keys() - partitions.keys():  # not flushed yet
        partitions[number] = LogPartition(TOPIC, number, data / folder_name(number))
    return [PartitionSource(partition, journal.get(number, ())) for number, partition in sorted(partitions.items())]


def read_folder_rows(
    find_partition_sources: Iterable[PartitionSource], groups: Collection[str], disk: Disk, on_problem: ProblemCallback
) -> Iterator[Row]:
    """The committed offsets, partition by partition; ``groups``: empty for all. OSError, StartError."""
    for source in find_partition_sources:
        is_complete = True
        for damage in find_missing(source.partition, disk):
            on_problem(damage)
            is_complete = is_complete and disk.kind(damage.path) == "file"
        if not is_complete:
            on_problem(f"{source.partition.folder}: left out, as by a server, until that file is restored")
            continue
        with TemporaryDirectory(prefix="callboard-") as scratch:
            partition = _with_journal_batches(source, Path(scratch), disk)
            is_snapshot = partition is not source.partition  # a snapshot has links to closed segments
            reading_disk = Disk(follows_links=True) if is_snapshot else disk
            try:
                loaded = load_partition(partition.folder, reading_disk)
            except UnsupportedCompression as error:
                on_problem(error)
                continue
            _report_problems(loaded, partition, source.partition.folder, reading_disk, on_problem)
        yield from _rows(loaded, groups)


def read_server_rows(cluster: Cluster, groups: Iterable[str]) -> Iterator[Row]:
    """The committed offsets of these groups, as reported by their coordinators. ClientError."""
    for group in groups:
        for (topic, partition), offset in cluster.committed(group).items():
            epoch = offset.leader_epoch if offset.leader_epoch >= 0 else None
            yield Row(group, topic, partition, offset.offset, epoch, offset.metadata, None)


# A partition's groups ------------------------------------------------------------------------------------------------


def _rows(loaded: LoadedPartition, groups: Collection[str]) -> Iterator[Row]:
    for group, packed in loaded.packed_groups.items():
        if not groups or group in groups:
            yield from _rows_of_group(group, GroupData.unpack(packed))
    for group, data in loaded.unpacked_groups.items():
        if not groups or group in groups:
            yield from _rows_of_group(group, data)


def _rows_of_group(group: str, data: GroupData) -> Iterator[Row]:
    for topic, partition, value in data.offsets:
        epoch = value.leader_epoch if value.leader_epoch >= 0 else None
        yield Row(group, topic, partition, value.offset, epoch, value.metadata, format_time(value.commit_timestamp_ms))


def _report_problems(
    loaded: LoadedPartition, partition: LogPartition, folder: Path, disk: Disk, on_problem: ProblemCallback
) -> None:
    """Report damage and unreadable groups. ``folder``: the partition's original folder."""
    for damage in loaded.damages:
        if not is_torn_tail(damage, partition, disk):
            on_problem(damage._replace(path=folder / damage.path.relative_to(partition.folder)))
    for group, quarantine in loaded.quarantined.items():
        on_problem(f"{folder}: group '{group}' cannot be read and is left out: {quarantine.reason}")
    for problem in loaded.problems:
        on_problem(problem)


# The journal ---------------------------------------------------------------------------------------------------------


def _journal(data: Path, disk: Disk, on_problem: ProblemCallback) -> Mapping[int, list[bytes]]:
    """The batches in the journal by offsets partition, in order."""
    batches_by_number: dict[int, list[bytes]] = {}
    names = journal_names(disk.names(data / JOURNAL))
    if not names:
        return batches_by_number
    partitions = _number_of_partitions(data, disk)
    for name in names:
        with suppress(FileNotFoundError):  # removed in between: all its batches are in the partition files
            path = data / JOURNAL / name
            content = read_file(disk, path)
            scan = scan_journal(content, journal_salt(name), is_newest=name == names[-1])
            for position, size, reason in scan.damaged:
                on_problem(Damage(path, position, size, reason, UNKNOWN_OFFSET, None))
            for batches in read_rounds(content, scan):
                for number, batch in batches:
                    if number < partitions:
                        batches_by_number.setdefault(number, []).append(bytes(batch))
    return batches_by_number


def _number_of_partitions(data: Path, disk: Disk) -> int:
    path = data / INFO_NAME
    if INFO_NAME not in disk.names(data):
        raise StartError(f"{data}: found a journal and no {INFO_NAME}, expected it there; put it back")
    return parse_info(path, read_file(disk, path)).offsets_partitions


def _with_journal_batches(source: PartitionSource, scratch: Path, disk: Disk) -> LogPartition:
    """The partition itself, or a snapshot of it that includes the batches in the journal."""
    partition, journal = source
    if not journal:
        return partition
    snapshot = LogPartition(partition.topic, partition.number, scratch / partition.folder.name)
    manifest, files = log_files(disk, partition.folder)
    for path in (snapshot.folder, segments_folder(snapshot.folder), manifest_folder(snapshot.folder)):
        path.mkdir(parents=True, exist_ok=True)
    if manifest.generation:
        name = manifest_name(manifest.generation)
        (manifest_folder(snapshot.folder) / name).write_bytes(read_file(disk, manifest_folder(partition.folder) / name))
    for file in files:
        if file.is_closed:
            (snapshot.folder / file.path.relative_to(partition.folder)).symlink_to(file.path.absolute())
    _write_last(files, manifest.clean_end, snapshot.folder, journal, disk)
    return snapshot


def _write_last(files: Sequence[LogFile], clean_end: int, folder: Path, journal: Sequence[bytes], disk: Disk) -> None:
    """Write the snapshot's last file: the log's last file, with the journal's batches in place of its own.

    The journal has every batch from its first one on. The file may lack some of them, and may have newer ones if a
    server has written since.
    """
    last = files[-1] if files and not files[-1].is_closed else None
    base = clean_end if last is None else last.base
    batches = _sorted_batches(journal, base)
    if last is None and not batches:
        return
    path = folder / segment_name(offsets_of(batches[0])[0] if last is None else base)
    with path.open("wb") as copy:
        if last is None:
            copy.writelines(batches)
        else:
            _merge(last, batches, copy, disk)


def _sorted_batches(journal: Sequence[bytes], base: int) -> list[bytes]:
    """The batches from an offset on, each once, by offset."""
    partitions: dict[int, bytes] = {offsets_of(batch)[0]: batch for batch in journal}
    return [
        batch for first, batch in sorted(partitions.items()) if base <= first and offsets_of(batch)[1] <= LOG_OFFSET_MAX
    ]


def _merge(last: LogFile, journal: list[bytes], copy: BinaryIO, disk: Disk) -> None:
    first, end = (
        (offsets_of(journal[0])[0], offsets_of(journal[-1])[1]) if journal else (OFFSET_INFINITY, OFFSET_INFINITY)
    )
    size, newer = 0, []
    for piece in scan_past_damage(disk, last.path, last.base, size=file_size(disk, last.path)):
        if isinstance(piece, Batch) and piece.last_offset < first:
            size = piece.position + piece.size
        elif isinstance(piece, Batch) and piece.base_offset > end:
            newer.append(bytes(piece.data))
    _copy(last.path, size, copy, disk)
    copy.writelines(journal)
    copy.writelines(newer)


def _copy(path: Path, size: int, copy: BinaryIO, disk: Disk) -> None:
    """Copy the first ``size`` bytes, with any damage in them."""
    fd = disk.open(path, os.O_RDONLY)
    try:
        for position in range(0, size, _COPY_BYTES):
            copy.write(read_at(disk, fd, min(_COPY_BYTES, size - position), position))
    finally:
        disk.close(fd)
