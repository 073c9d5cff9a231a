"""The cluster's protocol under seeds. ``PYTHONPATH=tests python -m cluster SEED`` repeats one."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib

import pytest
from project_paths import ROOT

from .exhaustive.cases import PLANTS
from .rare_mistakes import RARE, SEARCHED, TESTS, is_found_by_test
from .seeds_to_detection import ALL_MISTAKES
from .simulated_cluster import Cluster, simulate
from .violation import Violation

SEEDS = 200
PART = 20
FOUND_WITHIN = 60
"""Seeds within which a planted mistake must be found that is not rare."""
FOUND_BY = {
    "closed partition is kept": 13,
    "dead rounds deleted by name": 7,
    "declared dead too early": 5,
    "manifest replaced blindly": 6,
    "needed rounds deleted": 12,
    "new epoch of an owned partition ignored": 4,
    "no tombstone": 5,
    "reads without lease": 3,
    "round is packed before it is stored": 15,
    "rounds counted after the checkpoint": 13,
    "seals deleted with rounds": 5,
    "tombstone is not looked at": 13,
    "unanswered round counts as stored": 5,
    "watching waits for loads": 22,
}
"""A seed that finds it, if it is not one of the first. What changes the order of operations changes them."""


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_seeds(first: int) -> None:
    for seed in range(first, first + PART):
        simulate(seed)


def test_seeds_of_nodes_that_end_their_earlier_sessions() -> None:
    for seed in range(PART):
        simulate(seed, is_exclusive=True)


def test_seed_in_which_a_round_of_an_earlier_session_has_no_answer_yet() -> None:
    """A partition is released to the session that gives it away, not to that of the round."""
    simulate(3960)


@pytest.mark.parametrize("name", [name for name in ALL_MISTAKES if name not in RARE])
def test_planted_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ALL_MISTAKES[name](monkeypatch)
    with pytest.raises(Violation):
        for seed in (FOUND_BY.get(name, 0), *range(FOUND_WITHIN)):
            simulate(seed)


@pytest.mark.parametrize("name", TESTS)
def test_rare_mistake_is_found_by_its_test(name: str) -> None:
    assert is_found_by_test(name)


@pytest.mark.parametrize("name", SEARCHED)
def test_rare_mistake_is_one_of_the_search(name: str) -> None:
    assert name in PLANTS


def fingerprint(cluster: Cluster) -> int:
    return zlib.crc32(repr((cluster.log, sorted(cluster.store.values.items()))).encode())


def test_seed_is_reproducible_in_another_process() -> None:
    """Also with other hashes of strings, so no set of them decides an order."""
    program = "from cluster.test_cluster_seeds import *; print(fingerprint(simulate(7)))"
    environment = os.environ | {"PYTHONHASHSEED": "4711", "PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(printed.stdout) == fingerprint(simulate(7))
