"""Tables: for a terminal with lines and colours, for a pipe as plain columns, for programs as JSON.

A number is right-aligned; on a terminal with thousands separated, elsewhere as it is. What is not known is a dash.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

Cell = str | int | None

UNKNOWN = "-"
SHORT_MAX = 40  # characters of what may be shortened, such as metadata, which may be 4096 bytes


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


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


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
        print(f"{name:{width}}  {value}".rstrip())


def grouped(number: int) -> str:
    """A number for people: 1,234,567."""
    return f"{number:,}"


def counted(number: int, unit: str) -> str:
    """A number with its unit: 1 member, 2 members."""
    return f"{grouped(number)} {unit}" + ("" if number == 1 else "s")


def _text(cell: Cell) -> str:
    return UNKNOWN if cell is None or cell == "" else str(cell)


def _print_plain(table: Table) -> None:
    """Columns of even width, one row a line, so that grep, cut and awk are of use."""
    lines = [[column.title for column in table.columns], *([_text(cell) for cell in row] for row in table.rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            cell.rjust(width) if column.is_number else cell.ljust(width)
            for cell, width, column in zip(line, widths, table.columns, strict=True)
        ]
        print("  ".join(cells).rstrip())


def _print_rich(table: Table) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    rich = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in table.columns:
        overflow: Literal["ellipsis", "fold"] = "ellipsis" if column.may_shorten else "fold"
        rich.add_column(
            column.title, justify="right" if column.is_number else "left", overflow=overflow, no_wrap=column.is_number
        )
    for row in table.rows:
        rich.add_row(*(Text(_shown(cell, column)) for cell, column in zip(row, table.columns, strict=True)))
    Console().print(rich)


def _shown(cell: Cell, column: Column) -> str:
    if isinstance(cell, int):
        return grouped(cell)
    text = _text(cell)
    if not column.may_shorten:
        return text
    text = " ".join(text.split())
    return text if len(text) <= SHORT_MAX else text[: SHORT_MAX - 1] + "…"
