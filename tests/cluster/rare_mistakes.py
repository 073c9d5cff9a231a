"""Planted mistakes that may need hundreds of seeds, and what finds each: the search, a test, or a known seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

import pytest

from .exhaustive.cases import PLANTS, search_plant
from .seeds_to_detection import ALL_MISTAKES, seeds_to_detection
from .simulated_cluster import simulate
from .violation import Violation

KNOWN_SEEDS: Mapping[str, int] = {
    "floor ignores partitions given away": 282,
    "given to who has left": 6,
    "leaver does not seal": 3,
    "older register applied": 24,
    "register changed by two tasks": 8,
}
"""Where ``make soak`` looks first. What changes the order of operations changes them."""

RACES = "test_session_races"
TESTS: Mapping[str, str] = {
    "leaver seals like the others": f"{RACES}"
    ".test_session_that_deletes_rounds_while_it_leaves_seals_its_wal_above_them",
    "leaver does not seal": f"{RACES}.test_session_that_deletes_rounds_while_it_leaves_seals_its_wal_above_them",
    "collector deletes ahead of its owner": f"{RACES}"
    ".test_checkpoint_that_waits_finds_the_version_taken_that_a_compaction_has_created",
    "compaction deletes what it believes replaced": "test_compaction"
    ".test_version_that_was_deleted_and_is_created_again_does_not_count",
    "floor ignores partitions given away": f"{RACES}.test_rounds_of_a_partition_stay_until_its_last_manifest_stands",
    "collected by an earlier register": "test_garbage"
    ".test_session_that_has_joined_since_the_register_was_read_keeps_its_rounds",
    "given to who has left": f"{RACES}.test_partition_is_given_to_a_node_that_is_there_when_the_register_changes",
    "operator does not wait for the lease": f"{RACES}.test_operator_waits_for_the_lease_of_the_node_that_it_seals",
    "older register applied": f"{RACES}.test_register_that_was_read_before_a_newer_one_is_not_applied_after_it",
    "register changed by two tasks": f"{RACES}.test_read_during_a_change_skips_no_version_of_the_register",
}
"""By mistake, a test that lets the steps happen in the order that does harm."""

SEARCHED = (
    *("segments of another owner", "counter is not read again", "floor read before the tombstone"),
    *("manifest is read again before the checkpoint", "lease counts from the answer"),
    "rounds deleted without a look",
)
"""Those that the search of ``exhaustive/`` finds in seconds."""

RARE = tuple(dict.fromkeys((*KNOWN_SEEDS, *TESTS, *SEARCHED)))
"""A place in it is a seed of ``make soak PROOFS=cluster-mistakes``."""


def is_found_by_seed(name: str) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        ALL_MISTAKES[name](patch)
        try:
            simulate(KNOWN_SEEDS[name])
        except Violation:
            return True
    return False


def is_found_by_test(name: str) -> bool:
    module, function = TESTS[name].split(".")
    run_test: Callable[[], None] = getattr(import_module(f"{__package__}.{module}"), function)
    run_test()
    with pytest.MonkeyPatch.context() as patch:
        ALL_MISTAKES[name](patch)
        try:
            run_test()
        except AssertionError:
            return True
    return False


def run_case(number: int) -> str | None:
    """Whether everything that should find a mistake does. Returns what is not as expected, or None."""
    name = RARE[number]
    if name in SEARCHED and not (name in PLANTS and search_plant(name).violation):
        return f"{name}: not found by the search"
    if name in TESTS and not is_found_by_test(name):
        return f"{name}: not found by {TESTS[name]}"
    if name in KNOWN_SEEDS and not (is_found_by_seed(name) or seeds_to_detection(ALL_MISTAKES[name])):
        return f"{name}: not found by seed {KNOWN_SEEDS[name]}, nor by the first seeds"
    return None
