"""The summary of outages: the second worst of a hundred is p99."""

from __future__ import annotations

from pathlib import Path

from .campaign import Outage
from .measured import add_outages, load, summary


def test_outages_are_added_to_those_of_earlier_runs(tmp_path: Path) -> None:
    file = tmp_path / "outages.json"
    add_outages("kill", [Outage(1.5, 4, 0.1)], file)
    add_outages("stop", [Outage(2.0, 4, 0.1)], file)
    add_outages("kill", [Outage(1.7, 4, 0.1)], file)
    assert load(file) == {"kill": [Outage(1.5, 4, 0.1), Outage(1.7, 4, 0.1)], "stop": [Outage(2.0, 4, 0.1)]}


def test_p99_is_the_second_worst_of_a_hundred_and_the_worst_of_a_few() -> None:
    outages = [Outage(number / 10, 4, 2.0) for number in range(100)]
    assert summary("kill", outages).startswith("kill: 100 faults, p50 4.95 s, p99 9.80 s, worst 9.90 s")
    assert "p99 0.90 s, worst 0.90 s" in summary("kill", outages[:10])
