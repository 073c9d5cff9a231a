"""A run says what was not tested, and how to get what it needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import pytest_helpers
from project_paths import ROOT, TESTS_FOLDER

NEEDS_POSTGRES = """
    from cluster.engine_cases import skip_or_fail
    from cluster.postgres_server import missing_postgres

    def test_without_postgres(monkeypatch):
        monkeypatch.setattr("cluster.postgres_server.programs", lambda: None)
        skip_or_fail(missing_postgres())
"""


def test_quiet_run_says_in_one_line_how_to_get_postgresql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the options of setup.cfg: ``make test`` gives only ``-q``."""
    monkeypatch.delenv("CI", raising=False)
    source = pytest_helpers.dedented(NEEDS_POSTGRES)
    output = pytest_helpers.run(tmp_path, source, "-q", "-c", str(ROOT / "setup.cfg"), "test_made_up.py")
    assert "SKIPPED" in output, output
    [line] = [line for line in output.splitlines() if line.startswith("SKIPPED")]
    assert line.endswith("PostgreSQL is not installed: apt-get install postgresql"), output


def test_make_test_leaves_the_summary_to_setup_cfg() -> None:
    """An option ``-r`` of its own would replace that of setup.cfg."""
    commands = [line for line in (ROOT / "Makefile").read_text().splitlines() if "-m pytest" in line]
    assert commands
    assert not any(" -r" in command or " -o" in command for command in commands)


def test_ci_installs_what_tests_ask_for() -> None:
    """In CI a test that would be skipped fails."""
    texts = [path.read_text() for folder in ("cluster", "faults", ".") for path in (TESTS_FOLDER / folder).glob("*.py")]
    wanted = {package for text in texts for package in re.findall(r"apt-get install ([a-z0-9-]+)", text)}
    assert {"chromium", "iproute2", "postgresql"} <= wanted
    assert wanted <= set((ROOT / ".ci" / "run").read_text().split())
