"""``python tests/mutate.py [NAME ...]``: plant known bugs, one at a time, and print how the simulation finds them.

The exit code is 1 if a bug is not found within ``SEEDS_MAX`` seeds. NAME: a part of the name of a mutant.
"""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

SEEDS_MAX = 1000

sys.path.insert(0, str(Path(__file__).resolve().parent))


class MutantResult(NamedTuple):
    """``seeds``: the number of seeds until the bug was found; None if it was not. ``finding``: the failure."""

    name: str
    seeds: int | None
    finding: str


def run_mutant(name: str, seeds_max: int = SEEDS_MAX, first_seed: int = 0) -> MutantResult:
    """Plant one mutant, and run its scenario until a seed fails: ``first_seed`` before all others."""
    from simulation.mutations import MUTATIONS
    from simulation.scenarios import SCENARIOS

    from callboard.runtime.testing.simulation.simulate import run_seed

    mutant = MUTATIONS[name]
    with pytest.MonkeyPatch.context() as patch:
        mutant.plant(patch)
        for seed in (first_seed, *range(seeds_max)):
            failure = run_seed(SCENARIOS[mutant.scenario], seed).failure
            if failure is not None:
                return MutantResult(name, seed + 1, f"{mutant.scenario}: {type(failure).__name__}: {failure}")
    return MutantResult(name, None, f"{mutant.scenario}: no failure was found")


def main(arguments: list[str]) -> int:
    from simulation.mutations import MUTATIONS

    names = [name for name in MUTATIONS if not arguments or any(part in name for part in arguments)]
    survivors = 0
    print(f"{'planted bug':46}  seeds  found as")
    with multiprocessing.get_context("spawn").Pool() as pool:
        for name, seeds, finding in pool.imap(run_mutant, names):
            survivors += seeds is None
            print(f"{name:46}  {seeds or 'NONE':>5}  {' '.join(finding.split())[:150]}", flush=True)
    print(f"{len(names)} planted, {len(names) - survivors} found")
    return min(survivors, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
