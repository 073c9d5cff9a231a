"""``callboard bench reconnect`` serves all clients and watches the heartbeats of another group."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callboard.bench.harness import BenchError
from callboard.bench.members_bystander import Wait
from callboard.bench.reconnect import Round, _row, _waits_between, main


def test_clients_with_certificates_are_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "figures.json"
    assert main(["--quick", "--mutual", "--output", str(output)]) == 0
    result = json.loads(output.read_text())
    assert result["clients"] == 20
    assert 0 < result["p50_ms"] <= result["p99_ms"] <= result["longest_ms"]
    assert "20 clients connect at once with mutual TLS" in capsys.readouterr().out


def test_row_has_the_medians_and_the_longest_wait() -> None:
    rounds = [Round(1.0, 0.2, (1.0, 2.0, 9.0)), Round(3.0, 0.4, (1.0, 3.0, 7.0)), Round(2.0, 0.3, (1.0, 4.0, 5.0))]
    assert _row(100, rounds) == (100, 2.0, 3.0, 3.0, 7.0, 9.0)


def test_only_heartbeats_during_the_round_count() -> None:
    waits = [Wait(0.0, 0.5), Wait(1.5, 0.001), Wait(0.5, 3.0), Wait(4.0, 1.0)]
    assert _waits_between(waits, 1.0, 3.0) == pytest.approx((1.0, 3000.0))
    with pytest.raises(BenchError, match="expected more --clients"):
        _waits_between(waits[:1], 1.0, 3.0)
