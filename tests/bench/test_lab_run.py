"""The laboratory's parent process: order of a run, failing child processes, options and files."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab_made_up import ENGINES, KNOWN, line, mixed_run, step

from callboard.bench.concurrency import report
from callboard.bench.concurrency import run as lab
from callboard.bench.concurrency.plan import Case, MeasurementStep, duration, make_plan, total_duration_s
from callboard.bench.concurrency.progress import LineProgress
from callboard.bench.concurrency.results import FAILED, RIGHT, WRONG, Measurement, read_line, summaries
from callboard.bench.harness import BenchError

# A stand-in for the measured process. Its first argument gives the line to print by engine; "die" and "hang" do that.
STAND_IN = """
import json, os, sys, time
told = json.loads(sys.argv[1])
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
engine = options["--engine"]
mine = told.get(engine, {})
if mine == "die":
    sys.exit("the stand-in was told to die")
if mine == "hang":
    time.sleep(600)
if mine == "babble":
    print("not JSON")
    sys.exit()
line = {"engine": engine, "workload": options["--workload"], "groups": int(options["--groups"]), "right": True,
        "requests": 1000, "elapsed_s": 2.0, "throughput": 500.0, "latency_us": {"p50": 10.0, "p99": 90.0},
        "ccdf": [[1, 0.9], [10, 0.5], [90, 0.01]], "python": {"version": "3.99", "free_threaded": True}}
print(json.dumps({**line, **mine}), flush=True)
"""

# The plan -------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 5), st.integers(0, 1000))
def test_plan_runs_every_engine_once_per_round(rounds: int, seed: int) -> None:
    cases = [Case("a", 10), Case("a", 100), Case("b", 1)]
    limits = dict.fromkeys("vwxyz")
    steps = make_plan(cases, limits, rounds, 1.0, seed).steps
    turns = [
        (key, [step.engine for step in round_steps])
        for key, round_steps in groupby(steps, lambda step: (step.case, step.round))
    ]
    assert [key for key, _ in turns] == [(case, number) for case in cases for number in range(1, rounds + 1)]
    assert all(sorted(engines) == sorted(limits) for _, engines in turns)


def test_plan_order_depends_on_round_and_seed() -> None:
    def orders(seed: int) -> list[str]:
        steps = make_plan([Case("a", 1)], dict.fromkeys("vwxyz"), 6, 1.0, seed).steps
        return ["".join(step.engine for step in steps if step.round == number) for number in range(1, 7)]

    assert orders(1) == orders(1) != orders(2)
    assert len(set(orders(1))) > 1


def test_plan_has_one_request_seed_per_round() -> None:
    steps = make_plan([Case("a", 1)], dict.fromkeys("xyz"), 3, 1.0, 9).steps
    seeds = [
        {measurement_step.seed for measurement_step in steps if measurement_step.round == number}
        for number in (1, 2, 3)
    ]
    assert all(len(round_seeds) == 1 for round_seeds in seeds)
    assert len(set.union(*seeds)) == 3


def test_plan_leaves_out_cases_beyond_engine_limit() -> None:
    plan = make_plan([Case("a", 100), Case("a", 5000)], {"small": 2000, "any": None}, 2, 1.0, 1)
    assert {(step.engine, step.groups) for step in plan.steps} == {("small", 100), ("any", 100), ("any", 5000)}
    assert plan.left_out == ["small (at most 2,000 groups): a with 5,000"]


def test_total_duration_grows_with_seconds() -> None:
    short_steps, long_steps = (make_plan([Case("a", 1)], {"x": None}, 3, seconds, 1).steps for seconds in (1.0, 5.0))
    assert total_duration_s(long_steps) - total_duration_s(short_steps) == pytest.approx(12)


@pytest.mark.parametrize(("seconds", "text"), [(51.2, "51 s"), (720, "12 min"), (4800, "1 h 20 min")])
def test_duration_formats_seconds(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# Reading a measured process -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad_line", "error_text"),
    [
        ("hello", "expected one line of JSON, got 'hello'"),
        ("[1]", "expected an object with 'right'"),
        (
            line(step("actor-loop"), 5, engine="lock-group"),
            "expected engine 'actor-loop', the process measured 'lock-group'",
        ),
        (line(step("actor-loop"), 5, groups=11), "expected groups 10, the process measured 11"),
        (line(step("actor-loop"), 5, throughput=math.nan), "no number for throughput"),
        (line(step("actor-loop"), 5, requests="many"), "no number for requests"),
    ],
)
def test_read_line_with_invalid_line_raises(bad_line: str, error_text: str) -> None:
    with pytest.raises(BenchError, match=re.escape(error_text)):
        read_line(step("actor-loop"), bad_line)


def test_read_line_with_invalid_number_gives_none() -> None:
    json_line = line(step("actor-loop"), 5, cpu_s=math.inf, bytes_a_group=True, latency_us={"p50": "x", "p99": 2})
    figures = read_line(step("actor-loop"), json_line).figures
    assert (figures["cpu_s"], figures["bytes_a_group"], figures["p50_us"], figures["p99_us"]) == (None, None, None, 2)


def test_read_line_of_wrong_engine_has_no_figures() -> None:
    measurement = read_line(step("actor-loop"), line(step("actor-loop"), 5, right=False, wrong=["x"]))
    assert (measurement.status, measurement.figures, measurement.ccdf, measurement.reasons) == (WRONG, {}, [], ["x"])


# The parent process ---------------------------------------------------------------------------------------------------


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    path = tmp_path / "stand_in.py"
    path.write_text(STAND_IN)
    return path


def child(stand_in: Path, **responses: object) -> list[str]:
    return [str(stand_in), json.dumps({name.replace("_", "-"): value for name, value in responses.items()})]


def short_run(monkeypatch: pytest.MonkeyPatch, command: list[str], *arguments: str) -> int:
    monkeypatch.setattr(lab, "catalogue", lambda: KNOWN)
    return lab.main([*arguments, "--workloads", "join-one", "--rounds", "2", "--seconds", "0.1"], command)


def test_run_writes_files_and_prints_paths(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    out_folder = tmp_path / "deep" / "out"
    assert short_run(monkeypatch, child(stand_in), "--output", str(out_folder)) == 0
    run = report.load(out_folder / report.JSON_NAME)
    assert len(run.measurements) == run.planned == 2 * len(ENGINES)
    assert {measurement.figures["throughput"] for measurement in run.measurements} == {500}
    assert run.python["free_threaded"] is True
    output = capsys.readouterr().out
    assert str(out_folder / report.HTML_NAME) in output
    assert "8 measurements, about " in output
    assert "[8/8]" in output
    assert "--rounds 2" in run.command


def test_run_continues_after_failed_and_wrong_children(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong_result = {"right": False, "wrong": ["two generations at once"]}
    command = child(stand_in, actor_loop="die", lock_global="babble", actor_threads=wrong_result)
    assert short_run(monkeypatch, command, "--no-html", "--output", str(tmp_path / "out")) == 1
    run = report.load(tmp_path / "out" / report.JSON_NAME)
    statuses = {measurement.step.engine: measurement.status for measurement in run.measurements}
    assert statuses == {"actor-loop": FAILED, "lock-global": FAILED, "actor-threads": WRONG, "lock-group": RIGHT}
    output = capsys.readouterr().out
    assert "the stand-in was told to die" in output
    assert "expected one line of JSON, got 'not JSON'" in output
    assert re.search(r"actor-threads +WRONG", output)
    assert not (tmp_path / "out" / report.HTML_NAME).exists()


def test_measure_once_with_hanging_child_times_out(stand_in: Path) -> None:
    measurement = lab.measure_once(step("actor-loop"), child(stand_in, actor_loop="hang"), timeout_s=0.3)
    assert measurement.status == FAILED
    assert "sent no output in time" in measurement.reasons[0]


def test_spent_budget_ends_run(stand_in: Path) -> None:
    """The clock advances a minute at each call: only the first measurement starts."""
    plan = make_plan([Case("join-one", 1)], dict.fromkeys(ENGINES), 1, 0.1, 1)
    times = iter(range(0, 6000, 60))
    measurements = lab.measurements(
        plan, child(stand_in), LineProgress(plan.steps, time.monotonic), 100.0, lambda: float(next(times))
    )
    assert len(list(measurements)) == 1


def test_remaining_time_scales_with_elapsed_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Four measurements with equal planned durations; the first took ten seconds."""
    steps = [step("actor-loop", number) for number in (1, 2, 3, 4)]
    times = iter((100.0, 110.0))
    lines = LineProgress(steps, lambda: next(times))
    lines.begin(steps[0])
    lines.end(read_line(steps[0], line(steps[0], 500)))
    assert (
        "[1/4] round 1, heartbeats, 10 groups, actor-loop: 500 requests/s (about 30 s left)" in capsys.readouterr().out
    )


def test_interrupt_keeps_finished_measurements(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = lab.measure_once
    made_steps: list[MeasurementStep] = []

    def third_is_interrupted(of: MeasurementStep, command: Sequence[str], timeout_s: float, python: str) -> Measurement:
        made_steps.append(of)
        if len(made_steps) == 3:
            raise KeyboardInterrupt
        return original(of, command, timeout_s, python)

    monkeypatch.setattr(lab, "measure_once", third_is_interrupted)
    assert short_run(monkeypatch, child(stand_in), "--no-html", "--output", str(tmp_path / "out")) == 0
    run = report.load(tmp_path / "out" / report.JSON_NAME)
    assert (len(run.measurements), run.planned) == (2, 8)
    assert "6 of 8 planned measurements were not made" in capsys.readouterr().out


def test_report_from_results_json_equals_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(lab, "catalogue", lambda: KNOWN)
    _, numbers = report.write_numbers(tmp_path, mixed_run())
    assert lab.main(["--results", str(numbers), "--output", str(tmp_path / "again")]) == 1  # an engine was wrong
    assert (tmp_path / "again" / report.HTML_NAME).read_text() == report.html(mixed_run(), summaries(mixed_run()))


def test_run_without_matplotlib_is_refused_before_measuring(
    stand_in: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("callboard.bench.concurrency.plots.find_spec", lambda name: None)
    assert short_run(monkeypatch, child(stand_in)) == 1
    captured = capsys.readouterr()
    assert "pip install 'callboard[bench]'" in captured.err
    assert "[1/8]" not in captured.out


@pytest.mark.parametrize(
    ("arguments", "error_text"),
    [
        (["--engines", "actor-loop,nope"], "there is no engine 'nope'; there are: actor-loop, actor-threads, "),
        (["--workloads", ""], "there is no workload ''; there are: heartbeats, join-one"),
        (["--groups", "10,-1"], "'-1': expected numbers of at least 1, for example 100,1000"),
        (["--groups", "1e3"], "'1e3': expected numbers of at least 1"),
        (["--seconds", "0"], "--seconds 0.0: expected more than 0"),
        (["--seconds", "nan"], "--seconds nan: expected more than 0"),
        (["--rounds", "-2"], "--rounds -2: expected more than 0"),
        (["--seed", "-1"], "--seed -1: expected 0 or more"),
        (["--output", __file__], "found a file, expected a folder"),
    ],
)
def test_invalid_options_are_refused(arguments: list[str], error_text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        lab.parse(arguments, KNOWN)
    assert exit_info.value.code == 2
    assert error_text in re.sub(r"\s+", " ", capsys.readouterr().err)


def test_cases_use_workload_sizes_or_option_groups() -> None:
    def cases(*arguments: str) -> list[tuple[str, int]]:
        return [(case.workload, case.groups) for case in lab.cases(lab.parse(arguments, KNOWN))]

    assert cases() == [("heartbeats", 10), ("heartbeats", 1000), ("join-one", 1)]
    assert cases("--quick") == [("heartbeats", 1000), ("join-one", 1)]
    assert cases("--groups", "77,5") == [("heartbeats", 5), ("heartbeats", 77), ("join-one", 1)]


def test_run_without_measurements_fails(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lab, "catalogue", lambda: KNOWN)
    arguments = ["--engines", "lock-global", "--workloads", "heartbeats", "--groups", "500", "--no-html"]
    assert lab.main([*arguments, "--output", str(tmp_path / "out")], child(stand_in)) == 1
    assert "nothing to run: lock-global (at most 100 groups)" in capsys.readouterr().err


def test_package_imports_no_heavy_modules() -> None:
    """The child process imports it too, also on builds without rich and matplotlib."""
    code = (
        "import sys, callboard.bench.concurrency; print([m for m in ('rich', 'matplotlib', 'kio') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
