"""The notebook of examples/: its cells run in order, and print what its text says."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from project_paths import EXAMPLES
from pyspark.sql import SparkSession

NOTEBOOK = EXAMPLES / "offsets_history.ipynb"


def sources(kind: str) -> list[str]:
    """The text of all cells of a kind."""
    notebook = json.loads(NOTEBOOK.read_text())
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def rows(printed: str) -> list[str]:
    """The lines of the tables that Spark has printed, without spaces."""
    return [re.sub(" ", "", line) for line in printed.splitlines() if line.startswith("|")]


def test_cells_run_in_order_and_find_the_reset(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a session of their own of the Spark that all tests share: its settings and data sources are not changed."""
    made: list[dict[str, Any]] = []

    def get_or_create(builder: Any) -> SparkSession:
        made.append(dict(builder._options))
        return spark.newSession()

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", get_or_create)
    monkeypatch.setattr(SparkSession, "stop", lambda session: made.append({"stopped": session is not spark}))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    exec("\n\n".join(sources("code")), {})
    assert made == [{"spark.master": "local[*]", "spark.sql.shuffle.partitions": "4"}, {"stopped": True}]
    printed = rows(capsys.readouterr().out)
    assert "|offset|61|" in printed, "20 times three partitions, and the reset"
    assert any(re.fullmatch(r"\|billing\|orders\|1\|.*\|2001\|0\|-2001\|\d+\|60\|", row) for row in printed), "rewinds"
    assert sum(row.startswith("|billing|orders|") and "|200" in row for row in printed) >= 3, "as_of"
    assert "|billing|orders|1|2001|0|" in printed, "diff"


def test_notebook_is_committed_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []
