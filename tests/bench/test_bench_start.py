"""``callboard bench start`` starts each kind of coordinator, and removes its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callboard.bench.start import AIMS, BARE, SERVER, THREAD, main


def test_bench_start_prints_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    json_path = tmp_path / "figures.json"
    assert main(["--quick", "--data", str(tmp_path), "--output", str(json_path)]) == 0
    result = json.loads(json_path.read_text())["ms"]
    assert {BARE, SERVER, THREAD} | {aim.kind for aim in AIMS} <= set(result)
    assert all(median_ms > 0 for median_ms in result.values())
    assert result[SERVER] > result[BARE]
    printed = capsys.readouterr().out
    assert all(f"{aim.kind}: target at most" in printed for aim in AIMS)
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def test_zero_rounds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--rounds=0"])
    assert "expected 1 or more" in capsys.readouterr().err
