"""Tests of the simulation itself: it finds bugs, is reproducible, and covers all events and scenarios."""

from __future__ import annotations

from itertools import pairwise

import pytest
from mutate import run_mutant

from callboard.runtime.testing.simulation.simulate import run_seed

from . import test_seeds_apart, test_seeds_groups, test_seeds_log
from .mutations import MUTATIONS
from .mutations_consumer import CONSUMER_MUTATIONS
from .mutations_groups import GROUP_MUTATIONS
from .mutations_mixed import MIXED_MUTATIONS
from .scenarios import SCENARIOS
from .seeds import RUNS, SEEDS_PER_RELEASE, first_seed_of

QUICK = ("the journal is not synced", "a commit is lost at a restart", "an old alarm counts", "an abort commits")
QUICK_LOG = ("a checkpoint does not sync", "interval: never synced", "sleepers are not swept")
QUICK_MEMBERS = (
    *("tokens are not kept", "work goes on while a member joins"),
    "shards that the leader adds are dropped",
)
QUICK_SEEDS = 100
EVENT_TEXTS = (
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
        "COORDINATOR_LOAD_IN_PROGRESS",
        "is deleted",
    ),
)


@pytest.mark.parametrize(
    "name", [*QUICK, *QUICK_LOG, *QUICK_MEMBERS, *GROUP_MUTATIONS, *CONSUMER_MUTATIONS, *MIXED_MUTATIONS]
)
def test_planted_bug_is_found(name: str) -> None:
    """``python tests/mutate.py`` plants all of them."""
    assert run_mutant(name, QUICK_SEEDS).seeds is not None


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_bug_can_be_planted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it replaces still exists: the names in the product may have changed."""
    MUTATIONS[name].plant(monkeypatch)


def test_every_mutation_and_scenario_is_run() -> None:
    assert {mutant.scenario for mutant in MUTATIONS.values()} <= SCENARIOS.keys()
    run = [*test_seeds_apart.NAMES, *test_seeds_groups.NAMES, *test_seeds_log.NAMES]
    assert sorted(run) == sorted(SCENARIOS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_seed_is_reproducible(name: str) -> None:
    """Failures could not be reproduced otherwise."""
    first, second = (run_seed(SCENARIOS[name], 3, keeps_timeline=True).timeline for _ in range(2))
    assert first == second


def test_timelines_contain_all_events() -> None:
    missing = list(EVENT_TEXTS)
    for seed in range(60):
        for scenario in SCENARIOS.values() if missing else ():
            timeline = "\n".join(run_seed(scenario, seed, keeps_timeline=True).timeline)
            missing = [word for word in missing if word not in timeline]
    assert missing == []


def test_each_release_runs_other_seeds() -> None:
    versions = ["0.1.0", "0.1.1", "0.2.0", "1.0.0", "1.0.1", "1.10.0"]
    first_seeds = [first_seed_of(version) for version in versions]
    assert first_seeds == sorted(first_seeds)
    assert min(later - earlier for earlier, later in pairwise(first_seeds)) >= SEEDS_PER_RELEASE >= RUNS
    assert first_seed_of("1.2.0rc1") == first_seed_of("1.2.0.dev3") == first_seed_of("1.2.0")
