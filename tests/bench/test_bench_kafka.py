"""``callboard bench kafka``: what it computes, how it runs and ends another program, and a short run.

The short run compares with a second Callboard in the place of Kafka. No time is asserted.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from callboard.bench import kafka, kafka_plot
from callboard.bench.__main__ import main as bench_main
from callboard.bench.harness import BenchError, Server
from callboard.bench.kafka_broker import (
    broker,
    checked_java_version,
    java_program,
    kafka_version,
    process_group,
    synced_commits,
)
from callboard.bench.kafka_results import (
    CALLBOARD,
    KAFKA,
    SYNCED_KAFKA,
    Figures,
    Load,
    Ratio,
    cells,
    comparison_json,
    make_comparisons,
    make_rows,
    ratio_cells,
    row_json,
)
from callboard.bench.load_connections import LoadResult
from callboard.bench.load_generator import COMMITS, HEARTBEATS
from callboard.bench.serving import callboard_server
from callboard.bench.wire import Client

DEADLINE_S = 30.0
ONE, MANY = Load(COMMITS, 1), Load(COMMITS, 16)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Callboard that takes Kafka's place."""
    with callboard_server(tmp_path_factory.mktemp("other")) as server:
        yield server


def result(answers: int, cpu_s: float | None) -> LoadResult:
    """A run of two seconds."""
    return LoadResult(answers, 2.0, 0.001, 0.004, cpu_s, 0.1, 2.0, 0.009)


# Figures --------------------------------------------------------------------------------------------------------------


def test_rows_are_medians_sorted_by_load() -> None:
    runs = {
        (CALLBOARD, MANY): [result(100, 0.1)],
        (KAFKA, ONE): [result(2000, 0.4)],
        (CALLBOARD, ONE): [result(1000, 0.1), result(4000, 0.2), result(2000, 0.1)],
        (CALLBOARD, Load(HEARTBEATS, 16)): [result(100, 0.1)],
    }
    rows = make_rows(runs)
    assert [(row.server, row.load) for row in rows] == [
        (CALLBOARD, Load(HEARTBEATS, 16)),
        (KAFKA, ONE),
        (CALLBOARD, ONE),
        (CALLBOARD, MANY),
    ]
    assert rows[2].figures == Figures(1000.0, 1.0, 4.0, 9.0, 50.0)
    assert rows[2].spread == 1.5
    assert [each.requests_per_s for each in rows[2].rounds] == [500.0, 2000.0, 1000.0]
    assert [row.synced for row in rows] == ["", "no, its default", "always", "always"]


def test_ratios_are_those_of_each_round() -> None:
    """Both servers are slow in the second round: the ratios do not notice."""
    rows = make_rows(
        {
            (CALLBOARD, ONE): [result(3000, 0.3), result(300, 0.03), result(2000, 0.2)],
            (KAFKA, ONE): [result(2000, 0.4), result(200, 0.04), result(2000, 0.4)],
            (SYNCED_KAFKA, ONE): [result(1000, 1.0), result(100, 0.1), result(1000, 1.0)],
        }
    )
    unsynced, synced = make_comparisons(rows)
    assert (unsynced.kafka, unsynced.rate) == (KAFKA, Ratio(1.5, 1.0, 1.5))
    assert unsynced.cpu == pytest.approx(Ratio(0.5, 0.5, 0.5))
    assert (synced.kafka, synced.rate) == (SYNCED_KAFKA, Ratio(3.0, 2.0, 3.0))
    assert ratio_cells(unsynced, 50)[:4] == ["commits", "50 x 1", "Kafka", "1.50\n1.00 to 1.50"]
    assert comparison_json(synced)["rate"] == {"median": 3.0, "least": 2.0, "most": 3.0}


@pytest.mark.parametrize("cpu_s", [None, 0.0])
def test_cpu_time_that_is_not_known_has_no_ratio(cpu_s: float | None) -> None:
    rows = make_rows({(CALLBOARD, ONE): [result(3000, 0.3)], (KAFKA, ONE): [result(2000, cpu_s)]})
    [comparison] = make_comparisons(rows)
    assert comparison.cpu is None
    assert "not known" in ratio_cells(comparison, 50)
    assert comparison_json(comparison)["cpu"] is None
    assert (cells(rows[1], 50)[-1] == "not known") is (cpu_s is None)
    assert row_json(rows[1])["cpu_us"] is None or cpu_s == 0.0


def test_plot_has_a_bar_for_each_known_figure(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = make_rows({(CALLBOARD, ONE): [result(3000, 0.3)], (KAFKA, ONE): [result(2000, None)]})
    kafka_plot.save_plot(tmp_path / "plot.png", "title", rows, 50)
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


# A program that is run and ended --------------------------------------------------------------------------------------

FAMILY = """
import subprocess, sys, signal
signal.signal(signal.SIGTERM, signal.SIG_DFL)
child = subprocess.Popen(["sleep", "600"])
print(child.pid, flush=True)
child.wait()
"""


def is_running(pid: int) -> bool:
    """Zombies have ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for_pid(log: Path) -> int:
    deadline = time.monotonic() + DEADLINE_S
    while not (text := log.read_text() if log.exists() else "").endswith("\n"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return int(text)


def assert_ends(pid: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while is_running(pid):
        assert time.monotonic() < deadline, pid
        time.sleep(0.01)


def test_process_group_is_ended_after_an_error(tmp_path: Path) -> None:
    """Also a child of the program."""
    log = tmp_path / "log"
    with pytest.raises(KeyError), process_group([sys.executable, "-c", FAMILY], log) as process:
        child = wait_for_pid(log)
        assert is_running(child)
        raise KeyError
    assert process.returncode == -signal.SIGTERM
    assert_ends(child)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_program_ends_with_a_bench_that_gets_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    program = (
        "import sys; from pathlib import Path; from callboard.bench import kafka, kafka_broker\n"
        f"log = Path({str(tmp_path / 'log')!r})\n"
        "with kafka._ended_by_signals(), kafka_broker.process_group(['sleep', '600'], log) as process:\n"
        "    print(process.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    bench = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with bench:
        assert bench.stdout is not None
        pid = int(bench.stdout.readline())
        assert is_running(pid)
        os.kill(bench.pid, number)
        assert bench.wait(DEADLINE_S) == (128 + number if number == signal.SIGTERM else -number)
    assert_ends(pid)


# A Kafka that cannot be started ---------------------------------------------------------------------------------------


def test_version_is_that_of_the_jar(tmp_path: Path) -> None:
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka_2.13-4.3.1.jar").touch()
    assert kafka_version(tmp_path) == "4.3.1"


def test_folder_without_kafka_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_main(["kafka", "--kafka", str(tmp_path)]) == 1
    assert "is not a Kafka: expected a folder libs with kafka_2.13-VERSION.jar" in capsys.readouterr().err


def made_java(folder: Path, script: str) -> str:
    path = folder / "bin" / "java"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_java_must_be_new_enough(tmp_path: Path) -> None:
    assert checked_java_version(made_java(tmp_path, "echo 'openjdk version \"21.0.2\" 2024' >&2")) == "21.0.2"
    with pytest.raises(BenchError, match=r"is 11\.0\.9; Kafka needs Java 17 or newer"):
        checked_java_version(made_java(tmp_path, "echo 'openjdk version \"11.0.9\" 2020' >&2"))
    with pytest.raises(BenchError, match="is an unknown version; Kafka needs"):
        checked_java_version(made_java(tmp_path, "exit 1"))
    with pytest.raises(BenchError, match="cannot be run"):
        checked_java_version(str(tmp_path / "no-java"))


def test_java_is_that_of_java_home_or_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert java_program(lambda _name: "/usr/bin/java") == "/usr/bin/java"
    with pytest.raises(BenchError, match="there is no 'java' on PATH and no JAVA_HOME"):
        java_program(lambda _name: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_program() == str(tmp_path / "bin" / "java")


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ('*StorageTool*) echo "no such setting"; exit 1', "folder cannot be formatted: no such setting"),
        ('*kafka.Kafka*) echo "port taken"; exit 3', "Kafka ended with exit code 3(.|\n)*port taken"),
    ],
)
def test_broker_that_does_not_start_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, message: str
) -> None:
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka_2.13-4.3.1.jar").touch()
    made_java(tmp_path, f'case "$*" in\n-version) echo \'version "17.0.1"\' ;;\n{step} ;;\nesac')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BenchError, match=message), broker(tmp_path):
        pass
    assert [path.name for path in tmp_path.glob("bench-kafka-*")] == []


# The command ----------------------------------------------------------------------------------------------------------


def test_without_kafka_the_command_says_how_to_get_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_main(["kafka"]) == 2
    error = capsys.readouterr().err
    assert all(text in error for text in ("https://archive.apache.org/", "Java 17", "--bootstrap-server HOST:PORT"))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--kafka", "home", "--bootstrap-server", "127.0.0.1:9092"], "expected one of them"),
        (["--kafka", "home", "--warm-up", "0"], "--warm-up 0.0: expected at least 0.01"),
        (["--kafka", "home", "--workers", "-1"], "--workers -1: expected at least 0"),
    ],
)
def test_bad_options_are_refused(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        bench_main(["kafka", *arguments])
    assert complaint in capsys.readouterr().err


def test_running_server_is_compared(
    other: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The CPU time of a server that was not started here is not known, and its settings are not changed."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "result.json"
    arguments = ["--bootstrap-server", other.address, "--connections", "2", "--warm-up", "0.2"]
    arguments += ["--seconds", "0.2", "--rounds", "1", "--output", str(file)]
    assert bench_main(["kafka", *arguments]) == 0, capsys.readouterr().err
    output = capsys.readouterr().out
    assert "4 last committed offsets were read back" in output
    assert "Measured with" in output
    measured = json.loads(file.read_text())
    assert (measured["bench"], measured["schema"], measured["offsets_compared"]) == ("kafka", 1, 4)
    assert [(row["requests"], row["in_flight"], row["server"]) for row in measured["rows"]] == [
        (*load, server) for load in kafka.LOADS for server in (CALLBOARD, KAFKA)
    ]
    assert all(len(row["rounds"]) == 1 and row["requests_per_s"] > 0 for row in measured["rows"])
    assert all((row["cpu_us"] is None) == (row["server"] == KAFKA) for row in measured["rows"])
    assert [(ratio["requests"], ratio["in_flight"], ratio["cpu"]) for ratio in measured["ratios"]] == [
        (*load, None) for load in kafka.LOADS
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_setting_that_a_server_refuses_is_reported(other: Server) -> None:
    """Callboard has no such setting of that topic."""
    with (
        Client(other.address) as client,
        pytest.raises(BenchError, match=r"flush\.messages of __consumer_offsets cannot be set"),
        synced_commits(client),
    ):
        pytest.fail("the setting was accepted")
