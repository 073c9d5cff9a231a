"""What a question's answer becomes: a table for people, JSON, CSV, or a file of CSV or Parquet."""

from __future__ import annotations

import csv
import math
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer
from pyspark.sql import DataFrame

from ..runtime.cli.groups.tables import Cell, Column, Table, format_count, print_table
from ..runtime.common.errors import StartError
from ..runtime.common.printing import Writable, csv_stream, print_error, print_json, print_line, spreadsheet_cell

CSV, PARQUET = ".csv", ".parquet"
DIGITS = 6  # of a number that is no whole one

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
SafeCsv = Annotated[
    bool, typer.Option("--safe-csv", help="CSV for spreadsheets: what looks like a formula gets an apostrophe.")
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write a file instead: .csv or .parquet.")
]


def check_output(output: Path | None, as_json: bool, as_csv: bool, is_safe: bool) -> None:
    """Raise StartError where it is not clear what is wanted: before Spark starts, which takes seconds."""
    if sum((output is not None, as_json, as_csv)) > 1:
        raise StartError("expected at most one of --json, --csv and --output FILE")
    if is_safe and (as_json or (output is not None and output.suffix.lower() != CSV)):
        raise StartError(f"--safe-csv is for CSV: leave out --json, or give an --output that ends in {CSV}")
    if output is not None and output.suffix.lower() not in (CSV, PARQUET):
        raise StartError(f"bad --output '{output}': expected a name that ends in {CSV} or {PARQUET}")
    if output is not None and not output.absolute().parent.is_dir():
        raise StartError(f"bad --output '{output}': found no folder {output.absolute().parent}; make it first")
    if output is not None and output.is_dir():
        raise StartError(f"bad --output '{output}': found a folder, expected the name of a file")


def show(
    frame: DataFrame, as_json: bool, as_csv: bool, output: Path | None, nothing: str, is_safe: bool = False
) -> None:
    """Print a frame, or write it to a file. ``nothing``: what to say to a person when it has no rows. OSError."""
    show_arrow(frame.toArrow(), as_json, as_csv, output, nothing, is_safe)


def show_arrow(
    found: pa.Table, as_json: bool, as_csv: bool, output: Path | None, nothing: str, is_safe: bool = False
) -> None:
    """The same for what was collected."""
    if output is not None:
        write(found, output, is_safe)
        print_line(f"{format_count(found.num_rows, 'row')} in {output}")
    elif as_json:
        print_json([{name: plain(cell) for name, cell in row.items()} for row in found.to_pylist()])
    elif as_csv or is_safe:
        _write_csv(found, csv_stream(), is_safe)
    elif found.num_rows:
        print_table(as_table(found))
    else:
        print_error(nothing)


def write(found: pa.Table, path: Path, is_safe: bool = False) -> None:
    """A file of CSV or of Parquet, by its name. OSError."""
    if path.suffix.lower() == PARQUET:
        from pyarrow.parquet import write_table

        write_table(found, str(path))
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        _write_csv(found, file, is_safe)


def as_table(found: pa.Table) -> Table:
    columns = [Column(field.name, field.name.replace("_", " "), _is_number(field.type)) for field in found.schema]
    return Table(columns, [[_cell(cell) for cell in row.values()] for row in found.to_pylist()])


def plain(cell: Any) -> Any:
    """A value as JSON has it: times in ISO 8601 and UTC, fractions to six digits, whole numbers to all of them."""
    if isinstance(cell, datetime):
        aware = cell.astimezone(UTC) if cell.tzinfo else cell.replace(tzinfo=UTC)
        return aware.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(cell, date):
        return cell.isoformat()
    if isinstance(cell, float):
        return _rounded(cell) if math.isfinite(cell) else None
    if isinstance(cell, bytes):
        return cell.hex()
    return [plain(each) for each in cell] if isinstance(cell, list) else cell


def _rounded(number: float) -> float:
    size = math.floor(math.log10(abs(number))) + 1 if number else 0
    return round(number, max(0, DIGITS - size))


def _cell(cell: Any) -> Cell:
    value = plain(cell)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(str(each) for each in value)
    if isinstance(value, float):
        return int(value) if value.is_integer() else f"{value:g}"
    return value if isinstance(value, str | int | None) else str(value)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _write_csv(found: pa.Table, file: Writable, is_safe: bool) -> None:
    writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC if is_safe else csv.QUOTE_MINIMAL)
    writer.writerow(found.schema.names)
    writer.writerows([_csv_cell(plain(cell), is_safe) for cell in row.values()] for row in found.to_pylist())


def _csv_cell(value: Any, is_safe: bool) -> Any:
    cell = " ".join(map(str, value)) if isinstance(value, list) else value
    return spreadsheet_cell(cell) if is_safe and isinstance(cell, str) else cell
