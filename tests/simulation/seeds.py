"""Runs all seeds of a scenario with the whole coordinator, failing networks, disks and members.

``CALLBOARD_SIMULATION_RUNS`` is the number of runs, ``CALLBOARD_SIMULATION_SEED`` the first seed. A failing run is
shrunk, and its report has the command that repeats it. The seeds are divided among several files, because parallel test
processes share whole files.
"""

from __future__ import annotations

import os

import pytest

from callboard.runtime.testing.simulation.simulate import describe_failure, run_seed

from .scenarios import SCENARIOS

RUNS = int(os.environ.get("CALLBOARD_SIMULATION_RUNS", "500"))
FIRST_SEED = int(os.environ.get("CALLBOARD_SIMULATION_SEED", "0"))
SEEDS_PER_SCENARIO = -(-RUNS // len(SCENARIOS))


def run_all(name: str) -> None:
    """Run all seeds of a scenario. The first failure fails the test."""
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS_PER_SCENARIO):
        outcome = run_seed(SCENARIOS[name], seed)
        if outcome.failure is not None:
            pytest.fail(describe_failure(SCENARIOS[name], outcome))
