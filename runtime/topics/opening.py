"""Opens ``topics.json`` and ``topics.ends`` at start. Either both exist, or the folder is new, or the start is refused.

``topics.json`` is created first, then ``topics.ends``, then the journal. So a journal, or end offsets, without
``topics.json`` mean that this file was lost; topics without ``topics.ends`` mean that that one was. A folder that was
copied from Kafka, or imported, has none of the files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from ...actors.text import format_count
from ..common.errors import StartError
from ..common.logs import get_logger
from ..disk.disk import Disk, read_file
from ..log.folder import TOPICS_NAME
from ..log.journal import FOLDER as JOURNAL
from ..log.recovery.clean_stop import NOTE_NAME as CLEAN_STOP
from .end_slots import FIRST_SLOT, HEADER, decode_file
from .ends import EndOffsetsFile, create_file
from .store import START_WITHOUT, TopicRow, TopicsFile, encode_table, load_table, save_table

log = get_logger("callboard.runtime")

UNKNOWN_SIZE = -1
ENDS_NAME = "topics.ends"
DAMAGED_NAME = "topics.ends.damaged"
SALVAGED_NAME = "topics.ends.salvaged"

Slots = list[int | None]
"""End offsets by slot; None for a damaged slot."""


class OpenedFiles(NamedTuple):
    """``table_bytes``: the size of ``topics.json``; UNKNOWN if it has an old format and could not be replaced."""

    table: TopicsFile
    ends: EndOffsetsFile
    table_bytes: int


def open_files(folder: Path, disk: Disk, new_id: Callable[[], UUID]) -> OpenedFiles:
    """Read both files, and convert them to the current format. Raises StartError."""
    path = folder / TOPICS_NAME
    loaded = load_table(path, disk)
    if loaded is None:
        _refuse_lost_table(folder, disk)
    table = (loaded.table if loaded else None) or TopicsFile(new_id(), 0, ())
    size = len(encode_table(table))
    if loaded is None:
        _create_table(path, table, disk)
    try:
        ends = _open_ends(folder, table, disk)
    except OSError as error:
        raise StartError(f"cannot open the end offsets '{folder / ENDS_NAME}': {error.strerror}") from error
    if loaded is not None and not loaded.is_current:
        try:
            save_table(path, table, disk)
        except OSError as error:
            log.warning("the topics keep their old format for now", file=str(path), reason=str(error))
            size = UNKNOWN_SIZE
    return OpenedFiles(table, ends, size)


def _create_table(path: Path, table: TopicsFile, disk: Disk) -> None:
    try:
        save_table(path, table, disk)
    except OSError as error:
        raise StartError(f"cannot write the topics '{path}': {error.strerror}") from error


def _refuse_lost_table(folder: Path, disk: Disk) -> None:
    files = [name for name in (JOURNAL, CLEAN_STOP) if disk.kind(folder / name) != "nothing"]
    if any((_read_slots(folder / ENDS_NAME, disk) or [])[FIRST_SLOT:]):
        files.append(ENDS_NAME)
    if disk.kind(folder / DAMAGED_NAME) == "file":
        files.append(DAMAGED_NAME)
    if files:
        raise StartError(
            f"found {' and '.join(files)} in '{folder}' and no '{folder / TOPICS_NAME}', expected it there, with the"
            f" names of the topics; put it back, or {START_WITHOUT}"
        )


def _read_slots(path: Path, disk: Disk) -> Slots | None:
    """The slots of a file; None if it does not exist or has an unknown format. Raises StartError."""
    try:
        return decode_file(read_file(disk, path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StartError(f"cannot read the end offsets '{path}': {error.strerror}; check its owner and mode") from error


def _open_ends(folder: Path, table: TopicsFile, disk: Disk) -> EndOffsetsFile:
    path = folder / ENDS_NAME
    slots = _read_slots(path, disk)
    if not table.topics and slots is None:
        create_file(path, [], disk)
        return EndOffsetsFile(path, disk)
    if disk.kind(path) == "nothing" and disk.kind(folder / DAMAGED_NAME) == "file":
        slots = _salvage(folder, table, disk)
    else:
        _check_slots(path, table, slots, disk)
    assert slots is not None
    if read_head(path, disk) != HEADER:
        create_file(path, [offset or 0 for offset in slots], disk)
        log.info("the end offsets of topics were converted to the current format", file=str(path))
    ends = EndOffsetsFile(path, disk)
    for row in table.topics:
        ends.set_loaded(row.first_slot, [offset or 0 for offset in _slots_of(row, slots)])
    return ends


def read_head(path: Path, disk: Disk) -> bytes:
    return read_file(disk, path)[: len(HEADER)]


def _check_slots(path: Path, table: TopicsFile, slots: Slots | None, disk: Disk) -> None:
    """Raise StartError unless the file has a valid slot for each partition."""
    topics = f"{format_count(len(table.topics), 'topic')} in '{TOPICS_NAME}'"
    if disk.kind(path) == "nothing":
        raise StartError(
            f"found {topics} and no '{path}', expected it there, with the ends of their partitions; put it back, or"
            f" make an empty file '{DAMAGED_NAME}' to {_SALVAGE_EFFECT}, or {START_WITHOUT}"
        )
    remedy = f"restore it from a copy, or rename it to '{DAMAGED_NAME}' to {_SALVAGE_EFFECT}, or {START_WITHOUT}"
    if slots is None:
        head = read_head(path, disk)
        raise StartError(f"the end offsets '{path}' begin with {head!r}: expected {HEADER!r}; {remedy}")
    damaged = _damaged_partitions(table, slots)
    if damaged:
        others = f", and for {format_count(len(damaged) - 1, 'other')}" if len(damaged) > 1 else ""
        raise StartError(
            f"the end offsets '{path}' are damaged: no valid slot for partition {damaged[0]}{others}; {remedy}"
        )


def _damaged_partitions(table: TopicsFile, slots: Slots) -> list[str]:
    """The partitions whose slot is missing or damaged."""
    return [
        f"{row.name}-{index}"
        for row in table.topics
        for index, offset in enumerate(_slots_of(row, slots))
        if offset is None
    ]


def _slots_of(row: TopicRow, slots: Slots) -> Sequence[int | None]:
    offsets = slots[row.first_slot : row.first_slot + row.partitions]
    return offsets + [None] * (row.partitions - len(offsets))


def _salvage(folder: Path, table: TopicsFile, disk: Disk) -> Slots:
    """Take the valid slots of a damaged file, as the user has requested. Loading the log raises the others."""
    slots = _read_slots(folder / DAMAGED_NAME, disk) or []
    damaged = _damaged_partitions(table, slots)
    slots += [None] * (max(row.first_slot + row.partitions for row in table.topics) - len(slots))
    create_file(folder / ENDS_NAME, [offset or 0 for offset in slots], disk)
    disk.rename(folder / DAMAGED_NAME, folder / SALVAGED_NAME)
    disk.sync_folder(folder)
    log.warning(
        "end offsets were lost: these partitions begin at the highest offset that a group has committed",
        partitions=len(damaged),
        first=", ".join(damaged[:10]),
    )
    return slots


_SALVAGE_EFFECT = "begin the damaged partitions at the highest offset that a group has committed"
