"""``callboard settings``: the table of settings, as text and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from ..settings.table import SETTINGS, Setting
from .main import make_app

app = make_app()


@app.command("settings")
def settings(as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False) -> None:
    """List every setting with its default, its range and its use."""
    if as_json:
        print(json.dumps([to_json(setting) for setting in SETTINGS], indent=2))
    elif sys.stdout.isatty():
        print_table()
    else:
        print_plain()


def to_json(setting: Setting) -> dict[str, object]:
    return {**setting._asdict(), "type": setting.type.__name__, "is_dynamic": setting.is_dynamic}


def cells(setting: Setting) -> tuple[str, str, str, str]:
    limits = "true, false" if setting.type is bool else f"{setting.minimum}..{setting.maximum}"
    if setting.safe_minimum is not None:
        limits = f"{setting.safe_minimum}..{setting.maximum} (unsafe: from {setting.minimum})"
    default = str(setting.default)
    return setting.name, default.lower(), limits, setting.doc


def print_plain() -> None:
    """Print aligned columns, one setting a line, for grep and cut."""
    rows = [("name", "default", "range", "use"), *map(cells, SETTINGS)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_table() -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "default", "range", "use")
    for setting in SETTINGS:
        table.add_row(*cells(setting))
    Console().print(table)


def main(argv: Sequence[str]) -> int:
    app(list(argv), prog_name="callboard settings")
    return 0
