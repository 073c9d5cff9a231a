"""A file with committed offsets, read and checked as a whole, so that nothing is written of one that has a bad line.

What is read: what ``callboard export`` writes, as CSV (columns by their names in the first line) or as JSON (an array,
or objects one after the other), and the CSV of Kafka's ``kafka-consumer-groups --reset-offsets --export``, which has no
names: group,topic,partition,offset, or without the group where it was exported of one.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...client.cluster import OffsetAndMetadata
from ...common.errors import StartError
from ...common.printing import from_spreadsheet_cell
from ...settings.table import nearest
from ..groups.show import counted
from .offsets_file import WantedOffsets
from .rows import ESCAPED, IS_ESCAPED, Row
from .source import BYTES_MAX, RECORD_CHARS_MAX, RecordLines, Source, TooLong, opened

BAD_MAX = 1000
"""After so many bad lines the rest is not read."""

TOLD = 10
"""So many bad lines are told; somebody who has more wants to see that it is the wrong file."""

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


class Line(NamedTuple):
    """A row of a file as it was found: its line, and its fields by the names of columns."""

    number: int
    fields: Mapping[str, Any]


class BadLine(Exception):
    """What is wrong with a line; the text says what was found and what was expected."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number


def read_table(
    path: Path,
    complain: Callable[[str], None],
    form: str | None = None,
    group: str | None = None,
    max_bytes: int = BYTES_MAX,
) -> WantedOffsets:
    """What a file says. ``form``: csv or json, None: as it looks. ``group``: whose lines are that name none.

    Memory does not grow with the file. StartError when it cannot be read or something in it is bad, after ``complain``
    has heard of the first such lines. OSError when there is no room for temporary files.
    """
    with opened(path, max_bytes) as source:
        is_json = source.skip_blank() in ("[", "{") if form is None else form == "json"
        found = _Table(path, group).take(_json_lines(source) if is_json else _csv_lines(source))
    for bad in found.bad[:TOLD]:
        complain(f"{path}, line {bad.number}: {bad}")
    if found.bad:
        more = f" ({len(found.bad) - TOLD} more are not shown)" if len(found.bad) > TOLD else ""
        ended = "; the rest was not read" if len(found.bad) == BAD_MAX else ""
        raise StartError(
            f"{path}: {counted(len(found.bad), 'bad line')}{more}{ended}; nothing was written, mend them and try again"
        )
    if not found.wanted:
        raise StartError(f"{path}: found no offsets, expected lines of {','.join(KAFKA_WITH_GROUP)} or JSON of them")
    return found.wanted


def choose_groups(wanted: WantedOffsets, names: Sequence[str]) -> WantedOffsets:
    """Only those groups; a name may be several behind commas. StartError for one that the file does not have."""
    chosen: list[str] = []
    for name in names:
        chosen += [name] if name in wanted else name.split(",")
    for name in chosen:
        if name not in wanted:
            raise StartError(f"--groups '{name}': the file has no such group;{nearest(name, wanted)} leave it out")
    return wanted.only(chosen) if names else wanted


# Text ----------------------------------------------------------------------------------------------------------------


def _csv_lines(source: Source) -> Iterator[Line | BadLine]:
    lines = RecordLines(source)
    rows = csv.reader(lines, strict=True)
    columns: Sequence[str] | None = None
    while True:
        number = source.lines_read + rows.line_num + 1
        lines.begin_record()
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
            yield BadLine(number, f"found {counted(len(row), 'field')}, expected {len(columns)}: {','.join(columns)}")
        else:
            yield _csv_line(number, dict(zip(columns, row, strict=True)))


def _csv_line(number: int, fields: dict[str, str]) -> Line | BadLine:
    """A row as it was before ``export --safe-csv`` escaped it."""
    escaped = fields.pop(ESCAPED, "")
    if escaped not in ("", IS_ESCAPED):
        return BadLine(number, f"{ESCAPED} is {_shown(escaped)}, expected {IS_ESCAPED}, or nothing")
    if escaped:
        fields = {name: from_spreadsheet_cell(cell) for name, cell in fields.items()}
    return Line(number, fields)


def _columns(first: Sequence[str]) -> Sequence[str]:
    """The names in the first line; Kafka's files have none."""
    if set(first) >= NEEDED:
        return first
    return KAFKA if len(first) == len(KAFKA) else KAFKA_WITH_GROUP


class _Json:
    """Text of which a part is in memory: from ``at`` on what was not read yet, of which ``number`` is the line."""

    def __init__(self, source: Source) -> None:
        self.text = ""
        self.at = 0
        self.number = source.lines_read + 1
        self._source = source
        self._decoder = json.JSONDecoder()
        self._is_whole = False

    def peek(self, between: re.Pattern[str] = _BETWEEN) -> str:
        """The next character behind what may be between values; empty at the end."""
        while True:
            match = between.match(self.text, self.at)
            assert match is not None
            self._move_to(match.end())
            if self.at < len(self.text) or not self._read():
                return self.text[self.at : self.at + 1]

    def skip(self) -> None:
        self._move_to(self.at + 1)

    def value(self) -> Any:
        """The next value. BadLine for what is no JSON, or does not end."""
        while True:
            try:
                value, end = self._decoder.raw_decode(self.text, self.at)
            except (ValueError, RecursionError) as error:
                self._read_on_after(error)
            else:
                self._move_to(end)
                return value

    def _read_on_after(self, error: Exception) -> None:
        if len(self.text) - self.at > RECORD_CHARS_MAX:
            raise BadLine(self.number, f"found no JSON ({TooLong()}), expected an object like {{{_example()}}}")
        at = error.pos if isinstance(error, json.JSONDecodeError) else self.at
        where = self.number + self.text.count("\n", self.at, at)
        if isinstance(error, RecursionError) or not self._read():
            reason = getattr(error, "msg", str(error))
            raise BadLine(where, f"found no JSON ({reason}), expected an object like {{{_example()}}}")

    def _move_to(self, at: int) -> None:
        self.number += self.text.count("\n", self.at, at)
        self.at = at

    def _read(self) -> bool:
        """Read more, and forget what was read; False at the end."""
        more = "" if self._is_whole else self._source.read()
        self._is_whole = not more
        self.text, self.at = self.text[self.at :] + more, 0
        return bool(more)


def _json_lines(source: Source) -> Iterator[Line | BadLine]:
    """The objects of an array, or one after the other. What is behind one that is no JSON cannot be read."""
    text = _Json(source)
    is_array = text.peek() == "["
    if is_array:
        text.skip()
    while (first := text.peek()) and first != "]":
        number = text.number
        try:
            value = text.value()
        except BadLine as bad:
            yield bad
            return
        if isinstance(value, dict):
            yield Line(number, value)
        else:
            yield BadLine(number, f"found {_shown(value)}, expected an object like {{{_example()}}}")
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


class _Table:
    """Gathers rows, and what is bad."""

    def __init__(self, path: Path, group: str | None) -> None:
        self.wanted = WantedOffsets()
        self.bad: list[BadLine] = []
        self._path = path
        self._group = group

    def take(self, lines: Iterator[Line | BadLine]) -> _Table:
        for line in lines:
            try:
                if isinstance(line, BadLine):
                    raise line
                self._add(line)
            except BadLine as bad:
                self.bad.append(bad)
            if len(self.bad) == BAD_MAX:
                break
        return self

    def _add(self, line: Line) -> None:
        number, fields = line
        unknown = [name for name in fields if name not in Row._fields]
        if unknown:
            known = ", ".join(Row._fields)
            raise BadLine(number, f"found the column {_shown(unknown[0])}, expected some of {known}")
        group = self._whose(line)
        place = _topic(line), _integer(line, "partition", 0, INT32_MAX)
        offset = OffsetAndMetadata(
            _integer(line, "offset", 0, INT64_MAX),
            _integer(line, "leader_epoch", -1, INT32_MAX, -1),
            _string(line, "metadata", ""),
        )
        before = self.wanted.add(group, place, offset, number)
        if before is not None:
            what = f"'{group}' {place[0]}:{place[1]}"
            raise BadLine(number, f"found {what} a second time, expected each once; line {before} has it too")

    def _whose(self, line: Line) -> str:
        if "group" in line.fields:
            return _string(line, "group", None)
        if self._group is None:
            raise BadLine(line.number, "found no group, expected one; say whose it is with --groups NAME")
        return self._group


def _topic(line: Line) -> str:
    found = line.fields.get("topic")
    if not isinstance(found, str) or not _TOPIC.fullmatch(found) or found in (".", ".."):
        raise BadLine(
            line.number,
            f"topic is {_shown(found)}, expected a topic's name: up to 249 letters, digits, dots, dashes, underscores",
        )
    return found


def _integer(line: Line, name: str, lowest: int, highest: int, default: int | None = None) -> int:
    found = line.fields.get(name)
    if default is not None and found in (None, ""):
        return default
    number = int(found) if isinstance(found, str) and _NUMBER.fullmatch(found) else found
    if type(number) is not int or not lowest <= number <= highest:
        raise BadLine(line.number, f"{name} is {_shown(found)}, expected a number from {lowest} to {highest}")
    return number


def _string(line: Line, name: str, default: str | None) -> str:
    found = line.fields.get(name)
    if default is not None and found is None:
        return default
    try:
        if isinstance(found, str) and len(found.encode()) <= STRING_BYTES_MAX:
            return found
    except UnicodeEncodeError:
        pass  # half of a surrogate pair, which JSON can say and UTF-8 cannot
    raise BadLine(line.number, f"{name} is {_shown(found)}, expected text of at most {STRING_BYTES_MAX} bytes")


def _shown(found: object) -> str:
    if found is None:
        return "missing"
    text = ascii(found)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
