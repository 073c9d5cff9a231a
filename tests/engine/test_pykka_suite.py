"""Pykka's own test suite against our actors: what runs on pykka runs on us.

The suite is taken from pykka's source distribution when the test runs, and is no part of this repository.
``pykka_suite/plugin.py`` makes it use our Actor, our futures and our registry.
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
    said: str  # "passed", or what went wrong
    uses_our_actors: bool


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with pykka's tests; where they cannot be had the tests are skipped, and in CI they fail."""
    try:
        return PYKKA.unpack(tmp_path_factory.mktemp("pykka"), "tests")
    except SourceUnavailable as unavailable:
        if os.environ.get("CI"):
            pytest.fail(f"in CI pykka's own tests are not optional: {unavailable}")
        pytest.skip(str(unavailable))


def run_suite(suite: Path, outcomes: Path, dispatcher: str, *, inside: bool = False) -> list[Outcome]:
    """Run all of it in a process of its own."""
    ours = {
        "PYTHONPATH": os.pathsep.join([str(links.LINKS.parent), str(TESTS_FOLDER)]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        DISPATCHER: dispatcher,
        INSIDE: "1" if inside else "",
        OUTCOMES: str(outcomes),
    }
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | ours
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pykka_suite.plugin", "tests"]
    done = subprocess.run(
        command, cwd=suite, env=environ, capture_output=True, text=True, timeout=RUN_DEADLINE_S, check=False
    )
    assert outcomes.exists(), done.stdout + done.stderr
    return [
        Outcome(re.sub(r"\[.*", "", name).removeprefix("tests/"), said, ours)
        for name, said, ours in json.loads(outcomes.read_text())
    ]


def flat(groups: Iterable[tuple[str, ...]]) -> list[str]:
    return sorted(test for group in groups for test in group)


def test_source_digest_matches_pinned_pykka_version() -> None:
    """Who pins another pykka brings the digest of its source along."""
    pins = (TESTS_FOLDER.parent / "constraints.txt").read_text().splitlines()
    assert f"pykka=={PYKKA.version}" in pins
    assert re.fullmatch("[0-9a-f]{64}", PYKKA.sha256)


@pytest.mark.parametrize("dispatcher", [*THREADS, *LOOPS])
def test_pykka_suite_passes_from_another_thread(suite: Path, tmp_path: Path, dispatcher: str) -> None:
    """All of them, asked from another thread than the actors', as pykka's actors are."""
    outcomes = run_suite(suite, tmp_path / "outcomes", dispatcher)
    assert [one for one in outcomes if one.said != "passed"] == []
    assert len(outcomes) == TESTS
    assert sum(one.uses_our_actors for one in outcomes) == USING_OUR_ACTORS
    others = [one.test for one in outcomes if not one.uses_our_actors]
    assert sorted(others) == flat(NOT_ABOUT_OUR_ACTORS.values())


@pytest.mark.parametrize("loop", LOOPS)
def test_pykka_suite_on_loop_thread_raises_would_deadlock_where_listed(suite: Path, tmp_path: Path, loop: str) -> None:
    """The same tests as callbacks of the loop: those of the table end as it says, at once, and all others pass."""
    outcomes = run_suite(suite, tmp_path / "outcomes", loop, inside=True)
    assert len(outcomes) == TESTS
    failed = {one.test: one.said for one in outcomes if one.said != "passed"}
    assert sorted(failed) == flat(tests for _, _, tests in NOT_ON_THE_LOOPS_THREAD)
    for reason, end, tests in NOT_ON_THE_LOOPS_THREAD:
        for test in tests:
            assert end in failed[test], (reason, test)
