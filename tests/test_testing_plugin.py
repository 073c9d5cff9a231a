"""The pytest plugin, in runs of pytest of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import links
import pytest

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 600
PLUGIN = "callboard.runtime.testing.plugin.plugin"
IS_INSTALLED = f"""
from importlib.metadata import entry_points
print(any(entry.value == {PLUGIN!r} for entry in entry_points(group="pytest11")))
"""


@cache
def plugins() -> tuple[str, ...]:
    """What makes pytest load the plugin; nothing where it is installed. Asked there: this process sees other things."""
    printed = start(Path("/"), "-c", IS_INSTALLED)
    return () if printed.strip() == "True" else ("-p", PLUGIN)


def start(folder: Path, *arguments: str) -> str:
    """What a Python of its own prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([links.python_path(), str(HERE)])}
    environment.pop("PYTEST_ADDOPTS", None)
    command = (sys.executable, *arguments)
    found = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return found.stdout + found.stderr


def run(folder: Path, source: str, *options: str) -> str:
    """What pytest prints about a file of tests."""
    (folder / "test_made_up.py").write_text(source)
    return start(folder, "-m", "pytest", "--strict-markers", "-p", "no:cacheprovider", *plugins(), *options)


def test_each_test_has_a_coordinator_of_its_own(tmp_path: Path) -> None:
    source = """
        import pytest

        @pytest.mark.parametrize("turn", [1, 2])
        def test_it(coordinator, kafka_bootstrap, clock, turn):
            assert kafka_bootstrap == coordinator.bootstrap
            assert coordinator.topics() == () and coordinator.groups().groups == ()
            coordinator.create_topic("jobs", 3)
            began = clock.now()
            clock.advance(3600)
            assert 3600 <= clock.now() - began < 3600 + 60
        """
    assert "2 passed" in run(tmp_path, _dedented(source))


def test_the_mark_says_what_it_is_given(tmp_path: Path) -> None:
    source = """
        import pytest

        pytestmark = pytest.mark.callboard(topics={"jobs": 3}, group_max_size=7)

        @pytest.mark.callboard(data=True, topics={"orders": 2})
        def test_it(coordinator, tmp_path):
            assert [(topic.name, len(topic.partitions)) for topic in coordinator.topics()] == [("orders", 2)]
            assert coordinator.settings.group_max_size == 7
            assert coordinator.settings.group_initial_rebalance_delay_ms == 0
            assert (tmp_path / "callboard" / "callboard.json").exists()
        """
    assert "1 passed" in run(tmp_path, _dedented(source))


def test_a_mark_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    source = """
        import pytest

        @pytest.mark.callboard(group_max_syze=7)
        def test_a_name(coordinator): ...

        @pytest.mark.callboard({"jobs": 3})
        def test_without_a_name(coordinator): ...
        """
    printed = run(tmp_path, _dedented(source))
    assert "unknown setting 'group_max_syze'" in printed
    assert "expected names, as in topics={'jobs': 3}" in printed
    assert "2 errors" in printed


FAILING = """
    import socket

    def test_it(coordinator, clock):
        coordinator.faults.fail("Heartbeat", error="REBALANCE_IN_PROGRESS")
        coordinator.reset("workers", {})
        coordinator.create_topic("jobs")
        coordinator.reset("workers", {("jobs", 0): 42})
        clock.advance(45)
        assert False

    def test_that_passes(coordinator):
        coordinator.create_topic("jobs")
    """


def test_a_test_that_fails_shows_its_timeline(tmp_path: Path) -> None:
    printed = run(tmp_path, _dedented(FAILING))
    assert "1 failed, 1 passed" in printed
    assert printed.count("Callboard timeline") == 1
    assert re.search(r"workers +callboard-admin +OffsetCommit, jobs-0@42$", printed, re.MULTILINE)
    assert "clock: moved by 45 s" in printed


def test_timelines_of_tests_that_fail_are_written_as_json(tmp_path: Path) -> None:
    run(tmp_path, _dedented(FAILING), "--callboard-timeline=found")
    [path] = (tmp_path / "found").iterdir()
    assert path.name == "test_made_up.py_test_it.json"
    told = json.loads(path.read_text())
    assert [event["what"] for event in told["events"] if event["kind"] == "clock"] == ["moved by 45 s"]
    assert told["forgotten"] == 0


def test_faults_are_in_the_report_of_a_test_that_passes_too(tmp_path: Path) -> None:
    source = """
        def test_it(coordinator):
            coordinator.faults.restart(crash=True)
            coordinator.faults.delay("SyncGroup", seconds=3)
        """
    assert "1 passed" in run(tmp_path, _dedented(source), "--junitxml=report.xml")
    report = (tmp_path / "report.xml").read_text()
    assert "crash, as by kill -9, and restart, 1 hit" in report
    assert "delay SyncGroup by 3 s, 0 hits" in report


def test_workers_of_xdist_have_coordinators_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    source = """
        import pytest

        @pytest.mark.parametrize("turn", range(6))
        def test_it(coordinator, turn):
            coordinator.create_topic("jobs")
            assert turn != 3
        """
    printed = run(tmp_path, _dedented(source), "-n2")
    assert "1 failed, 5 passed" in printed
    assert "Callboard timeline" in printed, "it comes over from the worker"


def test_a_run_without_the_fixtures_imports_nothing_of_ours(tmp_path: Path) -> None:
    source = """
        import sys

        def test_it():
            testing = "callboard.runtime.testing"
            allowed = {"callboard", "callboard.runtime", testing, f"{testing}.plugin"}
            ours = {name for name in sys.modules if name.partition(".")[0] == "callboard"}
            assert ours - {"callboard.runtime.testing.plugin.plugin"} <= allowed
            assert "pykka" not in sys.modules and "kio" not in sys.modules
        """
    assert "1 passed" in run(tmp_path, _dedented(source))


def _dedented(source: str) -> str:
    lines = source.strip("\n").splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[indent:] for line in lines) + "\n"
