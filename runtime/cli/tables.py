"""Prints tables: with lines and colours on a terminal, as plain columns to a pipe.

Numbers are right-aligned, on a terminal with thousands separators. Unknown values are shown as a dash. Names come from
clients and may contain anything, so line ends and terminal escape sequences are printed escaped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from ...actors.text import printable
from ..common.printing import print_error, print_json, print_line

Cell = str | int | None

UNKNOWN = "-"
GAP = 3  # between columns on a terminal
SHORT_MAX = 80  # characters of a cell that may be shortened, such as metadata of 4096 bytes; member ids fit
NARROW_MIN = 12  # minimum width of a text column, even on a narrow terminal


class Column(NamedTuple):
    """A column; ``key`` is its name in JSON."""

    key: str
    title: str
    is_number: bool = False
    may_shorten: bool = False  # on a narrow terminal only; never in a pipe or in JSON


class Table(NamedTuple):
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    def as_json(self) -> list[dict[str, Any]]:
        return [{column.key: cell for column, cell in zip(self.columns, row, strict=True)} for row in self.rows]


def print_table(table: Table) -> None:
    if sys.stdout.isatty():
        _print_rich(table)
    else:
        _print_plain(table)


def show_rows(table: Table, nothing: str, *, as_json: bool) -> None:
    """Print a table, as JSON on request. ``nothing``: what is said, on standard error, about one without rows."""
    if as_json:
        print_json(table.as_json())
    elif table.rows:
        print_table(table)
    else:
        print_error(nothing)


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print lines of a name and a value."""
    facts = list(facts)
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        print_line(f"{name:{width}}  {value}".rstrip())


def format_number(number: int) -> str:
    """A number with thousands separators: 1,234,567."""
    return f"{number:,}"


def _cell_text(cell: Cell) -> str:
    return UNKNOWN if cell is None or cell == "" else printable(str(cell))


def _print_plain(table: Table) -> None:
    """Print aligned columns, one row a line, for grep, cut and awk."""
    rows_of_text = [
        [column.title for column in table.columns],
        *([_cell_text(cell) for cell in row] for row in table.rows),
    ]
    widths = [max(map(len, cells)) for cells in zip(*rows_of_text, strict=True)]
    for line in rows_of_text:
        cells = [
            cell.rjust(width) if column.is_number else cell.ljust(width)
            for cell, width, column in zip(line, widths, table.columns, strict=True)
        ]
        print_line("  ".join(cells).rstrip())


def _print_rich(table: Table) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    rich_table = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    rows = [[_format_cell(cell, column) for cell, column in zip(row, table.columns, strict=True)] for row in table.rows]
    for index, column in enumerate(table.columns):
        overflow: Literal["ellipsis", "fold"] = "ellipsis" if column.may_shorten else "fold"
        rich_table.add_column(
            column.title,
            justify="right" if column.is_number else "left",
            overflow=overflow,
            no_wrap=column.is_number,
            min_width=_narrowest(column, [row[index] for row in rows]),
        )
    for row in rows:
        rich_table.add_row(*map(Text, row))
    console = Console()
    columns_min = sum(column.min_width or 0 for column in rich_table.columns) + GAP * (len(rich_table.columns) - 1)
    Console(width=max(console.width, columns_min)).print(rich_table, crop=False)


def _narrowest(column: Column, cells: Sequence[str]) -> int:
    """The minimum width of a column. Numbers are never cut: the lines wrap instead."""
    longest = max(map(len, [column.title, *cells]))
    return longest if column.is_number else min(longest, NARROW_MIN)


def _format_cell(cell: Cell, column: Column) -> str:
    if isinstance(cell, int):
        return format_number(cell)
    text = _cell_text(cell)
    if not column.may_shorten:
        return text
    return text if len(text) <= SHORT_MAX else text[: SHORT_MAX - 1] + "…"
