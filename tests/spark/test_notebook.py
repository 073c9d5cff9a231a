"""The notebook of examples/: its cells run in order, and print what its text says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from project_paths import EXAMPLES

NOTEBOOK = EXAMPLES / "offsets_history.ipynb"


def sources(kind: str) -> list[str]:
    """The text of all cells of a kind."""
    notebook = json.loads(NOTEBOOK.read_text())
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def rows(printed: str) -> list[str]:
    """The lines of the tables that Spark has printed, without spaces."""
    return [re.sub(" ", "", line) for line in printed.splitlines() if line.startswith("|")]


def test_cells_run_in_order_and_find_the_reset(tmp_path: Path) -> None:
    script = tmp_path / "cells.py"
    script.write_text("\n\n".join(sources("code")))
    completed = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    printed = rows(completed.stdout)
    assert "|offset|61|" in printed, "20 times three partitions, and the reset"
    assert any(re.fullmatch(r"\|billing\|orders\|1\|.*\|2001\|0\|-2001\|\d+\|60\|", row) for row in printed), "rewinds"
    assert sum(row.startswith("|billing|orders|") and "|200" in row for row in printed) >= 3, "as_of"
    assert "|billing|orders|1|2001|0|" in printed, "diff"


def test_notebook_is_committed_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []
