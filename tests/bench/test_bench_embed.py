"""``callboard bench embed`` measures commits both ways, and many members on one loop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callboard.bench.__main__ import main as bench_main


def test_bench_embed_prints_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    json_path = tmp_path / "figures.json"
    arguments = [
        "--seconds",
        "0.2",
        "--rounds",
        "2",
        "--committers",
        "1,5",
        "--members",
        "20",
        "--heartbeat-seconds",
        "0.2",
    ]
    assert bench_main(["embed", *arguments, "--data", str(tmp_path), "--output", str(json_path)]) == 0
    result = json.loads(json_path.read_text())
    assert [comparison["committers"] for comparison in result["commits"]] == [1, 5]
    for comparison in result["commits"]:
        assert comparison["ratio"] > 0
        assert all(len(rates) == 2 and min(rates) > 0 for rates in comparison["rates"].values())
    members_figures = result["members"]
    assert (members_figures["members"], members_figures["lost"]) == (20, 0)
    assert min(members_figures["settled_s"], members_figures["left_s"], members_figures["cpu_a_second"]) > 0
    assert "20 members on one loop" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--members", "0"], ["--committers", "0"], ["--rounds", "-1"]])
def test_invalid_arguments_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_main(["embed", *arguments])
    assert "expected" in capsys.readouterr().err
