"""Committed offsets as a table: the same columns and the same order wherever they come from, as CSV or as JSON.

The order is that of group, topic and partition, so two exports can be compared line by line. A log has its groups in
another one. So what comes from a log is sorted in pieces, which lie in temporary files until all is read: memory does
not grow with the table.
"""

from __future__ import annotations

import csv
import heapq
import marshal
from collections.abc import Iterable, Iterator
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from ...common.printing import Writable, json_text, spreadsheet_cell

SORTED_ROWS = 200_000
"""So many are sorted in memory at once: some 100 MB."""

ESCAPED, IS_ESCAPED = "escaped", "yes"
"""A column of CSV for spreadsheets, and what it holds: an apostrophe may stand before each text of the row."""

_BLOCK_ROWS = 1000


class Row(NamedTuple):
    """One committed offset; its fields are the columns. None: not known. ``commit_time``: ISO 8601, in UTC."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int | None
    metadata: str
    commit_time: str | None

    @property
    def place(self) -> tuple[str, str, int]:
        return self.group, self.topic, self.partition


def in_order(rows: Iterable[Row], sorted_rows: int = SORTED_ROWS) -> Iterator[Row]:
    """The same rows by group, topic and partition. OSError when there is no room for temporary files."""
    pieces: list[Iterator[Row]] = []
    piece: list[Row] = []
    for row in rows:
        piece.append(row)
        if len(piece) == sorted_rows:
            pieces.append(_put_by(sorted(piece, key=_place)))
            piece = []
    yield from heapq.merge(*pieces, sorted(piece, key=_place), key=_place)


def write_csv(rows: Iterable[Row], out: Writable) -> None:
    """A line with the names of the columns, then a line for each row. What is not known is empty."""
    # A lone carriage return would end the line for whoever reads it, and some versions of csv do not quote it.
    plain = csv.writer(out, lineterminator="\n")
    quoted = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    plain.writerow(Row._fields)
    for row in rows:
        (quoted if "\r" in row.group + row.topic + row.metadata else plain).writerow(row)


def write_safe_csv(rows: Iterable[Row], out: Writable) -> None:
    """The same for spreadsheets: no text is a formula, and a last column says so to whoever reads it back."""
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow((*Row._fields, ESCAPED))
    for row in rows:
        writer.writerow((*(spreadsheet_cell(cell) if isinstance(cell, str) else cell for cell in row), IS_ESCAPED))


def write_json(rows: Iterable[Row], out: Writable) -> None:
    """One array with an object on each line. What is not known is null."""
    before = "["
    for row in rows:
        out.write(f"{before}\n{json_text(row._asdict())}")
        before = ","
    out.write("[]\n" if before == "[" else "\n]\n")


def _place(row: Row) -> tuple[str, str, int]:
    return row.place


def _put_by(rows: list[Row]) -> Iterator[Row]:
    file = TemporaryFile()  # noqa: SIM115 (whoever reads it to its end closes it)
    for at in range(0, len(rows), _BLOCK_ROWS):
        marshal.dump([tuple(row) for row in rows[at : at + _BLOCK_ROWS]], file)
    file.seek(0)
    return _take_back(file)


def _take_back(file: IO[bytes]) -> Iterator[Row]:
    with file:
        while True:
            try:
                block = marshal.load(file)
            except EOFError:
                return
            yield from map(Row._make, block)
