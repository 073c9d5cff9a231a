"""Thousands of lives of the whole coordinator, with networks, disks and members that fail.

``CALLBOARD_SIMULATION_RUNS`` says how many there are, ``CALLBOARD_SIMULATION_SEED`` which seed comes first. A failure
is shrunk, and prints the command that repeats its run with everything that happened in it. The seeds are spread over
some files, because processes that share a test run are given whole files.
"""

from __future__ import annotations

import os

import pytest

from callboard.runtime.testing.simulation.simulate import describe_failure, run_seed

from .scenarios import SCENARIOS

RUNS = int(os.environ.get("CALLBOARD_SIMULATION_RUNS", "2000"))
FIRST_SEED = int(os.environ.get("CALLBOARD_SIMULATION_SEED", "0"))
A_SCENARIO = -(-RUNS // len(SCENARIOS))


def run_all(name: str) -> None:
    """All seeds of a scenario; the first that fails is told."""
    for seed in range(FIRST_SEED, FIRST_SEED + A_SCENARIO):
        outcome = run_seed(SCENARIOS[name], seed)
        if outcome.failure is not None:
            pytest.fail(describe_failure(SCENARIOS[name], outcome))
