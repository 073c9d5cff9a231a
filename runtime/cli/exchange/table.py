"""What is committed: by a data folder, at rest or in use, or by a running server.

A folder is only read. Of a server that runs on it, or that was killed, the newest commits are in the journal and not
yet in the partition files: a picture of the partition with what the journal has is made in a scratch folder, and read
there. The journal is read first, so what goes from it to the files meanwhile is seen in one of the two.

A transaction that is open has committed nothing.
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
from ...log.journal import journal_names, journal_salt, measure, read_rounds
from ...log.manifest import LogFile, log_files, manifest_folder, manifest_name, segments_folder
from ...log.partition import TOPIC, folder_name
from ...log.reading.damage_scan import scan_past_damage
from ...log.reading.newest import LoadedPartition, load_partition
from ...log.reading.segment import segment_name
from ..log.dump import when
from ..log.walk import LogPartition, find_partitions, gone, is_torn_tail
from .rows import Row

Complain = Callable[[object], None]
"""Is told of each damage, and of what else cannot be read."""

UNREACHED = 2**63
"""No offset is so large."""

_COPY_BYTES = 1024 * 1024


class Source(NamedTuple):
    """A partition of a log, and the batches that the journal has for it."""

    partition: LogPartition
    journal: Sequence[bytes]


def sources(data: Path, disk: Disk, complain: Complain) -> list[Source]:
    """The partitions of a data folder, ours or Kafka's. StartError when it is none."""
    found = {one.number: one for one in find_partitions(data, TOPIC, disk=disk)}
    journal = _journal(data, disk, complain)
    for number in journal.keys() - found.keys():  # nothing of it was laid in yet
        found[number] = LogPartition(TOPIC, number, data / folder_name(number))
    return [Source(one, journal.get(number, ())) for number, one in sorted(found.items())]


def rows_of_folder(sources: Iterable[Source], groups: Collection[str], disk: Disk, complain: Complain) -> Iterator[Row]:
    """What is committed there, all groups or those, partition by partition. OSError, StartError."""
    for source in sources:
        is_there = True
        for damage in gone(source.partition, disk):
            complain(damage)
            is_there = is_there and disk.kind(damage.path) == "file"
        if not is_there:
            complain(f"{source.partition.folder}: left out, as a server does, until that file is put back")
            continue
        with TemporaryDirectory(prefix="callboard-") as scratch:
            partition = _with_journal(source, Path(scratch), disk)
            is_picture = partition is not source.partition  # a picture has links to closed segments
            reading = Disk(follows_links=True) if is_picture else disk
            try:
                loaded = load_partition(partition.folder, reading)
            except UnsupportedCompression as error:
                complain(error)
                continue
            _tell(loaded, partition, source.partition.folder, reading, complain)
        yield from _rows(loaded, groups)


def rows_of_server(cluster: Cluster, groups: Iterable[str]) -> Iterator[Row]:
    """What these groups have committed, as their coordinators say. ClientError."""
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
        yield Row(group, topic, partition, value.offset, epoch, value.metadata, when(value.commit_timestamp_ms))


def _tell(loaded: LoadedPartition, partition: LogPartition, folder: Path, disk: Disk, complain: Complain) -> None:
    """``folder``: where the partition really lies."""
    for damage in loaded.damages:
        if not is_torn_tail(damage, partition, disk):
            complain(damage._replace(path=folder / damage.path.relative_to(partition.folder)))
    for group, reason in loaded.quarantined.items():
        complain(f"{folder}: group '{group}' cannot be read and is left out: {reason}")
    for trouble in loaded.problems:
        complain(trouble)


# The journal ---------------------------------------------------------------------------------------------------------


def _journal(data: Path, disk: Disk, complain: Complain) -> Mapping[int, list[bytes]]:
    """The batches of offsets partitions that the journal holds, in order."""
    found: dict[int, list[bytes]] = {}
    names = journal_names(disk.names(data / JOURNAL))
    if not names:
        return found
    partitions = _number_of_partitions(data, disk)
    for name in names:
        with suppress(FileNotFoundError):  # removed since, because all of it is in the partition files
            path = data / JOURNAL / name
            content = read_file(disk, path)
            extent = measure(content, journal_salt(name), is_newest=name == names[-1])
            for position, size, reason in extent.damaged:
                complain(Damage(path, position, size, reason, UNKNOWN_OFFSET, None))
            for batches in read_rounds(content, extent):
                for number, batch in batches:
                    if number < partitions:
                        found.setdefault(number, []).append(bytes(batch))
    return found


def _number_of_partitions(data: Path, disk: Disk) -> int:
    path = data / INFO_NAME
    if INFO_NAME not in disk.names(data):
        raise StartError(f"{data}: found a journal and no {INFO_NAME}, expected it there; put it back")
    return parse_info(path, read_file(disk, path)).offsets_partitions


def _with_journal(source: Source, scratch: Path, disk: Disk) -> LogPartition:
    """The partition itself, or a picture of it with what the journal has."""
    partition, journal = source
    if not journal:
        return partition
    picture = LogPartition(partition.topic, partition.number, scratch / partition.folder.name)
    manifest, files = log_files(disk, partition.folder)
    for path in (picture.folder, segments_folder(picture.folder), manifest_folder(picture.folder)):
        path.mkdir(parents=True, exist_ok=True)
    if manifest.generation:
        name = manifest_name(manifest.generation)
        (manifest_folder(picture.folder) / name).write_bytes(read_file(disk, manifest_folder(partition.folder) / name))
    for file in files:
        if file.is_closed:
            (picture.folder / file.path.relative_to(partition.folder)).symlink_to(file.path.absolute())
    _write_last(files, manifest.clean_end, picture.folder, journal, disk)
    return picture


def _write_last(files: Sequence[LogFile], clean_end: int, folder: Path, journal: Sequence[bytes], disk: Disk) -> None:
    """The picture's last file: that of the log, and in the place of what the journal has, that.

    The journal holds everything from its first batch on. The file may lack some of it and may have more, if a server
    has written since.
    """
    last = files[-1] if files and not files[-1].is_closed else None
    base = clean_end if last is None else last.base
    batches = _in_order(journal, base)
    if last is None and not batches:
        return
    path = folder / segment_name(offsets_of(batches[0])[0] if last is None else base)
    with path.open("wb") as copy:
        if last is None:
            copy.writelines(batches)
        else:
            _merge(last, batches, copy, disk)


def _in_order(journal: Sequence[bytes], base: int) -> list[bytes]:
    """Those from an offset on, each once."""
    found: dict[int, bytes] = {offsets_of(batch)[0]: batch for batch in journal}
    return [batch for first, batch in sorted(found.items()) if base <= first and offsets_of(batch)[1] <= LOG_OFFSET_MAX]


def _merge(last: LogFile, journal: list[bytes], copy: BinaryIO, disk: Disk) -> None:
    first, end = (offsets_of(journal[0])[0], offsets_of(journal[-1])[1]) if journal else (UNREACHED, UNREACHED)
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
    """As it is, with what is damaged in it."""
    fd = disk.open(path, os.O_RDONLY)
    try:
        for at in range(0, size, _COPY_BYTES):
            copy.write(read_at(disk, fd, min(_COPY_BYTES, size - at), at))
    finally:
        disk.close(fd)
