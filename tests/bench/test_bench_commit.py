"""``callboard bench commit`` measures all kinds, computes ratios within rounds, and reports missed targets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callboard.bench.commit import KINDS, CommitRound, aims, main, measure_log, measure_syncs


def rounds(**rates: float) -> dict[str, list[CommitRound]]:
    """Two rounds of each kind. The disk of the second round has half the speed, which does not affect the ratios."""
    slow = [CommitRound(rate / 2, 2 / rate, 4 / rate) for rate in rates.values()]
    fast = [CommitRound(rate, 1 / rate, 2 / rate) for rate in rates.values()]
    return {
        kind: [first_round, second_round] for kind, first_round, second_round in zip(KINDS, fast, slow, strict=True)
    }


def test_aims_use_ratios_within_rounds() -> None:
    results = aims(rounds(bare=100, few_in_log=50, many_in_log=5000, none=3000, always=1500, many=1))
    assert [aim.found.median for aim in results] == pytest.approx([50, 2, 2])
    assert [aim.found.spread for aim in results] == pytest.approx([0, 0, 0])
    assert [aim.is_met for aim in results] == [True, False, True]


def test_measure_syncs_returns_rate_and_latency(tmp_path: Path) -> None:
    figures = measure_syncs(tmp_path, 0.05)
    assert figures.rate > 0 and 0 < figures.p50_s <= figures.p99_s
    assert list(tmp_path.iterdir()) == []


def test_measure_log_returns_rate_and_latency(tmp_path: Path) -> None:
    figures = measure_log(tmp_path, 50, 0.1)
    assert figures.rate > 0 and 0 < figures.p50_s <= figures.p99_s
    assert list(tmp_path.iterdir()) == []


def test_bench_commit_prints_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    json_path = tmp_path / "figures.json"
    assert main(["--quick", "--connections", "10", "--data", str(tmp_path), "--output", str(json_path)]) == 0
    result = json.loads(json_path.read_text())
    assert set(result["rounds"]) == set(KINDS)
    assert all(
        commit_round["rate"] > 0 for commit_rounds in result["rounds"].values() for commit_round in commit_rounds
    )
    assert len(result["aims"]) == 3
    printed = capsys.readouterr().out
    assert "fdatasync per commit" in printed and "target at least 40" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


@pytest.mark.parametrize("argument", ["--seconds=0", "--rounds=-1", "--connections=0"])
def test_invalid_number_is_refused(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([argument])
    assert "expected more than 0" in capsys.readouterr().err


def test_too_few_connections_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--connections=7"])
    assert "--connections 7: 1000 must be in flight, one connection allows at most 128" in capsys.readouterr().err


def test_bench_commit_in_missing_folder_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--data", "/nowhere/at/all"]) == 1
    assert capsys.readouterr().err.startswith("commit: ")
