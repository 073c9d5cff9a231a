"""Tables: for a terminal with lines and colours, for a pipe as plain columns.

A number is right-aligned; on a terminal with thousands separated, elsewhere as it is. What is not known is a dash.
Names come from clients, who may put anything into them, so line ends and a terminal's commands are shown as escapes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from ...common.printing import print_line, printable

Cell = str | int | None

UNKNOWN = "-"
GAP = 3  # between columns on a terminal
SHORT_MAX = 80  # characters of what may be shortened, such as metadata, which may be 4096 bytes; a member's id fits
NARROW_MIN = 12  # of a column of words, however narrow the terminal is


class Column(NamedTuple):
    """``key`` is its name in JSON."""

    key: str
    title: str
    is_number: bool = False
    may_shorten: bool = False  # on a terminal that is too narrow; a pipe and JSON have all of it


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


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """A few lines of a name and what it is."""
    facts = list(facts)
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        print_line(f"{name:{width}}  {value}".rstrip())


def grouped(number: int) -> str:
    """A number for people: 1,234,567."""
    return f"{number:,}"


def counted(number: int, unit: str) -> str:
    """A number with its unit: 1 member, 2 members."""
    return f"{grouped(number)} {unit}" + ("" if number == 1 else "s")


def _text(cell: Cell) -> str:
    return UNKNOWN if cell is None or cell == "" else printable(str(cell))


def _print_plain(table: Table) -> None:
    """Columns of even width, one row a line, so that grep, cut and awk are of use."""
    lines = [[column.title for column in table.columns], *([_text(cell) for cell in row] for row in table.rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
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

    rich = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    rows = [[_shown(cell, column) for cell, column in zip(row, table.columns, strict=True)] for row in table.rows]
    for index, column in enumerate(table.columns):
        overflow: Literal["ellipsis", "fold"] = "ellipsis" if column.may_shorten else "fold"
        rich.add_column(
            column.title,
            justify="right" if column.is_number else "left",
            overflow=overflow,
            no_wrap=column.is_number,
            min_width=_narrowest(column, [row[index] for row in rows]),
        )
    for row in rows:
        rich.add_row(*map(Text, row))
    console = Console()
    columns_min = sum(column.min_width or 0 for column in rich.columns) + GAP * (len(rich.columns) - 1)
    Console(width=max(console.width, columns_min)).print(rich, crop=False)


def _narrowest(column: Column, cells: Sequence[str]) -> int:
    """So narrow may a column become. A number that has lost a digit is another number: rather lines that wrap."""
    longest = max(map(len, [column.title, *cells]))
    return longest if column.is_number else min(longest, NARROW_MIN)


def _shown(cell: Cell, column: Column) -> str:
    if isinstance(cell, int):
        return grouped(cell)
    text = _text(cell)
    if not column.may_shorten:
        return text
    return text if len(text) <= SHORT_MAX else text[: SHORT_MAX - 1] + "…"
