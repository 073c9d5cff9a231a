"""Output of query results: a text table, JSON, CSV, or a CSV or Parquet file."""

from __future__ import annotations

import csv
import math
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..actors.text import format_count
from ..runtime.cli.tables import Cell, Column, Table, print_table
from ..runtime.common.errors import StartError
from ..runtime.common.printing import Writable, csv_stream, print_error, print_json, print_line, spreadsheet_cell
from ..runtime.disk.output_file import new_output_file

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

CSV, PARQUET = ".csv", ".parquet"
SIGNIFICANT_DIGITS = 6  # of fractional numbers

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
SafeCsv = Annotated[
    bool, typer.Option("--safe-csv", help="Print CSV for spreadsheets, with an apostrophe before formulas.")
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write a .csv or .parquet file instead.")
]


def check_output(output: Path | None, as_json: bool, as_csv: bool, is_safe: bool) -> None:
    """Raise StartError for contradictory options. Called before Spark starts, which takes seconds."""
    if sum((output is not None, as_json, as_csv)) > 1:
        raise StartError("expected at most one of --json, --csv and --output FILE")
    if is_safe and (as_json or (output is not None and output.suffix.lower() != CSV)):
        raise StartError(f"--safe-csv is for CSV: leave out --json, or give an --output that ends in {CSV}")
    if output is not None and output.suffix.lower() not in (CSV, PARQUET):
        raise StartError(f"bad --output '{output}': expected a name that ends in {CSV} or {PARQUET}")
    if output is not None and not output.absolute().parent.is_dir():
        raise StartError(f"bad --output '{output}': found no folder {output.absolute().parent}; create it first")
    if output is not None and output.is_dir():
        raise StartError(f"bad --output '{output}': found a folder, expected the name of a file")


def output_frame(
    frame: DataFrame, as_json: bool, as_csv: bool, output: Path | None, empty_message: str, is_safe: bool = False
) -> None:
    """Print a frame, or write it to a file. ``empty_message``: the message if it has no rows. Raises OSError."""
    output_table(frame.toArrow(), as_json, as_csv, output, empty_message, is_safe)


def output_table(
    table: pa.Table, as_json: bool, as_csv: bool, output: Path | None, empty_message: str, is_safe: bool = False
) -> None:
    """As ``output_frame``, for a table that was collected."""
    if output is not None:
        write_file(table, output, is_safe)
        print_line(f"{format_count(table.num_rows, 'row')} in {output}")
    elif as_json:
        print_json([{name: json_value(cell) for name, cell in row.items()} for row in table.to_pylist()])
    elif as_csv or is_safe:
        _write_csv(table, csv_stream(), is_safe)
    elif table.num_rows:
        print_table(text_table(table))
    else:
        print_error(empty_message)


def write_file(table: pa.Table, path: Path, is_safe: bool = False) -> None:
    """Write a CSV or Parquet file, depending on the suffix. Raises OSError."""
    if path.suffix.lower() == PARQUET:
        from pyarrow.parquet import write_table

        with new_output_file(path) as new:
            write_table(table, str(new))
        return
    with new_output_file(path) as new, new.open("w", encoding="utf-8", newline="") as file:
        _write_csv(table, file, is_safe)


def text_table(table: pa.Table) -> Table:
    """A table of texts and integers. Lists have all their elements."""
    columns = [Column(field.name, field.name.replace("_", " "), _is_number(field.type)) for field in table.schema]
    return Table(columns, [[_cell(cell) for cell in row.values()] for row in table.to_pylist()])


def json_value(cell: Any) -> Any:
    """A value for JSON: times in ISO 8601 and UTC, fractions with six significant digits, integers in full."""
    if isinstance(cell, datetime):
        utc_cell = cell.astimezone(UTC) if cell.tzinfo else cell.replace(tzinfo=UTC)
        return utc_cell.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(cell, date):
        return cell.isoformat()
    if isinstance(cell, float):
        return _rounded(cell) if math.isfinite(cell) else None
    if isinstance(cell, bytes):
        return cell.hex()
    return [json_value(element) for element in cell] if isinstance(cell, list) else cell


def _rounded(number: float) -> float:
    size = math.floor(math.log10(abs(number))) + 1 if number else 0
    return round(number, max(0, SIGNIFICANT_DIGITS - size))


def _cell(cell: Any) -> Cell:
    value = json_value(cell)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(str(element) for element in value)
    if isinstance(value, float):
        return int(value) if value.is_integer() else f"{value:g}"
    return value if isinstance(value, str | int | None) else str(value)


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _write_csv(table: pa.Table, file: Writable, is_safe: bool) -> None:
    writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC if is_safe else csv.QUOTE_MINIMAL)
    writer.writerow(table.schema.names)
    writer.writerows([_csv_cell(json_value(cell), is_safe) for cell in row.values()] for row in table.to_pylist())


def _csv_cell(value: Any, is_safe: bool) -> Any:
    cell = " ".join(map(str, value)) if isinstance(value, list) else value
    return spreadsheet_cell(cell) if is_safe and isinstance(cell, str) else cell
