"""Engines and workloads of the user's own, the open loop, and the sweep over cores."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lab_made_up import line, made_up_run, step
from lab_made_up import measured as measured_rates
from lab_waiting import measure_until_handled
from project_paths import ROOT

from callboard.bench.concurrency import builds, measured_process, run, sweep
from callboard.bench.concurrency.clients import Client, LoopClientRunner, ResponseSlot, RunState, Schedule
from callboard.bench.concurrency.engines import find_engine
from callboard.bench.concurrency.findings import findings, key_sentences
from callboard.bench.concurrency.results import BASE, read_line, summaries
from callboard.bench.concurrency.workloads import WORKLOADS, find_workload
from callboard.bench.harness import BenchError

PAGE = (ROOT / "docs" / "concurrency.md").read_text()
MEASURE = ("--groups", "6", "--seconds", "0.05", "--members", "3", "--clients", "8")
REQUESTS_MIN = 30


@pytest.fixture(autouse=True)
def _measurements_have_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    measure_until_handled(monkeypatch, REQUESTS_MIN)


@pytest.fixture
def own_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The engine of the page, in the current folder."""
    (source,) = re.findall(r"```python\n(import threading.*?)```", PAGE, re.DOTALL)
    (tmp_path / "one_thread.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return "one_thread:OneThread"


def measured(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert measured_process.main([*MEASURE, *arguments]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_workload_of_the_page_passes_the_oracle(
    capsys: pytest.CaptureFixture[str], own_engine: str, tmp_path: Path
) -> None:
    (source,) = re.findall(r"```python\n(from itertools.*?)```", PAGE, re.DOTALL)
    (tmp_path / "fetches.py").write_text(source)
    result = measured(capsys, "--engine", own_engine, "--workload", "fetches:FETCHES")
    assert result["wrong"] == []
    assert result["requests"] > result["clients"] > 0


@pytest.mark.parametrize("workload", ["heartbeats", "mixed"])
def test_engine_of_the_page_passes_the_oracle(
    capsys: pytest.CaptureFixture[str], own_engine: str, workload: str
) -> None:
    result = measured(capsys, "--engine", own_engine, "--workload", workload)
    assert (result["wrong"], result["engine"]) == ([], own_engine)
    assert find_engine(own_engine).label == "one thread with one queue"


def test_run_measures_own_engine_and_workload(own_engine: str, tmp_path: Path) -> None:
    (tmp_path / "own_load.py").write_text(
        "from callboard.bench.concurrency.workloads import WORKLOADS\n"
        "FEW = WORKLOADS['heartbeats']._replace(label='few groups', groups=(5,))\n"
    )
    arguments = ["--engine", own_engine, "--engines", "lock-group", "--workloads", "hot", "--workload", "own_load:FEW"]
    assert run.main([*arguments, "--seconds", "0.05", "--rounds", "1", "--groups", "5", "--no-html"]) == 0
    results = json.loads((tmp_path / "concurrency-report" / "results.json").read_text())
    assert results["engines"][own_engine]["label"] == "one thread with one queue"
    assert results["workloads"]["own_load:FEW"]["label"] == "few groups"
    assert {(each["step"]["engine"], each["status"]) for each in results["measurements"]} == {
        ("lock-group", "right"),
        (own_engine, "right"),
    }


@pytest.mark.parametrize(
    ("option", "path", "message"),
    [
        ("--engine", "plain", "there is no engine 'plain'; there are: actor-loop, .*, or your own as MODULE:NAME"),
        ("--engine", "no_such:Engine", "bad engine 'no_such:Engine': the module 'no_such' cannot be imported"),
        ("--engine", "json:Engine", "the module 'json' has no 'Engine'"),
        ("--engine", "json:JSONDecoder", "expected a subclass of callboard.bench.concurrency.engines.Engine"),
        ("--engine", "half:Half", "bad engine 'half:Half': expected a class that defines barrier, end, written"),
        ("--engine", "half:Locks", "bad engine 'half:Locks': expected a class that defines lock_for"),
        ("--workload", "json:JSONDecoder", "bad workload .* expected a callboard.bench.concurrency.workloads.Workload"),
    ],
)
def test_invalid_own_code_is_refused(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    path: str,
    message: str,
) -> None:
    (tmp_path / "half.py").write_text(
        "from callboard.bench.concurrency.engines import Engine\n"
        "class Half(Engine):\n    def prepare(self): ...\n    def add_cell(self, cell): ...\n"
        "    def submit(self, request, reply_to): ...\n    def expired(self, cell, names): ...\n"
        "from callboard.bench.concurrency.lock_engines import LockEngine\n"
        "class Locks(LockEngine): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit):
        run.parse([option, path], run.catalogue())
    assert re.search(message, capsys.readouterr().err)


def test_workload_is_found_by_id_and_path() -> None:
    assert find_workload("hot") is WORKLOADS["hot"]
    assert find_workload(f"{__name__}:OWN") is OWN


OWN = WORKLOADS["hot"]._replace(label="mine")


# The open loop --------------------------------------------------------------------------------------------------------


def script(_ledger: object) -> Any:
    yield from ()


def test_requests_of_an_open_loop_are_due_at_fixed_times() -> None:
    """Whatever the times at which the clients were ready for them."""
    request: Any = "a request"
    clients = [Client(script), Client(script)]
    schedule = Schedule(interval_ns=1000, clients=2)
    for client in clients:
        schedule.add(client, request)
    first = [due_ns for due_ns, _, _ in schedule.take_due(2**62)]
    assert first[1] - first[0] == 500, "the clients begin one after another"
    schedule.add(clients[0], request)
    assert list(schedule.take_due(first[0] + 999)) == []
    [(due_ns, client, _)] = schedule.take_due(first[0] + 50_000)
    assert (due_ns, client) == (first[0] + 1000, clients[0]), "late, but due when it was due"
    assert not schedule


def test_time_of_an_open_loop_counts_from_its_first_request() -> None:
    """Not from the construction of its clients, which is before the measured time."""
    request: Any = "a request"
    schedule = Schedule(interval_ns=1000, clients=1)
    began_ns = time.perf_counter_ns()
    schedule.add(Client(script), request)
    [(due_ns, _, _)] = schedule.take_due(2**62)
    assert due_ns >= began_ns


@pytest.mark.parametrize("workload", [name for name in WORKLOADS if name != "heartbeats"])
@pytest.mark.parametrize("engine", ["plain-loop", "lock-group"])
def test_open_loop_of_each_workload_passes_the_oracle(
    capsys: pytest.CaptureFixture[str], engine: str, workload: str
) -> None:
    result = measured(capsys, "--engine", engine, "--workload", workload, "--rate", "2000")
    assert (result["wrong"], result["right"]) == ([], True)


@pytest.mark.parametrize("engine", ["plain-loop", "lock-group"])
def test_open_loop_passes_the_oracle_and_counts_the_delay(capsys: pytest.CaptureFixture[str], engine: str) -> None:
    """At a rate that no engine reaches, nearly all requests are late, and the last ones by nearly the whole run."""
    result = measured(capsys, "--engine", engine, "--workload", "heartbeats", "--rate", "1000000", "--seconds", "0.3")
    assert result["wrong"] == []
    assert result["unsent"] > result["requests"], "the requests that were due and not sent count too"
    assert result["latency_us"]["p50"] > 10_000
    slow = measured(capsys, "--engine", engine, "--workload", "heartbeats", "--rate", "200")
    assert slow["wrong"] == []
    due_s = slow["elapsed_s"] + slow["latency_us"]["max"] / 1e6  # since the first request until the last one was due
    assert slow["requests"] + slow["unsent"] <= 200 * due_s + 8, "one for each client more than the rate"


def test_overdue_requests_are_those_due_by_the_end_and_not_sent() -> None:
    request: Any = "a request"
    waiting, in_flight = Client(script), Client(script)
    schedule = Schedule(interval_ns=1000, clients=2)
    for client in (waiting, in_flight):
        schedule.add(client, request)
    first_ns, second_ns = (due_ns for due_ns, _, _ in schedule.take_due(2**62))
    schedule.add(waiting, request)
    ages = sorted(first_ns + 3000 - due_ns for due_ns in schedule.overdue_ns(first_ns + 3000))
    assert ages == [0, 500, 1000, 1500, 2000], "three of one client, and two of the other one: none is left out"
    assert second_ns - first_ns == 500


def test_unsent_requests_are_counted_when_the_last_response_ends_the_run() -> None:
    """The scripts of a busy engine end with their last responses, before another look at the schedule."""
    run_state = RunState(["group"])
    run_state.interval_ns = 1000
    submitted: list[ResponseSlot] = []
    callbacks: list[Callable[[], object]] = []
    from_threads: list[Callable[[], object]] = []
    loop: Any = SimpleNamespace(call_soon=callbacks.append, call_soon_threadsafe=from_threads.append)
    request: Any = SimpleNamespace(group_id="group")

    def requests(_ledger: object) -> Any:
        while not run_state.over:
            yield request

    runner = LoopClientRunner(run_state, [Client(requests)], lambda _, slot: submitted.append(slot), loop)
    runner.start()
    callbacks.append(from_threads.pop())
    while callbacks:
        callbacks.pop(0)()
    runner.send_due()
    run_state.end_ns = submitted[0].issued_ns + 10_000
    runner.settle((submitted[0], None))
    assert runner.finished.is_set()
    assert list(runner.measured.unsent_ns) == [*range(9000, -1, -1000)]


def test_engine_that_does_not_keep_up_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    measurements = [read_line(step(BASE), line(step(BASE), 100, unsent=800))]
    made_up = made_up_run(measurements)
    run.show(made_up, summaries(made_up))
    text = " ".join(capsys.readouterr().out.split())
    assert "lock-group did not keep up: 80% of the requests that were due were not sent" in text


def test_conclusions_of_an_open_loop_are_about_latency() -> None:
    """All engines that reach the rate have the same number of requests per second."""
    closed = made_up_run([*measured_rates({BASE: [100, 100], "actor-loop": [101, 101]})])
    made_up = closed._replace(options={**closed.options, "rate": 100.0})
    assert any("Fastest" in sentence for sentence in key_sentences(closed, summaries(closed)))
    sentences = key_sentences(made_up, summaries(made_up))
    assert sentences[1:] == ["The lowest p99, of 1 case: actor-loop in 1."]
    titles = [finding.title for finding in findings(made_up, summaries(made_up))]
    assert titles[1:3] == ["Which engine used least CPU", "Latency, memory, fairness, pauses"]


# The sweep ------------------------------------------------------------------------------------------------------------


def test_sweep_runs_each_number_of_cores_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[tuple[Path, tuple[str, ...]]] = []
    compared: list[tuple[Path, Path]] = []

    def measure(options: argparse.Namespace, variant: sweep.Variant) -> int:
        runs.append((options.output, variant.arguments))
        return 0

    def compare(old: Path, new: Path) -> int:
        compared.append((old, new))
        return 1

    monkeypatch.setattr("callboard.bench.concurrency.compare.main", compare)
    assert sweep.sweep(argparse.Namespace(cores=[1, 2, 4], pythons=[], output=tmp_path), measure) == 1
    folders = [tmp_path / f"this-python-cores-{count}" for count in (1, 2, 4)]
    assert runs == [(folder, ("--cores", str(count))) for folder, count in zip(folders, (1, 2, 4), strict=True)]
    files = [folder / "results.json" for folder in folders]
    assert compared == [(files[0], files[1]), (files[0], files[2])]


def test_cores_that_this_process_may_not_use_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.parse(["--cores", "1,4096"], run.catalogue())
    assert re.search(r"--cores 4096: expected at most \d+", capsys.readouterr().err)


def test_sweep_has_each_python_with_each_number_of_cores() -> None:
    found = sweep.variants([1, 2], ["", "/opt/bin/python3.14t"])
    assert [(variant.folder, variant.python, variant.arguments) for variant in found] == [
        ("this-python-cores-1", "", ("--cores", "1")),
        ("this-python-cores-2", "", ("--cores", "2")),
        ("python3.14t-cores-1", "/opt/bin/python3.14t", ("--cores", "1")),
        ("python3.14t-cores-2", "/opt/bin/python3.14t", ("--cores", "2")),
    ]
    assert sweep.variants([], ["python3.14t"]) == [sweep.Variant("python3.14t", "python3.14t", ())]


@pytest.mark.parametrize(("available", "cores"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_doubled_cores_end_with_all(available: int, cores: Sequence[int]) -> None:
    assert builds.doubled_cores(available) == cores


def test_sweep_takes_free_threaded_pythons_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "free_threaded_pythons", lambda: ["python3.14t"])
    options = run.parse(["--sweep"], run.catalogue())
    assert options.pythons == ["", "python3.14t"]
    assert options.cores == builds.doubled_cores(max(options.cores))


def test_free_threaded_pythons_are_those_on_path() -> None:
    assert builds.free_threaded_pythons({"python3.14t": "/bin/python3.14t"}.get) == ["python3.14t"]


def test_builds_are_described_and_a_missing_free_threaded_one_is_named() -> None:
    build: dict[str, Any] = {"implementation": "CPython", "version": "3.99", "free_threaded": False}
    lines = builds.describe_builds({"": build})
    assert lines[0] == f"{sys.executable}: CPython 3.99, with the global interpreter lock"
    assert lines[1].startswith("none of them is free-threaded; --sweep takes those that are on PATH: python3.13t, ")
    assert len(builds.describe_builds({"": {**build, "free_threaded": True}})) == 1
    assert builds.describe_builds({}) == []


def test_check_pythons_describes_this_interpreter() -> None:
    described = builds.check_pythons([builds.THIS_PYTHON])[builds.THIS_PYTHON]
    assert described["version"] == ".".join(map(str, sys.version_info[:3]))


def test_check_pythons_refuses_interpreter_without_callboard() -> None:
    false = shutil.which("false")
    assert false is not None
    with pytest.raises(BenchError, match="cannot run the measurements; install callboard for it"):
        builds.check_pythons([false])


def test_python_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.parse(["--pythons", "python0.1"], run.catalogue())
    assert "found no interpreter 'python0.1'; expected for example python3.13t" in capsys.readouterr().err


def test_measurement_runs_with_the_given_python(tmp_path: Path) -> None:
    """A stand-in for the interpreter prints what it was started with, which is no result."""
    python = tmp_path / "python9t"
    python.write_text('#!/bin/sh\necho "nine" "$1"\n')
    python.chmod(0o755)
    measurement = run.measure_once(step(BASE), ["-m", "x"], timeout_s=60.0, python=str(python))
    assert "expected one line of JSON, got 'nine -m'" in measurement.reasons[0]
