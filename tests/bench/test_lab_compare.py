"""The laboratory's comparison of two results: ratios, their ranges, what is ranked, and files that do not fit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from lab_made_up import HEARTBEATS, KNOWN, line, made_up_run, measured, step

from callboard.bench.concurrency import compare
from callboard.bench.concurrency import run as lab
from callboard.bench.concurrency.compare import (
    HIGHER,
    LOWER,
    NOT_DECIDED,
    Change,
    ComparedCell,
    compared_cells,
    differences,
)
from callboard.bench.concurrency.plan import Case
from callboard.bench.concurrency.results import BASE, SCHEMA, LabRun, Measurement, failure, read_line

JOINS = Case("join-one", 1)


def rounds(engine: str, rates: Iterable[float], **more: Any) -> list[Measurement]:
    """Right measurements of an engine, with these fields in each line."""
    return [
        read_line(step(engine, number), line(step(engine, number), rate, **more))
        for number, rate in enumerate(rates, 1)
    ]


def run_of(*measurements: list[Measurement]) -> LabRun:
    return made_up_run([measurement for part in measurements for measurement in part])


def only_cell(old: list[Measurement], new: list[Measurement]) -> ComparedCell:
    (cell,) = compared_cells(run_of(old), run_of(new))
    return cell


def write(path: Path, run: LabRun, **fields: Any) -> str:
    path.write_text(json.dumps({**run.to_json(), **fields}))
    return str(path)


def run_command(*paths: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(lab, "catalogue", lambda: KNOWN)
    return lab.main(["--compare", *paths])


# Ratios ---------------------------------------------------------------------------------------------------------------


def test_change_is_ratio_of_medians_with_range_over_all_rounds() -> None:
    change = Change([100, 110, 90], [300, 220, 200])
    assert (change.ratio, change.lowest, change.highest) == (2.2, 200 / 110, 300 / 90)


@pytest.mark.parametrize(
    ("old", "new", "result"),
    [
        ([100, 101, 102], [103, 104, 105], HIGHER),
        ([103, 104, 105], [100, 101, 102], LOWER),
        ([100, 101, 103], [103, 104, 105], NOT_DECIDED),
        ([100, 101, 102], [102, 104, 105], NOT_DECIDED),
        ([102, 104, 105], [100, 101, 102], NOT_DECIDED),
        ([100, 101, 102], [100, 101, 102], NOT_DECIDED),
        ([100, 101], [200, 201, 202], NOT_DECIDED),
        ([100, 101, 102], [200, 201], NOT_DECIDED),
    ],
)
def test_change_is_decided_if_three_rounds_of_each_run_are_apart(
    old: list[float], new: list[float], result: str
) -> None:
    assert Change(old, new).result == result


def test_cell_has_rate_and_cpu_of_each_round() -> None:
    """The made-up requests are twice the rate, so 1.5 s of CPU are 7,500 us per request at a rate of 100."""
    cell = only_cell(measured({BASE: [100, 110, 120]}), measured({BASE: [200, 220, 240]}))
    assert (cell.case, cell.engine, cell.status, cell.starved_in) == (HEARTBEATS, BASE, "", ())
    assert cell.rate == Change([100, 110, 120], [200, 220, 240])
    assert cell.cpu_us is not None
    assert cell.cpu_us.old == pytest.approx([7500, 1.5e6 / 220, 6250])
    assert cell.cpu_us.ratio == pytest.approx(0.5)
    assert (cell.rate_result, cell.cpu_result) == (HIGHER, LOWER)


def test_cells_are_those_of_both_runs_in_order_of_old_run() -> None:
    old = run_of(measured({"actor-threads": [1], BASE: [1], "actor-loop": [1]}), measured({BASE: [1]}, JOINS))
    new = run_of(measured({BASE: [1], "actor-loop": [1], "lock-global": [1]}))
    assert [(cell.case, cell.engine) for cell in compared_cells(old, new)] == [
        (HEARTBEATS, "actor-loop"),
        (HEARTBEATS, BASE),
    ]
    assert compare.unmatched(old, new) == [
        "Only in OLD: actor-threads on heartbeats, 10 groups; lock-group on join-one, 1 group.",
        "Only in NEW: lock-global on heartbeats, 10 groups.",
    ]


# Cells that are not ranked --------------------------------------------------------------------------------------------

STARVED: Mapping[str, Any] = {"cpu_s": 1.5, "others_share": 0.5}


@pytest.mark.parametrize(
    ("old_fields", "new_fields", "mark"),
    [
        (STARVED, {}, "starved in OLD"),
        ({}, STARVED, "starved in NEW"),
        (STARVED, STARVED, "starved in OLD and NEW"),
    ],
)
def test_starved_cell_is_marked_and_its_rate_is_not_ranked(
    old_fields: Mapping[str, Any], new_fields: Mapping[str, Any], mark: str
) -> None:
    cell = only_cell(rounds(BASE, [100, 101, 102], **old_fields), rounds(BASE, [200, 201, 202], **new_fields))
    assert cell.rate_result == mark
    assert cell.rate is not None and cell.rate.result == HIGHER
    assert cell.cpu_result == LOWER
    assert mark in compare.row(cell)
    assert compare.totals([cell]) == [
        "Requests/s of NEW, of 1 comparison: 1 starved.",
        "CPU per request of NEW, of 1 comparison: 1 lower.",
    ]


def test_wrong_and_failed_engines_have_no_ratio() -> None:
    wrong = read_line(step(BASE, 3), line(step(BASE, 3), 5, right=False, wrong=["lost one"]))
    cell = only_cell([failure(step(BASE), "gone")], [*measured({BASE: [100, 101]}), wrong])
    assert (cell.status, cell.rate, cell.cpu_us) == ("OLD FAILED, NEW WRONG", None, None)
    assert compare.row(cell) == [BASE, "OLD FAILED, NEW WRONG", *[""] * (len(compare.COLUMNS) - 2)]
    assert compare.totals([cell]) == []


def test_unknown_cpu_time_is_not_decided() -> None:
    cell = only_cell(rounds(BASE, [100, 101, 102], cpu_s=None), measured({BASE: [200, 201, 202]}))
    assert (cell.rate_result, cell.cpu_us, cell.cpu_result) == (HIGHER, None, NOT_DECIDED)
    assert len(compare.row(cell)) == len(compare.COLUMNS)


def test_rounds_without_completed_requests_have_no_ratio() -> None:
    none_completed = rounds(BASE, [1, 1, 1], throughput=0.0, requests=0)
    cell = only_cell(none_completed, measured({BASE: [200, 201, 202]}))
    assert (cell.rate, cell.cpu_us, cell.rate_result) == (None, None, NOT_DECIDED)


# Files that differ ----------------------------------------------------------------------------------------------------


def test_equal_runs_have_no_differences() -> None:
    run = run_of(measured({BASE: [100]}))
    assert differences(run, run._replace(date="another day", command="another")) == []


@pytest.mark.parametrize(
    ("field", "changes", "warning"),
    [
        ("machine", {"cpus": 8}, "different machines, which the ratios include: cpus 2 (OLD), 8 (NEW)"),
        ("python", {"gil_enabled": False}, "different Python builds, which the ratios include: gil_enabled True (OLD)"),
        ("python", {"extra": "x"}, "different Python builds, which the ratios include: extra None (OLD), 'x' (NEW)"),
        ("options", {"seconds": 2.0}, "different options, which the ratios include: seconds 0.5 (OLD), 2.0 (NEW)"),
    ],
)
def test_difference_of_runs_is_one_warning(field: str, changes: Mapping[str, Any], warning: str) -> None:
    old = run_of(measured({BASE: [100]}))
    changed: Mapping[str, Any] = {field: {**getattr(old, field), **changes}}
    new = old._replace(**changed)
    (found,) = differences(old, new)
    assert found.startswith(f"WARNING: {warning}")


def test_python_version_is_a_difference_of_builds_only() -> None:
    old = run_of(measured({BASE: [100]}))
    new = old._replace(
        machine={**old.machine, "python": "3.13.1"},
        python={**old.python, "version": "3.13.1"},
    )
    (found,) = differences(old, new)
    assert "Python builds" in found


def test_number_of_rounds_is_no_difference() -> None:
    old = run_of(measured({BASE: [100]}))
    assert differences(old, old._replace(options={**old.options, "rounds": 9})) == []


# The command ----------------------------------------------------------------------------------------------------------


def test_compare_prints_files_warnings_tables_and_totals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = run_of(measured({BASE: [100, 101, 102], "actor-loop": [50, 51, 52]}))
    new = run_of(measured({BASE: [100, 101, 102], "actor-loop": [100, 102, 104]}))
    new = new._replace(machine={**new.machine, "cpus": 4})
    paths = [write(tmp_path / "old.json", old), write(tmp_path / "new.json", new)]
    assert run_command(*paths, monkeypatch=monkeypatch) == 0
    output = capsys.readouterr().out
    assert f"OLD is {paths[0]}, of 2025-01-02" in output and f"NEW is {paths[1]}, of 2025-01-02" in output
    assert output.count("WARNING") == 1
    assert "heartbeats, 10 groups" in output
    rows = [row for row in output.splitlines() if row.strip().startswith("actor-loop")]
    assert [" ".join(row.split()) for row in rows] == [
        "actor-loop 51.0 102 2.00 1.92 to 2.08 higher 14,700 7,350 0.50 0.48 to 0.52 lower"
    ]
    assert "Requests/s of NEW, of 2 comparisons: 1 higher, 1 not decided." in output
    assert "CPU per request of NEW, of 2 comparisons: 1 lower, 1 not decided." in output


def test_compare_with_wrong_engine_in_new_run_returns_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = run_of(measured({BASE: [100]}))
    wrong = run_of([read_line(step(BASE), line(step(BASE), 5, right=False, wrong=["lost one"]))])
    paths = write(tmp_path / "right.json", right), write(tmp_path / "wrong.json", wrong)
    assert run_command(*paths, monkeypatch=monkeypatch) == 1
    assert run_command(*reversed(paths), monkeypatch=monkeypatch) == 0


def measurement_fields(**changes: Any) -> dict[str, Any]:
    (measurement,) = measured({BASE: [100]})
    return {"measurements": [{**measurement.to_json(), **changes}]}


@pytest.mark.parametrize(
    ("fields", "error_text"),
    [
        ({"schema": 1}, f"has version 1 of the schema; expected {SCHEMA}"),
        ({"bench": "server"}, "holds the benchmark 'server'"),
        ({"machine": "fast"}, "the field 'machine' is not an object"),
        ({"measurements": [1]}, "is not a results.json of the concurrency laboratory"),
        (measurement_fields(figures={"requests": 1, "elapsed_s": 1}), "no number for throughput"),
        (measurement_fields(figures=[]), "no number for requests, elapsed_s, throughput"),
        (measurement_fields(status="good"), "the status 'good'"),
        (measurement_fields(step={}), "is not a results.json of the concurrency laboratory"),
        (measurement_fields(step={**step(BASE)._asdict(), "groups": "ten"}), "numbers, not 1 and 'ten'"),
        (measurement_fields(reasons=None), "is not a results.json of the concurrency laboratory"),
        ({"measurements": []}, "have no engine and workload in common"),
    ],
)
@pytest.mark.parametrize("is_old", [True, False])
def test_compare_with_invalid_file_returns_2_with_one_line(
    fields: Mapping[str, Any],
    error_text: str,
    is_old: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = run_of(measured({BASE: [100]}))
    paths = write(tmp_path / "valid.json", run), write(tmp_path / "invalid.json", run, **fields)
    assert run_command(*(reversed(paths) if is_old else paths), monkeypatch=monkeypatch) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("concurrency: ") and captured.err.count("\n") == 1
    assert error_text in captured.err and "invalid.json" in captured.err


def test_compare_with_missing_file_returns_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "old.json", run_of(measured({BASE: [100]})))
    assert run_command(path, str(tmp_path / "none.json"), monkeypatch=monkeypatch) == 2
    assert "none.json" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--compare", "a"], ["--compare", "a", "b", "--results", "c"]])
def test_compare_without_two_files_or_with_from_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        lab.parse(arguments, KNOWN)
    assert exit_info.value.code == 2
    assert "--compare" in capsys.readouterr().err
