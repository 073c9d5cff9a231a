"""Computes the offsets that a reset writes, by Kafka's rules (KIP-122). Pure, except for reading ``--from-file``.

An offset outside the partition's range is moved to the nearest end, with a note in the table.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from ...client.cluster import OffsetAndMetadata, TopicPartition
from ...common.errors import StartError
from ...settings.rows import INT_MAX
from ..exchange.text_source import RecordLines, TooLong, open_text
from ..tables import Column, Table

FILE_BYTES_MAX = 100_000_000
"""More than the offsets of any one group."""

TOPIC_CHARACTERS_SHOWN = 300
"""More than a topic name and some partitions."""

FILE_COLUMNS = ("topic", "partition", "offset")

_INTEGER = re.compile(r" *([+-]?[0-9]{1,19}) *")  # int() also takes 1_0


class ResetMode(Enum):
    """How the new offset is chosen; the value is the command-line option."""

    EARLIEST = "--to-earliest"
    LATEST = "--to-latest"
    OFFSET = "--to-offset"
    SHIFT = "--shift-by"
    DATETIME = "--to-datetime"
    FILE = "--from-file"
    GROUP = "--to-offsets-of"


class ResetTarget(NamedTuple):
    """``number``: an offset, a shift, or milliseconds since the epoch. ``file_offsets``: the content of the file.

    ``group``: the other group.
    """

    mode: ResetMode
    number: int = 0
    file_offsets: Mapping[TopicPartition, int] = {}
    group: str = ""


class OffsetChange(NamedTuple):
    """The change of one partition; ``note`` explains an unusual value."""

    topic_partition: TopicPartition
    before: int | None
    after: int
    note: str = ""


class OffsetBounds(NamedTuple):
    """First offsets and ends of the partitions, and the offsets at the requested time, all from ListOffsets.

    ``of_group``: the committed offsets of the other group.
    """

    earliest: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]
    at_time: Mapping[TopicPartition, int] = {}
    of_group: Mapping[TopicPartition, OffsetAndMetadata] = {}


def plan_reset(
    topic_partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    bounds: OffsetBounds,
    target: ResetTarget,
) -> list[OffsetChange]:
    """The new offset of each partition. Raises StartError if one does not exist, or has no offset to shift."""
    return [
        _change(topic_partition, committed.get(topic_partition), bounds, target) for topic_partition in topic_partitions
    ]


def _change(
    topic_partition: TopicPartition, offset: OffsetAndMetadata | None, bounds: OffsetBounds, target: ResetTarget
) -> OffsetChange:
    if topic_partition not in bounds.latest or topic_partition not in bounds.earliest:
        raise StartError(f"partition {topic_partition[0]}:{topic_partition[1]} does not exist, or has no leader now")
    current = None if offset is None else offset.offset
    low, high = bounds.earliest[topic_partition], bounds.latest[topic_partition]
    target_offset = _target_offset(topic_partition, current, bounds, target)
    if target_offset is None:
        return OffsetChange(topic_partition, current, high, "no record so late: the end")
    new = min(max(target_offset, low), high)
    if new != target_offset:
        side = "before the first" if target_offset < low else "after the end"
        return OffsetChange(topic_partition, current, new, f"{target_offset} is {side}")
    return OffsetChange(topic_partition, current, new, "unchanged" if new == current else "")


def _target_offset(
    topic_partition: TopicPartition, current: int | None, bounds: OffsetBounds, target: ResetTarget
) -> int | None:
    match target.mode:
        case ResetMode.EARLIEST:
            return bounds.earliest[topic_partition]
        case ResetMode.LATEST:
            return bounds.latest[topic_partition]
        case ResetMode.OFFSET:
            return target.number
        case ResetMode.DATETIME:
            return bounds.at_time.get(topic_partition)
        case ResetMode.FILE:
            return target.file_offsets[topic_partition]
        case ResetMode.GROUP:
            if topic_partition not in bounds.of_group:
                name = f"{topic_partition[0]}:{topic_partition[1]}"
                raise StartError(f"--to-offsets-of: group '{target.group}' has no offset for {name}")
            return bounds.of_group[topic_partition].offset
        case ResetMode.SHIFT:
            if current is None:
                raise StartError(
                    f"--shift-by: the group has no offset for {topic_partition[0]}:{topic_partition[1]} to shift"
                )
            return current + target.number


def choose_target(
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    from_file: Path | None,
    to_offsets_of: str | None,
) -> ResetTarget:
    """The given target. Raises StartError for none and for more than one."""
    options = [
        *([ResetTarget(ResetMode.EARLIEST)] if to_earliest else []),
        *([ResetTarget(ResetMode.LATEST)] if to_latest else []),
        *([ResetTarget(ResetMode.OFFSET, to_offset)] if to_offset is not None else []),
        *([ResetTarget(ResetMode.SHIFT, shift_by)] if shift_by is not None else []),
        *([ResetTarget(ResetMode.DATETIME, parse_datetime(to_datetime))] if to_datetime is not None else []),
        *([ResetTarget(ResetMode.FILE, file_offsets=read_offsets(from_file))] if from_file is not None else []),
        *([ResetTarget(ResetMode.GROUP, group=to_offsets_of)] if to_offsets_of is not None else []),
    ]
    if len(options) != 1:
        modes = ", ".join(mode.value for mode in ResetMode)
        given_modes = " and ".join(target.mode.value for target in options) or "none"
        raise StartError(f"expected exactly one of {modes}, not {given_modes}")
    return options[0]


def parse_datetime(text: str) -> int:
    """Parse ISO 8601 to milliseconds since the epoch. Without a zone it is UTC, as in Kafka's tool."""
    try:
        parsed_time = datetime.fromisoformat(text)
    except ValueError as error:
        raise StartError(
            f"bad --to-datetime '{text}': expected ISO 8601, as in 2026-01-31T08:00:00 or 2026-01-31T08:00:00+02:00"
        ) from error
    utc_time = parsed_time if parsed_time.tzinfo is not None else parsed_time.replace(tzinfo=UTC)
    return round(utc_time.timestamp() * 1000)


def parse_topic(text: str) -> tuple[str, tuple[int, ...] | None]:
    """Parse T or T:P,... from the command line; None means all partitions."""
    topic, colon, numbers = text.partition(":")
    parts = numbers.split(",")
    if not topic or (colon and not all(map(_is_partition, parts))):
        raise StartError(
            f"bad topic '{text[:TOPIC_CHARACTERS_SHOWN]}': expected TOPIC or TOPIC:PARTITION,..., as in orders or "
            f"orders:0,3, with partitions of 0 to {INT_MAX}"
        )
    return topic, tuple(dict.fromkeys(int(part) for part in parts)) if colon else None


def _is_partition(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(INT_MAX)) and int(text) <= INT_MAX


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """Lines of topic,partition,offset, as ``callboard groups offsets --csv`` and Kafka's tool write them.

    If the first line names columns these three are read, as from ``callboard history as-of --csv``. Raises StartError.
    """
    offsets: dict[TopicPartition, int] = {}
    groups: set[str] = set()
    names: Sequence[str] = ()
    try:
        with open_text(path, FILE_BYTES_MAX) as source:
            lines = RecordLines(source)
            for number, row in enumerate(csv.reader(lines), start=1):
                lines.begin_record()
                if number == 1 and set(FILE_COLUMNS) <= set(row):
                    names = row
                elif row:
                    fields = dict(zip(names, row, strict=False))
                    groups.add(fields.get("group", ""))
                    values = [fields.get(name, "") for name in FILE_COLUMNS] if names else row
                    offsets.update([_read_row(path, number, values)])
    except (TooLong, csv.Error) as error:
        raise StartError(f"'{path}' is not CSV in UTF-8: {error}") from error
    if len(groups) > 1:
        raise StartError(f"'{path}' has offsets of {len(groups)} groups: expected those of one, as of as-of --group")
    if not offsets:
        raise StartError(f"'{path}' has no lines of topic,partition,offset")
    return offsets


def _read_row(path: Path, number: int, row: Sequence[str]) -> tuple[TopicPartition, int]:
    """Raises StartError for an invalid line."""
    try:
        topic, *numbers = row
        partition, offset = (_parse_integer(number) for number in numbers)
        return (topic, partition), offset
    except ValueError as error:
        raise StartError(
            f"line {number} of '{path}' is '{','.join(row)[:80]}': expected topic,partition,offset, as in orders,0,42"
        ) from error


def _parse_integer(text: str) -> int:
    match = _INTEGER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:20]!r}: expected a whole number")
    return int(match[1])


def change_table(changes: Iterable[tuple[TopicPartition, int | None, int | None, str]]) -> Table:
    """A row is the partition, the offset before and after, and a note."""
    columns = (
        Column("topic", "topic"),
        Column("partition", "partition", is_number=True),
        Column("before", "before", is_number=True),
        Column("after", "after", is_number=True),
        Column("change", "change", is_number=True),
        Column("note", "note"),
    )
    rows = [
        (*partition, before, after, None if before is None or after is None else after - before, note)
        for partition, before, after, note in changes
    ]
    return Table(columns, rows)
