"""Runs all seeds of a scenario with the whole coordinator, failing networks, disks and members.

``CALLBOARD_SIMULATION_RUNS`` is the number of runs, ``CALLBOARD_SIMULATION_SEED`` the first seed. By default each
release runs other seeds than those before. A failing run is shrunk, and its report has the command that repeats it. The
seeds are divided among several files, because parallel test processes share whole files.
"""

from __future__ import annotations

import os
import re

import pytest

from callboard import __version__
from callboard.runtime.testing.simulation.simulate import describe_failure, run_seed

from .scenarios import SCENARIOS

RUNS = int(os.environ.get("CALLBOARD_SIMULATION_RUNS", "120"))
SEEDS_PER_RELEASE = 1000


def first_seed_of(version: str) -> int:
    """The first seed of a release, from its major, minor and patch number. No two releases share seeds."""
    major, minor, patch = map(int, re.findall(r"\d+", version)[:3])
    return ((major * 1000 + minor) * 1000 + patch) * SEEDS_PER_RELEASE


FIRST_SEED = int(os.environ.get("CALLBOARD_SIMULATION_SEED", first_seed_of(__version__)))
SEEDS_PER_SCENARIO = -(-RUNS // len(SCENARIOS))


def run_all(name: str) -> None:
    """Run all seeds of a scenario. The first failure fails the test."""
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS_PER_SCENARIO):
        outcome = run_seed(SCENARIOS[name], seed)
        if outcome.failure is not None:
            pytest.fail(describe_failure(SCENARIOS[name], outcome))
