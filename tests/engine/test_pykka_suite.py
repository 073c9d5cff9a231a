"""Pykka's own test suite, run against the actors of this project.

The test unpacks the suite from pykka's source distribution; it is not part of this repository.
``pykka_suite/plugin.py`` replaces pykka's actors, futures and registry with those of this project.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import links
import pytest
from actor_system.players import LOOPS, THREADS
from project_paths import TESTS_FOLDER
from pykka_suite.plugin import DISPATCHER, INSIDE, OUTCOMES
from pykka_suite.source import PYKKA
from pykka_suite.table import NOT_ABOUT_OUR_ACTORS, NOT_ON_THE_LOOPS_THREAD, TESTS, USING_OUR_ACTORS
from source_archive import SourceUnavailable

RUN_DEADLINE_S = 600


class Outcome(NamedTuple):
    test: str  # file and function, without the parameters
    result: str  # "passed" or the error
    uses_our_actors: bool


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with pykka's tests. If the source is unavailable the tests are skipped; in CI they fail."""
    try:
        return PYKKA.unpack(tmp_path_factory.mktemp("pykka"), "tests")
    except SourceUnavailable as unavailable:
        if os.environ.get("CI"):
            pytest.fail(f"in CI pykka's own tests are not optional: {unavailable}")
        pytest.skip(str(unavailable))


def run_suite(suite: Path, outcomes: Path, dispatcher: str, *, inside: bool = False) -> list[Outcome]:
    """Run the whole suite in a subprocess."""
    variables = {
        "PYTHONPATH": os.pathsep.join([str(links.LINKS.parent), str(TESTS_FOLDER)]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        DISPATCHER: dispatcher,
        INSIDE: "1" if inside else "",
        OUTCOMES: str(outcomes),
    }
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | variables
    options = ["-q", "--tb=line", "-p", "no:cacheprovider", "-p", "pykka_suite.plugin"]
    command = [sys.executable, "-m", "pytest", *options, "tests"]
    completed = subprocess.run(
        command, cwd=suite, env=environ, capture_output=True, text=True, timeout=RUN_DEADLINE_S, check=False
    )
    assert outcomes.exists(), completed.stdout + completed.stderr
    return [
        Outcome(re.sub(r"\[.*", "", name).removeprefix("tests/"), result, uses_our_actors)
        for name, result, uses_our_actors in json.loads(outcomes.read_text())
    ]


def flat(groups: Iterable[tuple[str, ...]]) -> list[str]:
    return sorted(test for group in groups for test in group)


def test_source_digest_matches_pinned_pykka_version() -> None:
    """A change of the pinned version of pykka needs the digest of its source too."""
    pins = (TESTS_FOLDER.parent / "constraints.txt").read_text().splitlines()
    assert f"pykka=={PYKKA.version}" in pins
    assert re.fullmatch("[0-9a-f]{64}", PYKKA.sha256)


@pytest.mark.parametrize("dispatcher", [*THREADS, *LOOPS])
def test_pykka_suite_passes_from_another_thread(suite: Path, tmp_path: Path, dispatcher: str) -> None:
    """The tests run on another thread than the actors, as with actors of pykka."""
    outcomes = run_suite(suite, tmp_path / "outcomes", dispatcher)
    assert [outcome for outcome in outcomes if outcome.result != "passed"] == []
    assert len(outcomes) == TESTS
    assert sum(outcome.uses_our_actors for outcome in outcomes) == USING_OUR_ACTORS
    others = [outcome.test for outcome in outcomes if not outcome.uses_our_actors]
    assert sorted(others) == flat(NOT_ABOUT_OUR_ACTORS.values())


@pytest.mark.parametrize("loop", LOOPS)
def test_pykka_suite_on_loop_thread_raises_would_deadlock_where_listed(suite: Path, tmp_path: Path, loop: str) -> None:
    """The tests run as callbacks of the loop: those in the table fail as listed there, all others pass."""
    outcomes = run_suite(suite, tmp_path / "outcomes", loop, inside=True)
    assert len(outcomes) == TESTS
    failed = {outcome.test: outcome.result for outcome in outcomes if outcome.result != "passed"}
    assert sorted(failed) == flat(tests for _, _, tests in NOT_ON_THE_LOOPS_THREAD)
    for reason, error, tests in NOT_ON_THE_LOOPS_THREAD:
        for test in tests:
            assert error in failed[test], (reason, test)
