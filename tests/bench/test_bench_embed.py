"""``callboard bench embed`` measures commits both ways, and many members on one loop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callboard.bench.__main__ import main as bench_main


def test_bench_embed_prints_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = tmp_path / "told.json"
    arguments = ["--seconds", "0.2", "--rounds", "2", "--committers", "1", "5", "--members", "20", "--beating", "0.2"]
    assert bench_main(["embed", *arguments, "--data", str(tmp_path), "--json", str(told)]) == 0
    found = json.loads(told.read_text())
    assert [one["committers"] for one in found["commits"]] == [1, 5]
    for one in found["commits"]:
        assert one["ratio"] > 0
        assert all(len(rates) == 2 and min(rates) > 0 for rates in one["rates"].values())
    crowd = found["crowd"]
    assert (crowd["members"], crowd["lost"]) == (20, 0)
    assert min(crowd["settled_s"], crowd["left_s"], crowd["cpu_a_second"]) > 0
    assert "20 members on one loop" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--members", "0"], ["--committers", "0"], ["--rounds", "-1"]])
def test_invalid_arguments_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_main(["embed", *arguments])
    assert "expected" in capsys.readouterr().err
