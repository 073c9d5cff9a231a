"""Committed offsets as a table, as CSV or as JSON: the same columns and the same order for every source.

Rows are sorted by group, topic and partition, so that two exports can be compared line by line. A log has another
order, so its rows are sorted in chunks in temporary files and then merged. Memory does not grow with the table.
"""

from __future__ import annotations

import csv
import heapq
import marshal
from collections.abc import Iterable, Iterator
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from ...common.printing import Writable, json_text, spreadsheet_cell

SORTED_ROWS_MAX = 200_000
"""Rows that are sorted in memory at once: about 100 MB."""

ESCAPED, IS_ESCAPED = "escaped", "yes"
"""A column of CSV for spreadsheets, and its value: each text of the row may begin with an added apostrophe."""

_BLOCK_ROWS = 1000


class Row(NamedTuple):
    """One committed offset; its fields are the columns. None: unknown. ``commit_time``: ISO 8601, in UTC."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int | None
    metadata: str
    commit_time: str | None

    @property
    def sort_key(self) -> tuple[str, str, int]:
        return self.group, self.topic, self.partition


def sort_rows(rows: Iterable[Row], chunk_rows: int = SORTED_ROWS_MAX) -> Iterator[Row]:
    """The same rows by group, topic and partition. OSError when there is no space for temporary files."""
    sorted_chunks: list[Iterator[Row]] = []
    chunk: list[Row] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == chunk_rows:
            sorted_chunks.append(_spill(sorted(chunk, key=_sort_key)))
            chunk = []
    yield from heapq.merge(*sorted_chunks, sorted(chunk, key=_sort_key), key=_sort_key)


def write_csv(rows: Iterable[Row], out: Writable) -> None:
    """Write a line with the names of the columns, then a line for each row. Unknown values are empty."""
    # Readers treat a lone carriage return as the end of a line, and some versions of csv do not quote it.
    plain = csv.writer(out, lineterminator="\n")
    quoted = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    plain.writerow(Row._fields)
    for row in rows:
        (quoted if "\r" in row.group + row.topic + row.metadata else plain).writerow(row)


def write_safe_csv(rows: Iterable[Row], out: Writable) -> None:
    """The same for spreadsheets: no text is a formula. A last column marks the rows for the import."""
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow((*Row._fields, ESCAPED))
    for row in rows:
        writer.writerow((*(spreadsheet_cell(cell) if isinstance(cell, str) else cell for cell in row), IS_ESCAPED))


def write_json(rows: Iterable[Row], out: Writable) -> None:
    """Write one array with an object on each line. Unknown values are null."""
    before = "["
    for row in rows:
        out.write(f"{before}\n{json_text(row._asdict())}")
        before = ","
    out.write("[]\n" if before == "[" else "\n]\n")


def _sort_key(row: Row) -> tuple[str, str, int]:
    return row.sort_key


def _spill(rows: list[Row]) -> Iterator[Row]:
    file = TemporaryFile()  # noqa: SIM115 (_read_spilled closes it)
    for at in range(0, len(rows), _BLOCK_ROWS):
        marshal.dump([tuple(row) for row in rows[at : at + _BLOCK_ROWS]], file)
    file.seek(0)
    return _read_spilled(file)


def _read_spilled(file: IO[bytes]) -> Iterator[Row]:
    with file:
        while True:
            try:
                block = marshal.load(file)  # nosec B302 # a temporary file that this process has written
            except EOFError:
                return
            yield from map(Row._make, block)
