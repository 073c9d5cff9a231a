"""Tests of the pytest plugin, in separate pytest processes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pytest_helpers import dedented, run


def test_each_test_has_its_own_coordinator(tmp_path: Path) -> None:
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
    assert "2 passed" in run(tmp_path, dedented(source))


def test_mark_sets_coordinator_options(tmp_path: Path) -> None:
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
    assert "1 passed" in run(tmp_path, dedented(source))


def test_invalid_mark_is_refused(tmp_path: Path) -> None:
    source = """
        import pytest

        @pytest.mark.callboard(group_max_syze=7)
        def test_a_name(coordinator): ...

        @pytest.mark.callboard({"jobs": 3})
        def test_without_a_name(coordinator): ...
        """
    printed = run(tmp_path, dedented(source))
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


def test_failed_test_shows_timeline(tmp_path: Path) -> None:
    printed = run(tmp_path, dedented(FAILING))
    assert "1 failed, 1 passed" in printed
    assert printed.count("Callboard timeline") == 1
    assert re.search(r"workers +callboard-admin +OffsetCommit, jobs-0@42 -> NONE$", printed, re.MULTILINE)
    assert "clock: moved by 45 s" in printed


def test_timeline_option_writes_json_of_failed_tests(tmp_path: Path) -> None:
    run(tmp_path, dedented(FAILING), "--callboard-timeline=found")
    [path] = (tmp_path / "found").iterdir()
    assert path.name == "test_made_up.py_test_it.json"
    report = json.loads(path.read_text())
    assert [event["what"] for event in report["events"] if event["kind"] == "clock"] == ["moved by 45 s"]
    assert report["forgotten"] == 0


def test_passed_test_reports_faults(tmp_path: Path) -> None:
    source = """
        def test_it(coordinator):
            coordinator.faults.restart(crash=True)
            coordinator.faults.delay("SyncGroup", seconds=3)
        """
    assert "1 passed" in run(tmp_path, dedented(source), "--junitxml=report.xml")
    report = (tmp_path / "report.xml").read_text()
    assert "crash, as by kill -9, and restart, 1 hit" in report
    assert "delay SyncGroup by 3 s, 0 hits" in report


def test_xdist_workers_have_their_own_coordinators(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    source = """
        import pytest

        @pytest.mark.parametrize("turn", range(6))
        def test_it(coordinator, turn):
            coordinator.create_topic("jobs")
            assert turn != 3
        """
    printed = run(tmp_path, dedented(source), "-n2")
    assert "1 failed, 5 passed" in printed
    assert "Callboard timeline" in printed, "the xdist worker reports it"


def test_run_without_fixtures_imports_only_plugin(tmp_path: Path) -> None:
    source = """
        import sys

        def test_it():
            testing = "callboard.runtime.testing"
            allowed = {"callboard", "callboard.runtime", testing, f"{testing}.plugin"}
            ours = {name for name in sys.modules if name.partition(".")[0] == "callboard"}
            assert ours - {"callboard.runtime.testing.plugin.plugin"} <= allowed
            assert "pykka" not in sys.modules and "kio" not in sys.modules
        """
    assert "1 passed" in run(tmp_path, dedented(source))
