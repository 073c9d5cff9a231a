"""``callboard bench workers`` measures three servers with checked responses. No time is asserted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callboard.bench import workers
from callboard.bench.__main__ import main as bench_main
from callboard.bench.harness import BenchError
from callboard.bench.load_connections import LoadResult
from callboard.bench.workers import cpu_us


def test_one_process_and_workers_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(workers, "WARM_UP_S", 0.02)
    file = tmp_path / "result.json"
    arguments = ["--workers", "2", "--connections", "8", "--seconds", "0.1", "--rounds", "1", "--output", str(file)]
    assert bench_main(["workers", *arguments]) == 0, capsys.readouterr().err
    result = json.loads(file.read_text())
    assert (sum(result["split"]), len(result["split"]), result["offsets_compared"]) == (50, 2, 3 * 8)
    kinds = [(row["server"], row["requests"], row["in_flight"]) for row in result["rows"]]
    servers = ("one process", "one worker", "2 workers")
    expected = [(name, kind, count) for count in (1, 16) for kind in ("heartbeats", "commits") for name in servers]
    assert kinds == expected
    assert {row["ratio"] for row in result["rows"] if row["server"] == "one process"} == {1.0}
    assert all(row["requests_per_s"] > 0 for row in result["rows"])
    assert "partitions of the offsets topic" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_cpu_time_of_a_request_is_that_of_all_processes() -> None:
    run = LoadResult(1000, 1.0, 0.1, 0.2, 0.05, 0.1, 2.0, 0.3)
    assert cpu_us(run) == pytest.approx(50.0)
    with pytest.raises(BenchError, match="it is not Linux"):
        cpu_us(run._replace(server_cpu_s=None))
    with pytest.raises(BenchError, match="give more --seconds"):
        cpu_us(run._replace(server_cpu_s=0.0))


@pytest.mark.parametrize("argument", ["--workers", "--rounds", "--connections"])
def test_bad_numbers_are_refused(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_main(["workers", argument, "0"])
    assert "expected at least" in capsys.readouterr().err
