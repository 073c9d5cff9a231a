"""``callboard bench timers`` verifies every expiry: early, late, lost and doubled ones fail. No time is asserted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench_children import run_in_this_process

from callboard.bench import harness, timer_designs
from callboard.bench.__main__ import main as bench_main
from callboard.bench.harness import BenchError, interleaved, ratios, run_once
from callboard.bench.timer_designs import DESIGNS, EMPTY, WORKS, Heap, TimerWorkload, Wheel, measure, measure_empty
from callboard.bench.timers import (
    AIM_TIMERS,
    BYTES_AIM,
    DESIGNS_OF,
    LABELS,
    OBJECTS,
    WORST_MS_AIM,
    Row,
    _aims,
    _options,
)

NEAR = WORKS["near"]
TIMED = {"insert_ns", "renew_ns", "cancel_ns"}


# The designs ----------------------------------------------------------------------------------------------------------


def test_measure_of_objects_has_no_expiry() -> None:
    assert set(measure("objects", NEAR, 150)) == {*TIMED, "bytes", "renewed_bytes"}


@pytest.mark.parametrize("name", DESIGNS_OF[EMPTY])
def test_measure_empty_returns_times_of_day_and_tick(name: str) -> None:
    figures = measure_empty(name)
    assert set(figures) == {"day_0_ns", "day_1_ns", "tick_0_ns", "tick_1_ns"}
    assert all(value > 0 for value in figures.values())


class ExpiresEarly(Wheel):
    def advance(self, tick: int) -> Any:
        return super().advance(tick + 1)


class ExpiresLate(Wheel):
    def advance(self, tick: int) -> Any:
        return super().advance(tick - 1)


class LosesTimers(Wheel):
    def advance(self, tick: int) -> Any:
        return super().advance(tick)[1:]


class ExpiresTwice(Wheel):
    def advance(self, tick: int) -> Any:
        return super().advance(tick) * 2


class ExpiresCancelled(Heap):
    def invalidate(self, item: Any) -> None:
        """Cancels nothing."""


@pytest.mark.parametrize(
    ("wrong_design", "error_text"),
    [
        (ExpiresEarly, r"item \d+ is due at \d+ and expired at \d+"),
        (ExpiresLate, r"item \d+ is due at \d+ and expired at \d+"),
        (LosesTimers, r"item \d+ is due at \d+ and expired at -1"),
        (ExpiresTwice, r"item \d+ expired twice"),
        (ExpiresCancelled, "20 expired although all were cancelled"),
    ],
)
def test_measure_of_wrong_design_raises(
    monkeypatch: pytest.MonkeyPatch, wrong_design: type[Wheel], error_text: str
) -> None:
    monkeypatch.setitem(DESIGNS, "wrong", wrong_design)
    with pytest.raises(BenchError, match=error_text):
        measure("wrong", TimerWorkload(5, 40), 20)


def test_plan_renews_later_and_orders_far_deadlines() -> None:
    for work in WORKS.values():
        dues, renewed, order = timer_designs._plan(work, 500)
        assert all(work.first <= due < work.last for due in dues)
        assert all(
            due < later <= due + timer_designs.RENEWAL_TICKS_MAX for due, later in zip(dues, renewed, strict=True)
        )
        assert sorted(order) == list(range(500)) != list(order)
        assert (list(dues) == sorted(dues)) == work.in_order


# The bench ------------------------------------------------------------------------------------------------------------


def test_measurement_in_a_process_prints_its_figures() -> None:
    result = run_once(["-m", "callboard.bench.timer_designs", "wheel", "near", "20"], "the wheel", 60.0)
    assert set(result) >= TIMED


def test_bench_timers_prints_all_designs_and_targets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each design is measured with each kind of timers, which raises unless all expire at their tick."""
    monkeypatch.setattr(harness, "run_once", run_in_this_process)
    file = tmp_path / "timers.json"
    assert bench_main(["timers", "--timers", "100", "--rounds", "1", "--output", str(file)]) == 0
    output = capsys.readouterr().out
    assert all(label in output for label in LABELS.values())
    assert "worst tick, at 100 timers (the target is for 1,000,000)" in output
    result = json.loads(file.read_text())
    assert (result["timers"], result["week_timers"], result["rounds"]) == (100, 10, 1)
    rows = {(row["work"], row["design"]): row for row in result["rows"]}
    assert set(rows) == {(work, design) for work, designs in DESIGNS_OF.items() for design in designs}
    assert rows["near", "wheel"]["x_wheel"]["insert_ns"] == 1
    assert rows["near", "objects"]["own_bytes"] is None
    for (work, design), row in rows.items():
        if work != EMPTY and design != OBJECTS:
            assert set(row["figures"]) >= {*TIMED, "expire_ns", "worst_ms", "wake_ups", "bytes"}
            assert all(row["figures"][name] > 0 for name in TIMED)


def test_quick_is_one_round_with_fewer_timers() -> None:
    options = _options(["--quick"])
    assert options.rounds == 1
    assert options.timers < AIM_TIMERS
    assert _options(["--quick", "--timers", "7"]).timers == 7


@pytest.mark.parametrize("arguments", [["--timers", "0"], ["--rounds", "-1"]])
def test_invalid_options_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        bench_main(["timers", *arguments])
    assert f"{arguments[0]} {arguments[1]}: expected at least 1" in capsys.readouterr().err


def test_aims_show_measured_values() -> None:
    rows = [Row(work, "wheel", {"worst_ms": 3.21}, {}, 61.4, None) for work in ("near", "hour")]
    (worst, *_), *_, (_, aim, measured) = _aims(_options([]), rows)
    assert worst == "worst tick, at 1,000,000 timers"
    assert (aim, measured) == (f"<= {BYTES_AIM} B", "61 B")
    assert _aims(_options([]), rows)[0][1:] == [f"< {WORST_MS_AIM:g} ms", "3.21 ms"]


def test_failed_child_process_ends_bench_timers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_arguments: Any) -> Any:
        raise BenchError("the wheel came off")

    monkeypatch.setattr("callboard.bench.timers.interleaved", fail)
    assert bench_main(["timers", "--quick"]) == 1
    assert "timers: the wheel came off" in capsys.readouterr().err


# The harness ----------------------------------------------------------------------------------------------------------


def test_interleaved_yields_results_in_order() -> None:
    jobs = {number: ["-c", f"print('{{\"is\": {number}}}')"] for number in (1, 2)}
    assert list(interleaved(jobs, 2, 30.0)) == [(1, {"is": 1}), (2, {"is": 2}), (1, {"is": 1}), (2, {"is": 2})]


def test_run_once_with_failed_child_quotes_its_error() -> None:
    with pytest.raises(BenchError, match=r"the child ended with exit code 3(.|\n)*no luck"):
        run_once(["-c", "import sys; print('no luck', file=sys.stderr); sys.exit(3)"], "the child", 30.0)


def test_ratios_are_computed_within_rounds() -> None:
    """The last round was three times as slow, which does not affect the ratio."""
    assert ratios([20.0, 22.0, 60.0], [10.0, 10.0, 30.0]).median == 2.0
