"""Which offsets a reset writes: pure, but for the file that it may read. The rules are Kafka's (KIP-122).

An offset outside of what the partition has is moved to its nearest end, and the table says so.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from ...client.cluster import OffsetAndMetadata, TopicPartition
from ...common.errors import StartError
from ..exchange.source import RecordLines, TooLong, opened
from .show import Column, Table

FILE_BYTES_MAX = 100_000_000
"""Far more than the offsets of one group."""


class Way(Enum):
    """How the new offset is found; the value is the option."""

    EARLIEST = "--to-earliest"
    LATEST = "--to-latest"
    OFFSET = "--to-offset"
    SHIFT = "--shift-by"
    DATETIME = "--to-datetime"
    FILE = "--from-file"


class Target(NamedTuple):
    """``number``: an offset, a shift, or milliseconds since the epoch. ``wanted``: what the file says."""

    way: Way
    number: int = 0
    wanted: Mapping[TopicPartition, int] = {}


class Step(NamedTuple):
    """One partition of the plan; ``note`` says what is worth a word."""

    place: TopicPartition
    before: int | None
    after: int
    note: str = ""


class Bounds(NamedTuple):
    """What the partitions have: their first offsets, their ends, and what ListOffsets says of the time asked for."""

    earliest: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]
    at_time: Mapping[TopicPartition, int] = {}


def plan(
    places: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    bounds: Bounds,
    target: Target,
) -> list[Step]:
    """The new offset of each place. Raises StartError for a place that does not exist or that has nothing to shift."""
    return [_step(place, committed.get(place), bounds, target) for place in places]


def _step(place: TopicPartition, offset: OffsetAndMetadata | None, bounds: Bounds, target: Target) -> Step:
    if place not in bounds.latest or place not in bounds.earliest:
        raise StartError(f"partition {place[0]}:{place[1]} does not exist, or has no leader now")
    before = None if offset is None else offset.offset
    low, high = bounds.earliest[place], bounds.latest[place]
    wanted = _wanted(place, before, bounds, target)
    if wanted is None:
        return Step(place, before, high, "nothing so late: the end")
    after = min(max(wanted, low), high)
    if after != wanted:
        return Step(place, before, after, f"{wanted} is {'before the first' if after == low else 'behind the end'}")
    return Step(place, before, after, "unchanged" if after == before else "")


def _wanted(place: TopicPartition, before: int | None, bounds: Bounds, target: Target) -> int | None:
    match target.way:
        case Way.EARLIEST:
            return bounds.earliest[place]
        case Way.LATEST:
            return bounds.latest[place]
        case Way.OFFSET:
            return target.number
        case Way.DATETIME:
            return bounds.at_time.get(place)
        case Way.FILE:
            return target.wanted[place]
        case Way.SHIFT:
            if before is None:
                raise StartError(f"--shift-by: the group has no offset for {place[0]}:{place[1]} that could be shifted")
            return before + target.number


def choose_target(
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    from_file: Path | None,
) -> Target:
    """The one target that was given. Raises StartError for none and for more than one."""
    given = [
        *([Target(Way.EARLIEST)] if to_earliest else []),
        *([Target(Way.LATEST)] if to_latest else []),
        *([Target(Way.OFFSET, to_offset)] if to_offset is not None else []),
        *([Target(Way.SHIFT, shift_by)] if shift_by is not None else []),
        *([Target(Way.DATETIME, parse_datetime(to_datetime))] if to_datetime is not None else []),
        *([Target(Way.FILE, wanted=read_offsets(from_file))] if from_file is not None else []),
    ]
    if len(given) != 1:
        ways = ", ".join(way.value for way in Way)
        found = " and ".join(target.way.value for target in given) or "none"
        raise StartError(f"expected exactly one of {ways}, not {found}")
    return given[0]


def parse_datetime(text: str) -> int:
    """ISO 8601 as milliseconds since the epoch; without a zone it is UTC, as in Kafka's tool."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise StartError(
            f"bad --to-datetime '{text}': expected ISO 8601, as in 2026-01-31T08:00:00 or 2026-01-31T08:00:00+02:00"
        ) from error
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)


def parse_topic(text: str) -> tuple[str, tuple[int, ...] | None]:
    """Read T or T:P,... from the command line; None means all partitions."""
    topic, colon, numbers = text.partition(":")
    parts = numbers.split(",")
    if not topic or (colon and not all(part.isascii() and part.isdigit() for part in parts)):
        raise StartError(f"bad topic '{text}': expected TOPIC or TOPIC:PARTITION,..., as in orders or orders:0,3")
    return topic, tuple(dict.fromkeys(int(part) for part in parts)) if colon else None


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """Lines of topic,partition,offset, as ``callboard groups offsets --csv`` and Kafka's tool write them."""
    wanted: dict[TopicPartition, int] = {}
    try:
        with opened(path, FILE_BYTES_MAX) as source:
            lines = RecordLines(source)
            for number, row in enumerate(csv.reader(lines), start=1):
                lines.begin_record()
                if row and row != ["topic", "partition", "offset"]:
                    wanted.update([_read_row(path, number, row)])
    except (TooLong, csv.Error) as error:
        raise StartError(f"'{path}' is no CSV in UTF-8: {error}") from error
    if not wanted:
        raise StartError(f"'{path}' has no lines of topic,partition,offset")
    return wanted


def _read_row(path: Path, number: int, row: Sequence[str]) -> tuple[TopicPartition, int]:
    """Raises StartError for what is no such line."""
    try:
        topic, partition, offset = row
        return (topic, int(partition)), int(offset)
    except ValueError as error:
        raise StartError(
            f"line {number} of '{path}' is '{','.join(row)[:80]}': expected topic,partition,offset, as in orders,0,42"
        ) from error


def step_table(steps: Iterable[Step]) -> Table:
    columns = (
        Column("topic", "topic"),
        Column("partition", "partition", is_number=True),
        Column("before", "before", is_number=True),
        Column("after", "after", is_number=True),
        Column("change", "change", is_number=True),
        Column("note", "note"),
    )
    rows = [
        (*step.place, step.before, step.after, None if step.before is None else step.after - step.before, step.note)
        for step in steps
    ]
    return Table(columns, rows)
