"""``callboard bench cluster`` on a shared folder: it measures what it says, and takes only an empty store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callboard.bench.cluster import main


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "store").mkdir()
    return (tmp_path / "store").as_uri()


def test_commits_are_compared_with_the_journal_of_the_same_run(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "result.json"
    arguments = ["--measure", "commits", "--cluster", url, "--seconds", "0.2", "--rounds", "1", "--connections", "4"]
    assert main([*arguments, "-o", str(output)]) == 0
    rows = json.loads(output.read_text())["commits"]
    assert [(row["store"][0], row["in_flight"]) for row in rows] == [("j", 1), ("1", 1), ("j", 16), ("1", 16)]
    assert all(row["commits_per_s"] > 0 and row["server_cpu_us"] > 0 for row in rows)
    assert [row["of_journal"] for row in rows if row["store"] == "journal"] == [1.0, 1.0]
    assert "8 last offsets were read and compared" in capsys.readouterr().out
    assert main(arguments) == 1
    assert "expected an empty store" in capsys.readouterr().err


def test_takeover_loads_all_groups(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "result.json"
    assert main(["--measure", "takeover", "--cluster", url, "--groups", "1000", "-o", str(output)]) == 0
    [result] = json.loads(output.read_text())["takeover"]
    assert result["groups"] == 340
    assert result["bytes"] > 340 * 50
    assert result["seconds"] > 0
    assert "takeover of 17 partitions with 340 groups" in capsys.readouterr().out
