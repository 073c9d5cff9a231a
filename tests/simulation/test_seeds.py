"""Thousands of lives of the whole coordinator, with networks, disks and members that fail.

``CALLBOARD_SIMULATION_RUNS`` says how many there are, ``CALLBOARD_SIMULATION_SEED`` which seed comes first. A failure
is shrunk, and prints the command that repeats its run with everything that happened in it.
"""

from __future__ import annotations

import os

import pytest
from mutate import judge

from callboard.runtime.testing.simulate import run_seed, told

from .mutations import MUTATIONS
from .scenarios import SCENARIOS

RUNS = int(os.environ.get("CALLBOARD_SIMULATION_RUNS", "2000"))
FIRST_SEED = int(os.environ.get("CALLBOARD_SIMULATION_SEED", "0"))
CHUNKS = 4  # of each scenario's seeds, so that several processes can share them
A_SCENARIO = -(-RUNS // len(SCENARIOS))
QUICK = ("the journal is not synced", "a commit is lost at a restart", "an old alarm counts", "an abort commits")
QUICK_MEMBERS = ("tokens are not kept", "work goes on while a member joins")
QUICK_SEEDS = 40
WORDS = (
    *(
        "is killed",
        "has lost its power",
        "stops",
        "loses #",
        "REBALANCE_IN_PROGRESS",
        "FENCED_INSTANCE_ID",
        "DeleteGroup",
    ),
    *(
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "EndTransaction",
        "COORDINATOR_NOT_AVAILABLE",
        "compaction",
        "works on",
    ),
)


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_is_wrong(name: str, chunk: int) -> None:
    for seed in range(FIRST_SEED + chunk, FIRST_SEED + A_SCENARIO, CHUNKS):
        outcome = run_seed(SCENARIOS[name], seed)
        if outcome.failure is not None:
            pytest.fail(told(SCENARIOS[name], outcome))


@pytest.mark.parametrize("name", QUICK + QUICK_MEMBERS)
def test_a_planted_mistake_is_found(name: str) -> None:
    """``python tests/mutate.py`` plants all of them."""
    assert judge(name, QUICK_SEEDS).seeds is not None


def test_every_mutant_has_its_scenario() -> None:
    assert {mutant.scenario for mutant in MUTATIONS.values()} <= SCENARIOS.keys()


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_seed_is_one_story(name: str) -> None:
    """Otherwise nobody could look at a failure again."""
    first, second = (run_seed(SCENARIOS[name], 3, tells=True).timeline for _ in range(2))
    assert first == second


def test_among_the_stories_is_all_that_can_happen() -> None:
    everything = "\n".join(
        line
        for scenario in SCENARIOS.values()
        for seed in range(12)
        for line in run_seed(scenario, seed, tells=True).timeline
    )
    assert [word for word in WORDS if word not in everything] == []
