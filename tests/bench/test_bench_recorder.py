"""``callboard bench recorder`` measures rebalances whose records it checks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callboard.bench.recorder import main


def test_bench_recorder_prints_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "figures.json"
    assert main(["--members", "1,2,40", "--rounds", "2", "--output", str(path)]) == 0
    rows = json.loads(path.read_text())["rows"]
    assert [(row["members"], row["aim_us"]) for row in rows] == [(1, 22), (2, 24), (40, 100)]
    assert all(row["turns_us"] > 0 and row["thread_us"] > 0 for row in rows)
    assert "us in turns" in capsys.readouterr().out


def test_zero_rounds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--rounds=0"])
    assert "expected 1 or more" in capsys.readouterr().err
