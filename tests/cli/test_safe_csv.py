"""Tests of CSV for spreadsheets: no text is a formula, and every text can be read back."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pyarrow as pa
import pytest
from command_helpers import Command, command
from hypothesis import given
from hypothesis import strategies as st
from log_helpers import offset
from partition_helpers import plain, write

from callboard.actors.javahash import offsets_partition
from callboard.runtime.cli.exchange import export
from callboard.runtime.cli.exchange.parse import read_table
from callboard.runtime.cli.exchange.rows import Row, write_safe_csv
from callboard.runtime.client.cluster import OffsetAndMetadata
from callboard.runtime.common.errors import StartError
from callboard.runtime.common.printing import from_spreadsheet_cell, spreadsheet_cell
from callboard.runtime.log.folder import DataFolder
from callboard.spark import output

DANGEROUS = (
    *("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1", "\uff1d1+1", "\uff0b1", "\uff0d1", "\uff201"),
    *("=cmd|'/C calc'!A0", '=HYPERLINK("x","y")', "\0=1", "\ta", "'=1", "''", "'"),
)
FORMULA_BEGINS = frozenset("=+-@\t\r\n\0\uff1d\uff0b\uff0d\uff20")
FORMS = pytest.mark.parametrize("text", DANGEROUS)


@FORMS
def test_spreadsheet_cell_with_formula_is_escaped(text: str) -> None:
    assert spreadsheet_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "a=1", "1-1", "shop", "über", " a", "2026-01-01T00:00:00Z"])
def test_spreadsheet_cell_without_formula_is_unchanged(text: str) -> None:
    assert spreadsheet_cell(text) == text


@given(st.text())
def test_spreadsheet_cell_round_trips(text: str) -> None:
    cell = spreadsheet_cell(text)
    assert from_spreadsheet_cell(cell) == text
    assert cell[:1] not in FORMULA_BEGINS and cell.lstrip()[:1] not in FORMULA_BEGINS


@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=9), st.text(st.characters(codec="utf-8")))))
def test_safe_csv_export_round_trips(
    tmp_path_factory: pytest.TempPathFactory, source_rows: list[tuple[str, str]]
) -> None:
    rows = [Row(group, "-1", number, 5, None, metadata, None) for number, (group, metadata) in enumerate(source_rows)]
    path = tmp_path_factory.mktemp("safe") / "offsets.csv"
    with path.open("w", encoding="utf-8", newline="") as out:
        write_safe_csv([*rows, Row("last", "t", 0, 1, 3, "", "2026-01-01T00:00:00Z")], out)
    table = read_table(path, pytest.fail)
    read = [(group, partition, value) for group in table for partition, value in table[group].items()]
    expected = [(row.group, (row.topic, row.partition), OffsetAndMetadata(5, -1, row.metadata)) for row in rows]
    assert sorted(read) == sorted([*expected, ("last", ("t", 0), OffsetAndMetadata(1, 3, ""))])


@pytest.fixture
def out(capsys: pytest.CaptureFixture[str]) -> Command:
    return command(export.main, capsys)


@FORMS
def test_export_with_safe_csv_escapes_formulas(tmp_path: Path, out: Command, text: str) -> None:
    """Text is quoted, since spreadsheets may use another separator. Without the option values are exact."""
    data = tmp_path / "data"
    DataFolder(data, 4, 1).close()
    write(data, offsets_partition(text, 4), [plain(0, offset(text, 7, text))])
    rows = list(csv.reader(io.StringIO(out("--data", data, "--safe-csv").out, newline="")))
    assert rows[1][:1] + rows[1][5:6] + rows[1][7:] == [f"'{text}", f"'{text}", "yes"]
    assert out("--data", data, "--safe-csv").out.split("\n")[0].startswith('"group","topic","partition"')
    exact_rows = list(csv.reader(io.StringIO(out("--data", data).out, newline="")))
    assert exact_rows[1][:1] + exact_rows[1][5:6] == [text, text] and len(exact_rows[1]) == 7


def test_safe_csv_with_json_is_refused(tmp_path: Path, out: Command) -> None:
    result = out("--data", tmp_path, "--safe-csv", "--format", "json")
    assert result.code == 2 and "--safe-csv is for CSV: leave out --format json" in result.err


def test_import_of_plain_csv_keeps_apostrophes(tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text("group,topic,partition,offset,escaped\n'g,t,0,1,\n'g,t,0,2,yes\n")
    assert read_table(path, pytest.fail) == {
        "'g": {("t", 0): OffsetAndMetadata(1, -1, "")},
        "g": {("t", 0): OffsetAndMetadata(2, -1, "")},
    }


def test_import_with_unknown_escape_column_is_refused(tmp_path: Path) -> None:
    path, problems = tmp_path / "offsets.csv", list[str]()
    path.write_text("group,topic,partition,offset,escaped\ng,t,0,1,no\n")
    with pytest.raises(StartError):
        read_table(path, problems.append)
    assert problems[0].endswith("line 2: escaped is 'no', expected yes, or nothing")


def test_spark_output_with_safe_csv_is_escaped(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The output of ``history`` and ``analyse``, printed or in a file. Numbers stay numbers."""
    rows = pa.table({"group": ["=1"], "change": [-5], "topics": [["@a", "b"]]})
    expected = '"group","change","topics"\n"\'=1",-5,"\'@a b"\n'
    output.output_table(rows, False, False, None, "", True)
    assert capsys.readouterr().out == expected
    output.output_table(rows, False, False, tmp_path / "answer.csv", "", True)
    assert (tmp_path / "answer.csv").read_text() == expected
    output.output_table(rows, False, True, None, "")
    assert "\n=1,-5,@a b\n" in capsys.readouterr().out.replace(expected, "")
    for as_json, path in ((True, None), (False, tmp_path / "answer.parquet")):
        with pytest.raises(StartError, match="--safe-csv is for CSV"):
            output.check_output(path, as_json, False, True)
