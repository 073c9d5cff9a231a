"""``callboard bench load`` writes its figures, and detects missing records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callboard.bench import loading, loading_steps
from callboard.bench.__main__ import main
from callboard.bench.harness import BenchError
from callboard.runtime.log.reading.newest import load_partition


def test_bench_load_prints_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    json_path = tmp_path / "figures.json"
    assert main(["load", "--records", "3000", "--rounds", "1", "--output", str(json_path)]) == 0
    result = json.loads(json_path.read_text())
    assert 3000 <= result["records"] < 3000 + 2**loading.BATCH_BITS
    assert all(runs[0]["cpu_seconds"] > 0 for runs in result["runs"].values())
    printed = capsys.readouterr().out
    for seconds in result["steps"].values():
        assert all(seconds[name] > 0 for name in (loading_steps.READING, *loading_steps.LOADER_STEPS.values()))
    assert loading_steps.READING in printed
    assert "without numpy" in printed and f"{result['records']:,} records in " in printed


def test_steps_add_up_to_the_clock() -> None:
    """Nothing is counted twice: an iterator's step is what it does between two values."""
    now = iter(range(100))
    times = loading_steps.StepTimes(lambda: float(next(now)))
    iterate = times.timed_iterator("read", lambda count: iter(range(count)))
    assert list(iterate(3)) == [0, 1, 2]
    assert times.timed("store", lambda value: value * 2)(4) == 8
    assert times.seconds == {"read": 4.0, "store": 1.0}  # the end of the iterator is a step of its work, too


def test_fill_writes_readable_segments(tmp_path: Path) -> None:
    """All records are found in several segments."""
    counts = loading.fill(tmp_path, 5000, 7, segment_bytes=100_000)
    assert len(list(tmp_path.glob("*.log"))) > 1
    loaded = load_partition(tmp_path)
    assert (loaded.records, loaded.log_bytes) == (counts.records, counts.log_bytes)
    assert not loaded.damages and not loaded.problems


def test_measure_with_missing_records_raises(tmp_path: Path) -> None:
    counts = loading.fill(tmp_path, 100, 1)
    with pytest.raises(BenchError, match=f"found {counts.records} records, expected {counts.records + 1}"):
        loading.measure(tmp_path, counts._replace(records=counts.records + 1), 1)


@pytest.mark.parametrize("arguments", [["--records", "0"], ["--rounds", "0"]])
def test_invalid_number_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        loading.main(arguments)
    assert "expected 1 or more of each" in capsys.readouterr().err
