"""``callboard bench compact``, and the generated logs, which are reproducible by seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from callboard.bench import compact
from callboard.bench.loggen import LogShape, WrittenCounts, write_log
from callboard.bench.process_usage import ProcessUsage, descendants
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.reading.segment import scan

SMALL = ["--records", "5000", "--partitions", "2", "--segment-bytes", "50000", "--rounds", "1"]


def measured(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    json_path = tmp_path / "figures.json"
    assert compact.main([*SMALL, "--data", str(tmp_path), "--output", str(json_path), *arguments]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]
    result: dict[str, Any] = json.loads(json_path.read_text())
    rounds = [compaction_round for rounds in result["ways"].values() for compaction_round in rounds]
    assert len({(compaction_round["records"], compaction_round["bytes_after"]) for compaction_round in rounds}) == 1
    assert rounds[0]["records"] > 1000
    return result


def test_bench_compact_prints_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = measured(tmp_path, "--no-spark")
    assert not any("Spark" in way for way in result["ways"])
    assert result["spark_starts"] == []
    printed = capsys.readouterr().out
    assert "copy of the files" in printed
    assert "without Spark: disabled by --no-spark" in printed


def test_bench_compact_in_missing_folder_prints_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compact.main([*SMALL, "--no-spark", "--data", str(tmp_path / "nowhere")]) == 1
    error_output = capsys.readouterr().err
    assert error_output.startswith("compact: ") and "nowhere" in error_output and error_output.count("\n") == 1


def test_bench_compact_measures_spark_and_its_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyspark")
    if (reason := compact.spark_is_missing()) != "":
        pytest.skip(reason)
    result = measured(tmp_path)
    assert [way for way in result["ways"] if way.startswith("Spark, local[2]")]
    assert len(result["spark_starts"]) == 1
    assert "Spark's start: " in capsys.readouterr().out


def test_spark_is_missing_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed then is that of ``--no-spark``, with this reason."""
    pytest.importorskip("pyspark")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert compact.spark_is_missing().startswith("Spark needs Java 17 or newer")


PROGRAM = """
import subprocess, sys, time
end = time.process_time() + 0.3
while time.process_time() < end: pass
data = bytearray(b"x" * 50_000_000)
child = subprocess.Popen([sys.executable, "-c", "data = bytearray(b'x' * 30_000_000); input()"], stdin=subprocess.PIPE)
print("ready", flush=True)
input()
child.communicate(b"\\n")
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_process_usage_includes_all_descendants() -> None:
    child_pids = descendants(os.getpid())
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        with ProcessUsage(child_pids) as watch:
            child.stdout.readline()
            while watch.peak_bytes < 80_000_000:  # which neither of the two has alone
                watch.sample()
        with ProcessUsage({child.pid, *descendants(child.pid)}) as nobody:
            pass
        child.stdin.write("\n")
    assert sum(watch.cpu_s.values()) >= 0.25
    assert watch.peak_bytes < 300_000_000
    assert sum(nobody.cpu_s.values()) < 0.25


SHAPE = LogShape(6000, 2, groups=50, segment_bytes=100_000, transaction_rate=0.2, death_rate=0.02)


def test_write_log_matches_shape(tmp_path: Path) -> None:
    written = write_log(tmp_path, SHAPE, seed=3)
    files = sorted(tmp_path.glob("__consumer_offsets-*/*.log"))
    batches = [batch for path in files for batch in scan(Disk(), path)]
    assert written == WrittenCounts(
        sum(batch.record_count for batch in batches), sum(path.stat().st_size for path in files), len(files)
    )
    assert 6000 <= written.records < 7000
    assert max(path.stat().st_size for path in files) <= SHAPE.segment_bytes
    kinds = {(batch.is_transactional, batch.is_control) for batch in batches}
    assert kinds == {(False, False), (True, False), (True, True)}
    assert any(value is None for batch in batches for _, _, _, value in batch.records())


def test_write_log_bursts_are_consecutive_batches(tmp_path: Path) -> None:
    """Where groups are picked evenly, a group without bursts seldom is in consecutive batches."""
    runs = {}
    for name, burst_rate in (("calm", 0.0), ("bursts", 0.2)):
        write_log(tmp_path / name, LogShape(20_000, 1, groups=5000, burst_rate=burst_rate))
        [path] = (tmp_path / name).glob("*/*.log")
        groups = [{(key or b"")[4:28] for _, _, key, _ in batch.records()} for batch in scan(Disk(), path)]
        runs[name] = sum(len(earlier & later) for earlier, later in pairwise(groups)) / len(groups)
    assert runs["bursts"] > 2 * runs["calm"]


def test_write_log_is_reproducible_by_seed(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        write_log(tmp_path / name, SHAPE, seed)
    first, repeated, second = (
        [path.read_bytes() for path in sorted((tmp_path / name).glob("*/*.log"))] for name in ("one", "again", "other")
    )
    assert first == repeated != second
