"""Tests of the simulation itself: it finds bugs, is reproducible, and covers all events and scenarios."""

from __future__ import annotations

from functools import cache
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
FOUND_BY = {
    "interval: never synced": 5,
    "work goes on while a member joins": 12,
    "shards that the leader adds are dropped": 53,
    "a refused assignment is used": 2,
    "a refused takeover is not answered": 3,
    "a refused takeover counts": 3,
    "a refused takeover is not reverted": 3,
    "leases count from answers": 3,
    "the next reset is not guarded": 11,
    "expiry ignores open transactions": 2,
    "silence means that nothing is owned": 3,
    "a live static member is replaced": 7,
    "former owners commit": 8,
    "renewed sessions end": 3,
    "answers do not wait for the log": 10,
    "refused records count": 10,
    "given back before work has ended": 3,
    "classic members get all of their targets": 6,
}
"""The first seed that finds a planted bug, unless it is one of the first two. It is tried before all others."""

TIMELINE_SEEDS = (1, 0, *range(2, 60))  # the first two have all events
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
    assert run_mutant(name, QUICK_SEEDS, FOUND_BY.get(name, 0)).seeds is not None


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_bug_can_be_planted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it replaces still exists: the names in the product may have changed."""
    MUTATIONS[name].plant(monkeypatch)


def test_every_mutation_and_scenario_is_run() -> None:
    assert FOUND_BY.keys() <= MUTATIONS.keys()
    assert {mutant.scenario for mutant in MUTATIONS.values()} <= SCENARIOS.keys()
    run = [*test_seeds_apart.NAMES, *test_seeds_groups.NAMES, *test_seeds_log.NAMES]
    assert sorted(run) == sorted(SCENARIOS)


def run_for_timeline(name: str, seed: int) -> list[str]:
    return run_seed(SCENARIOS[name], seed, keeps_timeline=True).timeline


known_timeline = cache(run_for_timeline)
"""Two tests look at the timelines of the same seeds."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_seed_is_reproducible(name: str) -> None:
    """Failures could not be reproduced otherwise."""
    assert known_timeline(name, TIMELINE_SEEDS[0]) == run_for_timeline(name, TIMELINE_SEEDS[0])


def test_timelines_contain_all_events() -> None:
    missing = list(EVENT_TEXTS)
    for seed in TIMELINE_SEEDS:
        for name in SCENARIOS:
            timeline = "\n".join(known_timeline(name, seed)) if missing else ""
            missing = [word for word in missing if word not in timeline]
    assert missing == []


def test_each_release_runs_other_seeds() -> None:
    versions = ["0.1.0", "0.1.1", "0.2.0", "1.0.0", "1.0.1", "1.10.0"]
    first_seeds = [first_seed_of(version) for version in versions]
    assert first_seeds == sorted(first_seeds)
    assert min(later - earlier for earlier, later in pairwise(first_seeds)) >= SEEDS_PER_RELEASE >= RUNS
    assert first_seed_of("1.2.0rc1") == first_seed_of("1.2.0.dev3") == first_seed_of("1.2.0")
