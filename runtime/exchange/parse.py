"""A file with committed offsets, read and checked as a whole, so that nothing is written of one that has a bad line.

What is read: what ``callboard export`` writes, as CSV (columns by their names in the first line) or as JSON (an array,
or objects one after the other), and the CSV of Kafka's ``kafka-consumer-groups --reset-offsets --export``, which has no
names: group,topic,partition,offset, or without the group where it was exported of one.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..client.cluster import Offset, Place
from ..config import nearest
from ..errors import StartError
from ..groups.show import counted
from .rows import Row

TOLD = 10
"""So many bad lines are told; somebody who has more wants to see that it is the wrong file."""

FORMATS = ("csv", "json")
STDIN = Path("-")
KAFKA_WITH_GROUP = ("group", "topic", "partition", "offset")
KAFKA = KAFKA_WITH_GROUP[1:]
NEEDED = frozenset(KAFKA)
STRING_BYTES_MAX = 32767  # in Kafka's records a string's length is an int16
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_BETWEEN = re.compile(r"[\s,]*")
_SHOWN = 60

Wanted = dict[str, dict[Place, Offset]]
"""By group, then by topic and partition."""


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
    path: Path, complain: Callable[[str], None], form: str | None = None, group: str | None = None
) -> Wanted:
    """What a file says. ``form``: csv or json, None: as it looks. ``group``: whose lines are that name none.

    StartError when it cannot be read or something in it is bad, after ``complain`` has heard of the first such lines.
    """
    text = _text(path)
    if (form or _form(text)) == "json":
        found = _Table(path, group).take(_json_lines(text))
    else:
        found = _Table(path, group).take(_csv_lines(text))
    for bad in found.bad[:TOLD]:
        complain(f"{path}, line {bad.number}: {bad}")
    if found.bad:
        more = f" ({len(found.bad) - TOLD} more are not shown)" if len(found.bad) > TOLD else ""
        raise StartError(
            f"{path}: {counted(len(found.bad), 'bad line')}{more}; nothing was written, mend them and try again"
        )
    if not found.wanted:
        raise StartError(f"{path}: found no offsets, expected lines of {','.join(KAFKA_WITH_GROUP)} or JSON of them")
    return found.wanted


def choose_groups(wanted: Wanted, names: Sequence[str]) -> Wanted:
    """Only those groups; a name may be several behind commas. StartError for one that the file does not have."""
    chosen: list[str] = []
    for name in names:
        chosen += [name] if name in wanted else name.split(",")
    for name in chosen:
        if name not in wanted:
            raise StartError(f"--groups '{name}': the file has no such group;{nearest(name, wanted)} leave it out")
    return {name: wanted[name] for name in dict.fromkeys(chosen)} if names else wanted


# Text ----------------------------------------------------------------------------------------------------------------


def _text(path: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
    except OSError as error:
        raise StartError(f"{path}: cannot be read: {error.strerror or error}; check the path") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise StartError(f"{path}, line {line}: found bytes that are not UTF-8, expected text in UTF-8") from None


def _form(text: str) -> str:
    return "json" if text.lstrip()[:1] in ("[", "{") else "csv"


def _csv_lines(text: str) -> Iterator[Line | BadLine]:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    columns: Sequence[str] | None = None
    while True:
        number = rows.line_num + 1
        try:
            row = next(rows, None)
        except csv.Error as error:
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
            yield Line(number, dict(zip(columns, row, strict=True)))


def _columns(first: Sequence[str]) -> Sequence[str]:
    """The names in the first line; Kafka's files have none."""
    if set(first) >= NEEDED:
        return first
    return KAFKA if len(first) == len(KAFKA) else KAFKA_WITH_GROUP


def _json_lines(text: str) -> Iterator[Line | BadLine]:
    """The objects of an array, or one after the other. What is behind one that is no JSON cannot be read."""
    decoder = json.JSONDecoder()
    at = _skip(text, 0)
    is_array = text.startswith("[", at)
    at = _skip(text, at + 1) if is_array else at
    counted, number = 0, 1
    while at < len(text) and text[at] != "]":
        number, counted = number + text.count("\n", counted, at), at
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            where = number + text.count("\n", counted, error.pos) if isinstance(error, json.JSONDecodeError) else number
            reason = getattr(error, "msg", str(error))
            yield BadLine(where, f"found no JSON ({reason}), expected an object like {{{_example()}}}")
            return
        if isinstance(value, dict):
            yield Line(number, value)
        else:
            yield BadLine(number, f"found {_shown(value)}, expected an object like {{{_example()}}}")
        at = _skip(text, at)
    number += text.count("\n", counted, at)
    if (at == len(text)) == is_array:
        yield BadLine(number, "found no end of the array, expected a ] there: the file is cut off, or has one too many")
    elif text[at + 1 :].strip():
        yield BadLine(number, "found more behind the end of the array, expected nothing")


def _skip(text: str, at: int) -> int:
    match = _BETWEEN.match(text, at)
    assert match is not None
    return match.end()


def _example() -> str:
    return '"group": "shop", "topic": "orders", "partition": 0, "offset": 42'


# Rows ----------------------------------------------------------------------------------------------------------------


class _Table:
    """Gathers rows, and what is bad."""

    def __init__(self, path: Path, group: str | None) -> None:
        self.wanted: Wanted = {}
        self.bad: list[BadLine] = []
        self._path = path
        self._group = group
        self._lines: dict[tuple[str, Place], int] = {}

    def take(self, lines: Iterator[Line | BadLine]) -> _Table:
        for line in lines:
            try:
                if isinstance(line, BadLine):
                    raise line
                self._add(line)
            except BadLine as bad:
                self.bad.append(bad)
        return self

    def _add(self, line: Line) -> None:
        number, fields = line
        unknown = [name for name in fields if name not in Row._fields]
        if unknown:
            known = ", ".join(Row._fields)
            raise BadLine(number, f"found the column {_shown(unknown[0])}, expected some of {known}")
        group = self._whose(line)
        place = _topic(line), _integer(line, "partition", 0, INT32_MAX)
        offset = Offset(
            _integer(line, "offset", 0, INT64_MAX),
            _integer(line, "leader_epoch", -1, INT32_MAX, -1),
            _string(line, "metadata", ""),
        )
        before = self._lines.setdefault((group, place), number)
        if before != number:
            what = f"'{group}' {place[0]}:{place[1]}"
            raise BadLine(number, f"found {what} a second time, expected each once; line {before} has it too")
        self.wanted.setdefault(group, {})[place] = offset

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
