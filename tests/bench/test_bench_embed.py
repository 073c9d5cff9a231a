"""``callboard bench embed`` measures commits both ways, and many members on one loop."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from bench_children import run_in_this_process

from callboard.bench import embed
from callboard.bench.__main__ import main as bench_main
from callboard.bench.harness import run_once


@pytest.fixture
def commits_in_this_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only members run in a process of their own, as all measurements do otherwise."""

    def run(arguments: Sequence[str], name: str, timeout_s: float) -> dict[str, Any]:
        if name == "embed members":
            return run_once(arguments, name, timeout_s)
        return run_in_this_process(["-m", embed.__name__, *arguments[3:]], name, timeout_s)

    thresholds = gc.get_threshold()
    monkeypatch.setattr(embed, "run_once", run)
    yield
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("commits_in_this_process")
def test_bench_embed_prints_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    json_path = tmp_path / "figures.json"
    arguments = ["--seconds", "0.1", "--rounds", "2", "--committers", "5"]
    arguments += ["--members", "20", "--heartbeat-seconds", "0.2"]
    assert bench_main(["embed", *arguments, "--data", str(tmp_path), "--output", str(json_path)]) == 0
    result = json.loads(json_path.read_text())
    [comparison] = result["commits"]
    assert comparison["committers"] == 5
    assert comparison["ratio"] > 0
    assert all(len(rates) == 2 and min(rates) > 0 for rates in comparison["rates"].values())
    members_figures = result["members"]
    assert (members_figures["members"], members_figures["lost"]) == (20, 0)
    assert min(members_figures["settled_s"], members_figures["left_s"], members_figures["cpu_a_second"]) > 0
    assert "20 members on one loop" in capsys.readouterr().out


def test_each_number_of_committers_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed, "compare", lambda _options, _parent, committers: {"committers": committers})
    monkeypatch.setattr(embed, "_child", lambda *_arguments: {})
    options = embed._options(["--committers", "1,5"])
    assert embed.run(options) == {"commits": [{"committers": 1}, {"committers": 5}], "members": {}}


@pytest.mark.parametrize("arguments", [["--members", "0"], ["--committers", "0"], ["--rounds", "-1"]])
def test_invalid_arguments_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_main(["embed", *arguments])
    assert "expected" in capsys.readouterr().err
