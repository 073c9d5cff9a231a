"""Reads a file with committed offsets and checks all of it, so that a file with a bad line is not written at all.

Formats: the output of ``callboard export``, as CSV (the first line names the columns) or as JSON (an array, or objects
one after the other), and the CSV of Kafka's ``kafka-consumer-groups --reset-offsets --export``. Kafka's CSV has no
header: its columns are group,topic,partition,offset, or topic,partition,offset for the export of one group.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ....actors.text import did_you_mean, format_count
from ...client.cluster import OffsetAndMetadata
from ...common.errors import StartError
from ...common.printing import from_spreadsheet_cell
from .offsets_file import WantedOffsets
from .rows import ESCAPED, IS_ESCAPED, Row
from .text_source import BYTES_MAX, RECORD_CHARS_MAX, RecordLines, TextSource, TooLong, open_text

BAD_LINES_MAX = 1000
"""Reading stops after so many bad lines."""

BAD_LINES_SHOWN = 10
"""Only so many bad lines are printed: more of them mean that it is the wrong file."""

FORMATS = ("csv", "json")
KAFKA_WITH_GROUP = ("group", "topic", "partition", "offset")
KAFKA = KAFKA_WITH_GROUP[1:]
NEEDED = frozenset(KAFKA)
STRING_BYTES_MAX = 32767  # in Kafka's records a string's length is an int16
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_BETWEEN = re.compile(r"[\s,]*")
_SPACE = re.compile(r"\s*")
_SHOWN = 60


class FileRow(NamedTuple):
    """A row of a file: the number of its line, and its fields by column."""

    number: int
    fields: Mapping[str, Any]


class BadLine(Exception):
    """A line is invalid; the text gives the found and the expected value."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number


def read_table(
    path: Path,
    on_problem: Callable[[str], None],
    file_format: str | None = None,
    group: str | None = None,
    max_bytes: int = BYTES_MAX,
) -> WantedOffsets:
    """The offsets in a file. ``file_format``: csv or json; None: detected. ``group``: the group of lines without one.

    Memory does not grow with the file. Raises StartError when the file cannot be read or has bad lines, after a call of
    ``on_problem`` for each of the first. OSError when there is no space for temporary files.
    """
    with open_text(path, max_bytes) as source:
        is_json = source.skip_blank() in ("[", "{") if file_format is None else file_format == "json"
        value = _OffsetCollector(path, group).collect(_json_lines(source) if is_json else _csv_lines(source))
    for bad_line in value.bad[:BAD_LINES_SHOWN]:
        on_problem(f"{path}, line {bad_line.number}: {bad_line}")
    if value.bad:
        omitted = (
            f" ({len(value.bad) - BAD_LINES_SHOWN} more are not shown)" if len(value.bad) > BAD_LINES_SHOWN else ""
        )
        unread = "; the rest was not read" if len(value.bad) == BAD_LINES_MAX else ""
        raise StartError(
            f"{path}: {format_count(len(value.bad), 'bad line')}{omitted}{unread}; nothing was written, correct them"
            " and try again"
        )
    if not value.wanted:
        raise StartError(f"{path}: found no offsets, expected lines of {','.join(KAFKA_WITH_GROUP)} or JSON of them")
    return value.wanted


def choose_groups(offsets: WantedOffsets, names: Sequence[str]) -> WantedOffsets:
    """Keep only these groups. StartError for a group that the file lacks."""
    for name in names:
        if name not in offsets:
            raise StartError(f"--group '{name}': the file has no such group;{did_you_mean(name, offsets)} leave it out")
    return offsets.only(names) if names else offsets


# Text ----------------------------------------------------------------------------------------------------------------


def _csv_lines(source: TextSource) -> Iterator[FileRow | BadLine]:
    record_lines = RecordLines(source)
    rows = csv.reader(record_lines, strict=True)
    columns: Sequence[str] | None = None
    while True:
        number = source.lines_read + rows.line_num + 1
        record_lines.begin_record()
        try:
            row = next(rows, None)
        except (csv.Error, TooLong) as error:
            yield BadLine(number, f'found no CSV ({error}), expected fields between commas, quoted with "')
            return
        if row is None:
            return
        if not row:
            continue
        if columns is None:
            columns = _columns(row)
            if set(row) >= NEEDED:
                continue
        if len(row) != len(columns):
            yield BadLine(
                number, f"found {format_count(len(row), 'field')}, expected {len(columns)}: {','.join(columns)}"
            )
        else:
            yield _csv_line(number, dict(zip(columns, row, strict=True)))


def _csv_line(number: int, fields: dict[str, str]) -> FileRow | BadLine:
    """A row as it was before ``export --safe-csv`` escaped it."""
    escaped = fields.pop(ESCAPED, "")
    if escaped not in ("", IS_ESCAPED):
        return BadLine(number, f"{ESCAPED} is {_format_value(escaped)}, expected {IS_ESCAPED}, or nothing")
    if escaped:
        fields = {name: from_spreadsheet_cell(cell) for name, cell in fields.items()}
    return FileRow(number, fields)


def _columns(first: Sequence[str]) -> Sequence[str]:
    """The columns: the names in the first line, or those of Kafka's files, which have no header."""
    if set(first) >= NEEDED:
        return first
    return KAFKA if len(first) == len(KAFKA) else KAFKA_WITH_GROUP


class _Json:
    """JSON text that is read in parts. ``text`` from ``position`` on is not parsed yet; ``number`` is its line."""

    def __init__(self, source: TextSource) -> None:
        self.text = ""
        self.position = 0
        self.number = source.lines_read + 1
        self._source = source
        self._decoder = json.JSONDecoder()
        self._is_whole = False

    def peek(self, separator: re.Pattern[str] = _BETWEEN) -> str:
        """Skip separators and return the next character; empty at the end."""
        while True:
            match = separator.match(self.text, self.position)
            assert match is not None
            self._move_to(match.end())
            if self.position < len(self.text) or not self._read():
                return self.text[self.position : self.position + 1]

    def skip(self) -> None:
        self._move_to(self.position + 1)

    def value(self) -> Any:
        """Parse the next value. BadLine when it is not JSON, or too long."""
        while True:
            try:
                value, end = self._decoder.raw_decode(self.text, self.position)
            except (ValueError, RecursionError) as error:
                self._read_on_after(error)
            else:
                self._move_to(end)
                return value

    def _read_on_after(self, error: Exception) -> None:
        if len(self.text) - self.position > RECORD_CHARS_MAX:
            raise BadLine(self.number, f"found no JSON ({TooLong()}), expected an object like {{{_example()}}}")
        position = error.pos if isinstance(error, json.JSONDecodeError) else self.position
        line = self.number + self.text.count("\n", self.position, position)
        if isinstance(error, RecursionError) or not self._read():
            reason = getattr(error, "msg", str(error))
            raise BadLine(line, f"found no JSON ({reason}), expected an object like {{{_example()}}}")

    def _move_to(self, position: int) -> None:
        self.number += self.text.count("\n", self.position, position)
        self.position = position

    def _read(self) -> bool:
        """Read more text and drop the parsed part. False at the end."""
        remaining = "" if self._is_whole else self._source.read()
        self._is_whole = not remaining
        self.text, self.position = self.text[self.position :] + remaining, 0
        return bool(remaining)


def _json_lines(source: TextSource) -> Iterator[FileRow | BadLine]:
    """The objects of an array, or one after the other. Parsing ends at invalid JSON."""
    text = _Json(source)
    is_array = text.peek() == "["
    if is_array:
        text.skip()
    while (first := text.peek()) and first != "]":
        number = text.number
        try:
            value = text.value()
        except BadLine as error:
            yield error
            return
        if isinstance(value, dict):
            yield FileRow(number, value)
        else:
            yield BadLine(number, f"found {_format_value(value)}, expected an object like {{{_example()}}}")
    number = text.number
    if (not first) == is_array:
        yield BadLine(number, "found no end of the array, expected a ] there: the file is cut off, or has one too many")
    elif first:
        text.skip()
        if text.peek(_SPACE):
            yield BadLine(number, "found more behind the end of the array, expected nothing")


def _example() -> str:
    return '"group": "shop", "topic": "orders", "partition": 0, "offset": 42'


# Rows ----------------------------------------------------------------------------------------------------------------


class _OffsetCollector:
    """Collects the offsets and the bad lines of a file."""

    def __init__(self, path: Path, group: str | None) -> None:
        self.wanted = WantedOffsets()
        self.bad: list[BadLine] = []
        self._path = path
        self._group = group

    def collect(self, rows: Iterator[FileRow | BadLine]) -> _OffsetCollector:
        for row in rows:
            try:
                if isinstance(row, BadLine):
                    raise row
                self._add(row)
            except BadLine as error:
                self.bad.append(error)
            if len(self.bad) == BAD_LINES_MAX:
                break
        return self

    def _add(self, row: FileRow) -> None:
        number, fields = row
        unknown = [name for name in fields if name not in Row._fields]
        if unknown:
            known_fields = ", ".join(Row._fields)
            raise BadLine(number, f"found the column {_format_value(unknown[0])}, expected some of {known_fields}")
        group = self._group_of(row)
        topic_partition = _topic(row), _integer(row, "partition", 0, INT32_MAX)
        offset = OffsetAndMetadata(
            _integer(row, "offset", 0, INT64_MAX),
            _integer(row, "leader_epoch", -1, INT32_MAX, -1),
            _string(row, "metadata", ""),
        )
        first_line = self.wanted.add(group, topic_partition, offset, number)
        if first_line is not None:
            subject = f"'{group}' {topic_partition[0]}:{topic_partition[1]}"
            raise BadLine(number, f"found {subject} a second time, expected each once; line {first_line} has it too")

    def _group_of(self, row: FileRow) -> str:
        if "group" in row.fields:
            return _string(row, "group", None)
        if self._group is None:
            raise BadLine(row.number, "found no group, expected one; say whose it is with --group NAME")
        return self._group


def _topic(row: FileRow) -> str:
    value = row.fields.get("topic")
    if not isinstance(value, str) or not _TOPIC.fullmatch(value) or value in (".", ".."):
        raise BadLine(
            row.number,
            f"topic is {_format_value(value)}, expected a topic's name: up to 249 letters, digits, dots, dashes,"
            " underscores",
        )
    return value


def _integer(row: FileRow, name: str, lowest: int, highest: int, default: int | None = None) -> int:
    value = row.fields.get(name)
    if default is not None and value in (None, ""):
        return default
    number = int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value
    if type(number) is not int or not lowest <= number <= highest:
        raise BadLine(row.number, f"{name} is {_format_value(value)}, expected a number from {lowest} to {highest}")
    return number


def _string(row: FileRow, name: str, default: str | None) -> str:
    value = row.fields.get(name)
    if default is not None and value is None:
        return default
    try:
        if isinstance(value, str) and len(value.encode()) <= STRING_BYTES_MAX:
            return value
    except UnicodeEncodeError:
        pass  # half of a surrogate pair: valid in JSON, but not in UTF-8
    raise BadLine(row.number, f"{name} is {_format_value(value)}, expected text of at most {STRING_BYTES_MAX} bytes")


def _format_value(value: object) -> str:
    if value is None:
        return "missing"
    text = ascii(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
