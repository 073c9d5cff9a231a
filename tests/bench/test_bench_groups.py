"""``callboard bench groups`` writes its figures, and detects a missing offset."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callboard.bench import groups
from callboard.bench.harness import BenchError


def test_bench_groups_prints_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    json_path = tmp_path / "figures.json"
    assert groups.main(["--groups", "300", "--active", "30", "--output", str(json_path)]) == 0
    result = json.loads(json_path.read_text())
    assert (result["groups"], result["active"]) == (300, 30)
    assert result["known_bytes"] > 0
    printed = capsys.readouterr().out
    assert "300 groups, all passivated" in printed
    assert "600 records read" in printed


def test_activate_of_missing_group_raises(tmp_path: Path) -> None:
    groups.fill(tmp_path / "data", 10)
    with groups._serve(tmp_path / "data") as server:
        groups.activate(server.address, 10, 10)
        with pytest.raises(BenchError, match="workers-of-service-10 has offset -1, expected 10"):
            groups.activate(server.address, 20, 2)


@pytest.mark.parametrize("active_groups", ["0", "11"])
def test_invalid_number_is_refused(active_groups: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        groups.main(["--groups", "10", "--active", active_groups])
    assert f"--active {active_groups}: expected 1 to --groups 10" in capsys.readouterr().err
