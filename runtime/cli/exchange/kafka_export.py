"""Export Callboard's log into the folders of a stopped Kafka. When Kafka starts, it serves these groups and offsets.

Kafka identifies a partition by the name of its folder and by an id in the file ``partition.metadata``. It ignores a
folder without that file. Kafka must therefore have created its topics before, and that file is kept. Everything else is
replaced: Kafka rebuilds indexes, snapshots and epochs from the ``.log`` files, and also the entries in its checkpoint
files, from which the lines about these partitions are removed.

The new folders are built and read back next to the old ones, and then swapped with them. Until then they are in a
folder whose name Kafka does not accept as a partition. An error in between restores everything. After a crash Kafka
refuses to start, and the next export first restores everything.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain
from itertools import count as count_from
from pathlib import Path
from typing import NamedTuple

from ....actors.text import format_count
from ...common.errors import StartError
from ...disk.disk import Disk, file_size, read_file, replace_file, write_all
from ...disk.modes import copy_owner_and_mode
from ...log.folder import INFO_NAME, FolderInfo, parse_info
from ...log.format.batch import LEADER_EPOCH
from ...log.format.errors import Damage
from ...log.manifest import log_files, write_file
from ...log.partition import TOPIC, TRANSACTIONS_TOPIC
from ...log.reading.damage_scan import BatchRun, scan_runs_past_damage
from ...log.reading.segment import segment_name
from ..log.forward import LogReplay
from ..log.repair import require_stopped_server
from ..log.scan import LoggedRecord, LogPartition, find_missing, find_partitions, is_torn_tail, scan_partition
from ..log.verify import describe_differences
from .kafka_folder import COUNT_SETTINGS, partition_folders, require_stopped_kafka
from .row_sources import ProblemCallback

METADATA = "partition.metadata"
UNFINISHED = "callboard_export_unfinished"
FINISHED = "callboard_export_over"
"""Kafka refuses to start while one of these is among its folders, because the names have no dash."""

CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
MAKE_TOPIC = {
    TOPIC: "kafka-consumer-groups.sh --bootstrap-server HOST:PORT --describe --group any",
    TRANSACTIONS_TOPIC: "kafka-transactions.sh --bootstrap-server HOST:PORT describe --transactional-id any",
}
"""Commands that make Kafka create its topics. They return no offsets, but the lookup creates the topic."""

_NEW, _OLD = "new", "old"
_BACKUP = "backup"
_WRITTEN = "\n"
"""A file in UNFINISHED with the name of the folder that keeps Kafka's records, and the end of a complete name."""

_EPOCH_AT = 12  # byte offset in a batch; not covered by its checksum


class FolderSwap(NamedTuple):
    """A partition of Callboard and the Kafka folder that it replaces. ``source`` is None when it has no records."""

    source: LogPartition | None
    kafka: Path
    name: str

    @property
    def target(self) -> Path:
        return self.kafka / self.name

    @property
    def new(self) -> Path:
        return self.kafka / UNFINISHED / _NEW / self.name

    @property
    def old(self) -> Path:
        return self.kafka / UNFINISHED / _OLD / self.name


class ExportPlan(NamedTuple):
    """``backups``: for each Kafka folder with records, the folder in which they are kept."""

    kafkas: tuple[Path, ...]
    swaps: tuple[FolderSwap, ...]
    backups: Mapping[Path, Path]


class ExportResult(NamedTuple):
    """Totals of an export; ``size`` is in bytes."""

    partitions: int
    files: int
    size: int


@contextmanager
def prepare_export(data: Path, kafkas: Sequence[Path], is_replacing: bool, disk: Disk) -> Iterator[ExportPlan]:
    """Plan an export. Neither Callboard nor Kafka can start until the block ends. StartError if it is impossible."""
    if INFO_NAME not in disk.names(data):
        raise StartError(f"{data}: found no {INFO_NAME}, expected a data folder of Callboard; check the path")
    with require_stopped_server(data, disk), require_stopped_kafka(kafkas, is_written=True):
        was_complete = restore_after_kill(kafkas, disk)
        info = parse_info(data / INFO_NAME, read_file(disk, data / INFO_NAME))
        used_partitions = [partition for partition in find_partitions(data) if is_used(partition, disk)]
        sources = {(partition.topic, partition.number): partition for partition in used_partitions}
        swaps = tuple(_plan_swaps(kafkas, info, sources, disk))
        used_targets = [swap for swap in swaps if has_records(swap.target, disk)]
        if used_targets and not is_replacing and was_complete:
            raise StartError(
                f"{used_targets[0].kafka}: the last export was complete except for its own folder {FINISHED}, which is"
                " removed now; start Kafka, or export again with --replace"
            )
        if used_targets and not is_replacing:
            count = len(used_targets) - 1
            others = f" and in {format_count(count, 'other folder')}" if count else ""
            raise StartError(
                f"{used_targets[0].target}: found Kafka's records in it{others},"
                " expected none; --replace replaces them, and keeps them in another folder"
            )
        timestamp = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        backups = {swap.kafka: _new_backup(swap.kafka, timestamp) for swap in used_targets}
        yield ExportPlan(tuple(kafkas), swaps, backups)


def _new_backup(kafka: Path, timestamp: str) -> Path:
    """A name that no earlier backup has, not even one of the same second."""
    first = kafka.with_name(f"{_backup_prefix(kafka)}{timestamp}")
    paths = chain([first], (first.with_name(f"{first.name}-{number}") for number in count_from(2)))
    return next(path for path in paths if not os.path.lexists(path))


def _backup_prefix(kafka: Path) -> str:
    return f"{kafka.name}.replaced-"


def is_used(partition: LogPartition, disk: Disk) -> bool:
    """Whether it has records, or had records that are missing now."""
    return has_records(partition.folder, disk) or (
        partition.known_end is not None and partition.known_end.end_offset > 0
    )


def has_records(folder: Path, disk: Disk) -> bool:
    return any(file_size(disk, file.path) for file in log_files(disk, folder).files)


def _plan_swaps(
    kafkas: Sequence[Path], info: FolderInfo, sources: Mapping[tuple[str, int], LogPartition], disk: Disk
) -> Iterator[FolderSwap]:
    counts = {TOPIC: info.offsets_partitions, TRANSACTIONS_TOPIC: info.transactions_partitions}
    folders = {kafka: partition_folders(disk.names(kafka)) for kafka in kafkas}
    for topic, count in counts.items():
        is_used = topic == TOPIC or any(source_topic == topic for source_topic, _ in sources)
        if is_used:  # without transactions in Callboard, Kafka's are not touched
            _check_count(
                kafkas, topic, count, {number for partition in folders.values() for number in partition[topic]}
            )
            for kafka in kafkas:
                for number, name in sorted(folders[kafka][topic].items()):
                    yield FolderSwap(sources.get((topic, number)), kafka, name)


def _check_count(kafkas: Sequence[Path], topic: str, our_count: int, kafka_numbers: set[int]) -> None:
    folder_names = ", ".join(str(kafka) for kafka in kafkas)
    if not kafka_numbers:
        raise StartError(
            f"{folder_names}: found no folder {topic}-N, expected those that Kafka makes; start it with"
            f" {COUNT_SETTINGS[topic]}={our_count}, have it make them ({MAKE_TOPIC[topic]}), stop it, then try again"
        )
    count = max(kafka_numbers) + 1
    if count != our_count:
        raise StartError(
            f"{folder_names}: Kafka's {topic} has {count} partitions, and ours {our_count}; a group's partition depends"
            f" on it: set {COUNT_SETTINGS[topic]}={our_count} for a Kafka that has not made this topic yet"
        )
    missing = set(range(count)) - kafka_numbers
    if missing:
        raise StartError(
            f"{folder_names}: found no folder {topic}-{min(missing)}, expected all {count}; repeat --kafka-dir for each"
            " of Kafka's log.dirs"
        )


# Making the new folders ----------------------------------------------------------------------------------------------


def build_folders(swaps: Iterable[FolderSwap], disk: Disk, on_problem: ProblemCallback) -> ExportResult:
    """Build the new folders next to Kafka's, and read them back. ``on_problem`` is called with each problem."""
    result = [_build_folder(swap, disk, on_problem) for swap in swaps]
    return ExportResult(
        len(result), sum(partition.files for partition in result), sum(partition.size for partition in result)
    )


def _build_folder(swap: FolderSwap, disk: Disk, on_problem: ProblemCallback) -> ExportResult:
    disk.make_folder(swap.new)
    metadata = swap.target / METADATA
    if metadata.exists():
        replace_file(disk, swap.new / METADATA, read_file(disk, metadata))
    else:
        on_problem(f"{swap.target}: found no {METADATA}, expected Kafka's; without it Kafka ignores the folder")
    sizes: list[int] = []
    if swap.source is not None:
        for damage in find_missing(swap.source, disk):
            on_problem(damage)
        sizes = _write_log(swap.source, swap.new, disk, on_problem)
        _compare(swap, disk, on_problem)
    _copy_owners_and_modes(swap, disk)
    disk.sync_folder(swap.new)
    return ExportResult(1, len(sizes), sum(sizes))


def _copy_owners_and_modes(swap: FolderSwap, disk: Disk) -> None:
    """Give the new folder and its files the owners and modes of those that they replace, for Kafka's user."""
    old = [name for name in disk.names(swap.target) if name.endswith(".log")] or [METADATA]
    for name in disk.names(swap.new):
        models = [swap.target / path for path in (name, old[-1])]
        model = next((path for path in models if path.exists()), None)
        if model is not None:
            copy_owner_and_mode(model, swap.new / name)
    copy_owner_and_mode(swap.target, swap.new)


def _write_log(source: LogPartition, folder: Path, disk: Disk, on_problem: ProblemCallback) -> list[int]:
    """Write the files of a log under Kafka's names. Returns their sizes in bytes."""
    files = log_files(disk, source.folder).files
    bases = [*(file.base for file in files[1:]), None]
    sizes = []
    for file, next_base in zip(files, bases, strict=False):  # there may be no file
        fd = disk.open(folder / segment_name(file.base), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            size = 0
            for item in scan_runs_past_damage(disk, file.path, file.base, None if file.is_compacted else next_base):
                if isinstance(item, BatchRun):
                    data = _with_our_epoch(item)
                    write_all(disk, fd, data, size)
                    size += len(data)
                elif not is_torn_tail(item, source, disk):
                    on_problem(f"{item}: Kafka would drop everything after it; callboard log repair removes it")
            disk.sync(fd)
        finally:
            disk.close(fd)
        sizes.append(size)
    return sizes


def _with_our_epoch(run: BatchRun) -> bytes:
    """The same batches with Callboard's only leader epoch, since this Kafka has no other epochs."""
    data = bytearray(run.data)
    for batch in run.batches:
        position = batch.position - run.position + _EPOCH_AT
        data[position : position + 4] = LEADER_EPOCH.to_bytes(4, "big")
    return bytes(data)


def _compare(swap: FolderSwap, disk: Disk, on_problem: ProblemCallback) -> None:
    """Report each difference between the source and the files made for Kafka."""
    assert swap.source is not None
    expected = _read_state(swap.source, disk, on_problem)
    actual = _read_state(swap.source._replace(folder=swap.new), disk, on_problem)
    for difference in describe_differences(expected, "in our log", actual, "in what was made for Kafka"):
        on_problem(f"{swap.source.folder}: {difference}")


def _read_state(partition: LogPartition, disk: Disk, on_problem: ProblemCallback) -> Mapping[str, object]:
    replay = LogReplay()
    for item in scan_partition(partition, disk):
        if isinstance(item, LoggedRecord):
            replay.apply(item.record)
        elif not isinstance(item, Damage):
            on_problem(f"{item}; unreadable records are not exported")
    return replay.state()


# Swapping folders ----------------------------------------------------------------------------------------------------


def swap_folders(plan: ExportPlan, disk: Disk) -> None:
    """Replace the old folders by the new ones, durably. Until ``finish_export`` they can be restored."""
    for kafka, backup in plan.backups.items():
        disk.make_folder(kafka / UNFINISHED)
        write_file(disk, kafka / UNFINISHED / _BACKUP, os.fsencode(backup.name + _WRITTEN))
        _back_up([swap.target for swap in plan.swaps if swap.kafka == kafka], backup, disk)
    for kafka in plan.kafkas:
        disk.make_folder(kafka / UNFINISHED / _OLD)
        for folder in (kafka / UNFINISHED / _NEW, kafka / UNFINISHED, kafka):
            disk.sync_folder(folder)
    for swap in plan.swaps:
        disk.rename(swap.target, swap.old)
        disk.rename(swap.new, swap.target)
    for kafka in plan.kafkas:
        _remove_checkpoint_entries(kafka, disk)
        disk.sync_folder(kafka / UNFINISHED / _OLD)
        disk.sync_folder(kafka)


def finish_export(plan: ExportPlan, disk: Disk) -> None:
    """Remove the export's own folders from Kafka's. The first rename completes it: a later run does not undo it."""
    for kafka in plan.kafkas:
        disk.rename(kafka / UNFINISHED, kafka / FINISHED)
        disk.sync_folder(kafka)
    for kafka in plan.kafkas:
        _remove(kafka / FINISHED, disk)


def undo_export(plan: ExportPlan, disk: Disk) -> None:
    """Restore Kafka's folders, and remove their backup."""
    for kafka in plan.kafkas:
        _undo(kafka, disk)


def restore_after_kill(kafkas: Sequence[Path], disk: Disk) -> bool:
    """Undo an export that was killed; if it was complete, only remove its remains. Returns whether it was complete."""
    is_complete = any((kafka / FINISHED).exists() for kafka in kafkas)
    for kafka in kafkas:
        if (kafka / FINISHED).exists():
            _remove(kafka / FINISHED, disk)
        elif is_complete and not disk.names(kafka / UNFINISHED / _NEW):
            _remove(kafka / UNFINISHED, disk)
        else:
            _undo(kafka, disk)
    return is_complete


def _undo(kafka: Path, disk: Disk) -> None:
    if not (kafka / UNFINISHED).exists():
        return
    for name in CHECKPOINTS:
        (kafka / f"{name}.new").unlink(missing_ok=True)
    for name in disk.names(kafka / UNFINISHED / _OLD):
        if (kafka / name).exists():
            disk.make_folder(kafka / UNFINISHED / _NEW)
            disk.rename(kafka / name, kafka / UNFINISHED / _NEW / name)
        disk.rename(kafka / UNFINISHED / _OLD / name, kafka / name)
    disk.sync_folder(kafka)
    with suppress(FileNotFoundError):
        name, is_written, _ = os.fsdecode(read_file(disk, kafka / UNFINISHED / _BACKUP)).rpartition(_WRITTEN)
        if is_written and name.startswith(_backup_prefix(kafka)):
            _remove(kafka.with_name(name), disk)
    _remove(kafka / UNFINISHED, disk)


def _remove(folder: Path, disk: Disk) -> None:
    """Remove one of the export's own folders, durably."""
    if folder.exists():
        shutil.rmtree(folder)
        disk.sync_folder(folder.parent)


def _back_up(folders: Sequence[Path], backup: Path, disk: Disk) -> None:
    """Keep all files that Kafka had, durably: as hard links, or as copies if the backup is on another disk."""
    for folder in folders:
        disk.make_folder(backup / folder.name)
        copy_owner_and_mode(folder.parent, backup)
        copy_owner_and_mode(folder, backup / folder.name)
        for name in disk.names(folder):
            try:
                disk.link(folder / name, backup / folder.name / name)
            except OSError:
                replace_file(disk, backup / folder.name / name, read_file(disk, folder / name))
                copy_owner_and_mode(folder / name, backup / folder.name / name)
        disk.sync_folder(backup / folder.name)
    disk.sync_folder(backup)
    disk.sync_folder(backup.absolute().parent)


def _remove_checkpoint_entries(kafka: Path, disk: Disk) -> None:
    """Remove our topics from Kafka's checkpoint files: a version, a count, then lines ``topic partition offset``."""
    for name in CHECKPOINTS:
        with suppress(FileNotFoundError):
            version, *lines = read_file(disk, kafka / name).decode().splitlines() or [""]
            kept_lines = [line for line in lines[1:] if line.split(" ")[0] not in COUNT_SETTINGS]
            if len(kept_lines) < len(lines) - 1:
                _replace_keeping_owner(
                    disk, kafka / name, "\n".join([version, str(len(kept_lines)), *kept_lines, ""]).encode()
                )


def _replace_keeping_owner(disk: Disk, path: Path, data: bytes) -> None:
    """Like ``replace_file``, but the new file has the owner and the mode of the old one before it is renamed."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    write_file(disk, temporary, data)
    copy_owner_and_mode(path, temporary)
    disk.rename(temporary, path)
    disk.sync_folder(path.parent)


def describe_result(plan: ExportPlan, result: ExportResult) -> str:
    totals = f"{format_count(result.files, 'file')} with {format_count(result.size, 'byte')}"
    lines = [f"{totals} written to {format_count(result.partitions, 'folder')} of Kafka and read back; start Kafka"]
    if any(swap.source is not None and swap.source.topic == TRANSACTIONS_TOPIC for swap in plan.swaps):
        lines.append(
            "transactional ids keep their producer ids, which Kafka may also assign to others: use new ones there"
        )
    return "\n".join(
        lines + [f"the old content of {kafka} is kept in {backup}" for kafka, backup in plan.backups.items()]
    )
