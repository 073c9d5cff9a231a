"""Our log in the folders of a stopped Kafka, which then starts on it: its groups and offsets are ours.

Kafka knows a partition by the name of its folder and by ``partition.metadata`` in it, which holds an id of Kafka's own;
a folder without that it puts aside. So Kafka must have made its topics before, and of each folder that file stays. All
else goes: indexes, snapshots and the epochs are made anew from the ``.log`` files, and so are the numbers in Kafka's
checkpoint files, of which the lines about these partitions are taken out.

The new folders are made and read back beside the old ones, and then change places with them. Meanwhile they lie in a
folder of Kafka's whose name it does not take for a partition's: after a crash in between it refuses to start, and the
next run of this puts everything back first.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

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
from ..groups.show import counted
from ..log.repair import stopped_server
from ..log.verify import Replay, differences
from ..log.walk import Found, LogPartition, find_partitions, gone, is_torn_tail, walk
from .kafka_folder import COUNT_SETTINGS, partition_folders, stopped
from .table import Complain

METADATA = "partition.metadata"
UNFINISHED = "callboard_export_unfinished"
OVER = "callboard_export_over"
"""Neither has a dash: Kafka refuses to start while there is one of them among its folders."""

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
"""What makes Kafka create its topics: nothing is found, but it has been looked for."""

_NEW, _OLD = "new", "old"
_EPOCH_AT = 12  # of a batch: outside of its checksum


class Place(NamedTuple):
    """A partition of ours, and the folder of one of Kafka's replicas of it. ``source`` is None: it has no records."""

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


class Plan(NamedTuple):
    """``kept``: for each of Kafka's folders that has records the one where they are kept."""

    kafkas: tuple[Path, ...]
    places: tuple[Place, ...]
    kept: Mapping[Path, Path]


class Made(NamedTuple):
    """What was laid in."""

    partitions: int
    files: int
    size: int


@contextmanager
def prepared(data: Path, kafkas: Sequence[Path], is_replacing: bool, disk: Disk) -> Iterator[Plan]:
    """What is to be done, while neither a server of ours nor Kafka can start. StartError when it cannot be done."""
    if INFO_NAME not in disk.names(data):
        raise StartError(f"{data}: found no {INFO_NAME}, expected a data folder of Callboard; check the path")
    with stopped_server(data, disk), stopped(kafkas, is_written=True):
        for kafka in kafkas:
            put_back(kafka, disk)
        info = parse_info(data / INFO_NAME, read_file(disk, data / INFO_NAME))
        used = [one for one in find_partitions(data) if is_used(one, disk)]
        sources = {(one.topic, one.number): one for one in used}
        places = tuple(_places(kafkas, info, sources, disk))
        full = [place for place in places if has_records(place.target, disk)]
        if full and not is_replacing:
            raise StartError(
                f"{full[0].target}: Kafka has records in it, and in {len(full) - 1} other folders, expected none;"
                " --replace lays ours in their place, and keeps them in a folder beside"
            )
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        kept = {one.kafka: one.kafka.with_name(f"{one.kafka.name}.replaced-{stamp}") for one in full}
        yield Plan(tuple(kafkas), places, kept)


def is_used(partition: LogPartition, disk: Disk) -> bool:
    """Whether it has records, or had some that are gone."""
    return has_records(partition.folder, disk) or (
        partition.known_end is not None and partition.known_end.end_offset > 0
    )


def has_records(folder: Path, disk: Disk) -> bool:
    return any(file_size(disk, file.path) for file in log_files(disk, folder).files)


def _places(
    kafkas: Sequence[Path], info: FolderInfo, sources: Mapping[tuple[str, int], LogPartition], disk: Disk
) -> Iterator[Place]:
    counts = {TOPIC: info.offsets_partitions, TRANSACTIONS_TOPIC: info.transactions_partitions}
    folders = {kafka: partition_folders(disk.names(kafka)) for kafka in kafkas}
    for topic, count in counts.items():
        is_used = topic == TOPIC or any(of == topic for of, _ in sources)
        if is_used:  # without transactions Kafka's own are left alone
            _check_count(kafkas, topic, count, {number for one in folders.values() for number in one[topic]})
            for kafka in kafkas:
                for number, name in sorted(folders[kafka][topic].items()):
                    yield Place(sources.get((topic, number)), kafka, name)


def _check_count(kafkas: Sequence[Path], topic: str, ours: int, theirs: set[int]) -> None:
    where = ", ".join(str(kafka) for kafka in kafkas)
    if not theirs:
        raise StartError(
            f"{where}: found no folder {topic}-N, expected those that Kafka makes; start it with"
            f" {COUNT_SETTINGS[topic]}={ours}, have it make them ({MAKE_TOPIC[topic]}), stop it, then try again"
        )
    count = max(theirs) + 1
    if count != ours:
        raise StartError(
            f"{where}: Kafka's {topic} has {count} partitions, and ours {ours}; what lies in which depends on it: set"
            f" {COUNT_SETTINGS[topic]}={ours} for a Kafka that has not made this topic yet"
        )
    missing = set(range(count)) - theirs
    if missing:
        raise StartError(
            f"{where}: found no folder {topic}-{min(missing)}, expected all {count}; repeat --kafka-dir for each of"
            " Kafka's log.dirs"
        )


# Making the new folders ----------------------------------------------------------------------------------------------


def make_all(places: Iterable[Place], disk: Disk, complain: Complain) -> Made:
    """Make the new folders beside Kafka's, and read them back. ``complain`` is told what keeps one from being right."""
    made = [_make(place, disk, complain) for place in places]
    return Made(len(made), sum(one.files for one in made), sum(one.size for one in made))


def _make(place: Place, disk: Disk, complain: Complain) -> Made:
    disk.make_folder(place.new)
    metadata = place.target / METADATA
    if metadata.exists():  # Kafka has made it, or it would not know the folder
        replace_file(disk, place.new / METADATA, read_file(disk, metadata))
    else:
        complain(f"{place.target}: found no {METADATA}, expected Kafka's; without it Kafka puts the folder aside")
    sizes: list[int] = []
    if place.source is not None:
        for damage in gone(place.source, disk):
            complain(damage)
        sizes = _write_log(place.source, place.new, disk, complain)
        _compare(place, disk, complain)
    _keep_modes(place, disk)
    disk.sync_folder(place.new)
    return Made(1, len(sizes), sum(sizes))


def _keep_modes(place: Place, disk: Disk) -> None:
    """Give the new folder and its files the owners and modes of those that they replace, for Kafka's user."""
    old = [name for name in disk.names(place.target) if name.endswith(".log")] or [METADATA]
    for name in disk.names(place.new):
        models = [place.target / each for each in (name, old[-1])]
        model = next((each for each in models if each.exists()), None)
        if model is not None:
            copy_owner_and_mode(model, place.new / name)
    copy_owner_and_mode(place.target, place.new)


def _write_log(source: LogPartition, folder: Path, disk: Disk, complain: Complain) -> list[int]:
    """The files of a log under plain names; their sizes in bytes."""
    files = log_files(disk, source.folder).files
    bases = [*(file.base for file in files[1:]), None]
    sizes = []
    for file, next_base in zip(files, bases, strict=False):  # there may be no file left
        fd = disk.open(folder / segment_name(file.base), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            size = 0
            for piece in scan_runs_past_damage(disk, file.path, file.base, None if file.is_clean else next_base):
                if isinstance(piece, BatchRun):
                    data = _with_our_epoch(piece)
                    write_all(disk, fd, data, size)
                    size += len(data)
                elif not is_torn_tail(piece, source, disk):
                    complain(f"{piece}: Kafka would drop what lies behind it; callboard log repair takes it out")
            disk.sync(fd)
        finally:
            disk.close(fd)
        sizes.append(size)
    return sizes


def _with_our_epoch(run: BatchRun) -> bytes:
    """The same batches, all of the one leader epoch that we have: of another Kafka's this one knows nothing."""
    data = bytearray(run.data)
    for batch in run.batches:
        at = batch.position - run.position + _EPOCH_AT
        data[at : at + 4] = LEADER_EPOCH.to_bytes(4, "big")
    return bytes(data)


def _compare(place: Place, disk: Disk, complain: Complain) -> None:
    """What Kafka will read must be what we read."""
    assert place.source is not None
    ours, theirs = _state(place.source, disk, complain), _state(place.source._replace(folder=place.new), disk, complain)
    for difference in differences(ours, "in our log", theirs, "in what was made for Kafka"):
        complain(f"{place.source.folder}: {difference}")


def _state(partition: LogPartition, disk: Disk, complain: Complain) -> Mapping[str, object]:
    replay = Replay()
    for piece in walk(partition, disk):
        if isinstance(piece, Found):
            replay.take(piece.record)
        elif not isinstance(piece, Damage):
            complain(f"{piece}; what cannot be read is not given to Kafka")
    return replay.state()


# Changing places -----------------------------------------------------------------------------------------------------


def put_in_place(plan: Plan, disk: Disk) -> Mapping[Path, Path]:
    """Put the new folders in the place of the old ones; where those that had records are kept, by Kafka's folder."""
    for kafka, kept in plan.kept.items():
        _keep([place.target for place in plan.places if place.kafka == kafka], kept, disk)
    for kafka in plan.kafkas:
        disk.make_folder(kafka / UNFINISHED / _OLD)
        for folder in (kafka / UNFINISHED / _NEW, kafka / UNFINISHED, kafka):
            disk.sync_folder(folder)
    for place in plan.places:
        disk.rename(place.target, place.old)
        disk.rename(place.new, place.target)
    for kafka in plan.kafkas:
        _forget_offsets(kafka, disk)
        disk.sync_folder(kafka / UNFINISHED / _OLD)
        disk.sync_folder(kafka)
    for kafka in plan.kafkas:  # from here on it is over, even if only in one of them
        disk.rename(kafka / UNFINISHED, kafka / OVER)
        disk.sync_folder(kafka)
        _remove(kafka / OVER, disk)
    return plan.kept


def give_up(plan: Plan, disk: Disk) -> None:
    """Leave Kafka's folders as they were."""
    for kafka in plan.kafkas:
        put_back(kafka, disk)


def put_back(kafka: Path, disk: Disk) -> None:
    """Undo in one of Kafka's folders what a run has done that did not come to its end; tidy up after one that did."""
    if (kafka / OVER).exists():
        _remove(kafka / OVER, disk)
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
    _remove(kafka / UNFINISHED, disk)


def _remove(folder: Path, disk: Disk) -> None:
    """A folder of ours in Kafka's. What was worth keeping lies beside."""
    shutil.rmtree(folder)
    disk.sync_folder(folder.parent)


def _keep(folders: Sequence[Path], kept: Path, disk: Disk) -> None:
    """All that Kafka had, durably: by another name for the same bytes, or by a copy where the disk is another one."""
    for folder in folders:
        disk.make_folder(kept / folder.name)
        copy_owner_and_mode(folder.parent, kept)
        copy_owner_and_mode(folder, kept / folder.name)
        for name in disk.names(folder):
            try:
                disk.link(folder / name, kept / folder.name / name)
            except OSError:
                replace_file(disk, kept / folder.name / name, read_file(disk, folder / name))
                copy_owner_and_mode(folder / name, kept / folder.name / name)
        disk.sync_folder(kept / folder.name)
    disk.sync_folder(kept)
    disk.sync_folder(kept.absolute().parent)


def _forget_offsets(kafka: Path, disk: Disk) -> None:
    """Take what Kafka's checkpoint files say of our topics: lines of ``topic partition offset`` behind their count."""
    for name in CHECKPOINTS:
        with suppress(FileNotFoundError):
            version, *lines = read_file(disk, kafka / name).decode().splitlines() or [""]
            kept = [line for line in lines[1:] if line.split(" ")[0] not in COUNT_SETTINGS]
            if len(kept) < len(lines) - 1:
                _replace(disk, kafka / name, "\n".join([version, str(len(kept)), *kept, ""]).encode())


def _replace(disk: Disk, path: Path, data: bytes) -> None:
    """As ``replace_file``; the new file has the owner and the mode of the old one from the first moment."""
    side = path.with_name(f"{path.name}.new")
    side.unlink(missing_ok=True)
    write_file(disk, side, data)
    copy_owner_and_mode(path, side)
    disk.rename(side, path)
    disk.sync_folder(path.parent)


def in_words(plan: Plan, made: Made, kept: Mapping[Path, Path]) -> str:
    what = f"{counted(made.files, 'file')} with {counted(made.size, 'byte')}"
    lines = [f"{what} laid into {counted(made.partitions, 'folder')} of Kafka, and read back; start it"]
    if any(place.source is not None and place.source.topic == TRANSACTIONS_TOPIC for place in plan.places):
        lines.append(
            "transactional ids bring their producer ids, which Kafka may give to others, too: use new ones there"
        )
    return "\n".join(lines + [f"what {kafka} had is kept in {beside}" for kafka, beside in kept.items()])
