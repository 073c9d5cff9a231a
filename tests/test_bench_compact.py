"""``callboard bench compact`` measures what it says, on logs that are the same for the same seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callboard.bench import compact
from callboard.bench.loggen import Shape, Written, write_log
from callboard.runtime.log.disk import Disk
from callboard.runtime.log.segment import scan


def test_it_measures_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = tmp_path / "told.json"
    small = ["--records", "5000", "--partitions", "2", "--segment-bytes", "50000", "--rounds", "1"]
    assert compact.main([*small, "--folder", str(tmp_path), "--json", str(told)]) == 0
    found = json.loads(told.read_text())
    assert {round(one["records"]) > 1000 for rounds in found["ways"].values() for one in rounds} == {True}
    assert len({one["records"] for rounds in found["ways"].values() for one in rounds}) == 1
    assert "copy of the files" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["told.json"]


SHAPE = Shape(6000, 2, groups=50, segment_bytes=100_000, transaction_rate=0.2, death_rate=0.02)


def test_a_log_is_what_its_shape_says(tmp_path: Path) -> None:
    written = write_log(tmp_path, SHAPE, seed=3)
    files = sorted(tmp_path.glob("__consumer_offsets-*/*.log"))
    batches = [batch for path in files for batch in scan(Disk(), path)]
    assert written == Written(
        sum(batch.record_count for batch in batches), sum(path.stat().st_size for path in files), len(files)
    )
    assert 6000 <= written.records < 7000
    assert max(path.stat().st_size for path in files) <= SHAPE.segment_bytes
    kinds = {(batch.is_transactional, batch.is_control) for batch in batches}
    assert kinds == {(False, False), (True, False), (True, True)}
    assert any(value is None for batch in batches for _, _, _, value in batch.records())


def test_a_seed_makes_the_same_log_again(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        write_log(tmp_path / name, SHAPE, seed)
    one, again, other = (
        [path.read_bytes() for path in sorted((tmp_path / name).glob("*/*.log"))] for name in ("one", "again", "other")
    )
    assert one == again != other
