"""``python -m callboard.runtime.testing MODULE:SCENARIO SEED [COUNT] [--only 1,2]``: repeats runs of a simulation.

For one seed it prints the timeline; for several it prints those that fail.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time

from .simulation.scenario import Scenario
from .simulation.simulate import SeedResult, name_of, run_seed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m callboard.runtime.testing", description=__doc__)
    parser.add_argument("scenario", help="MODULE:FUNCTION")
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1, help="how many seeds, from this one on")
    parser.add_argument("--only", help="numbers of the faults that may happen; all by default")
    parsed = parser.parse_args(arguments)
    scenario = load_scenario(parsed.scenario)
    only = None if parsed.only is None else [int(number) for number in parsed.only.split(",")]
    return run_seeds(scenario, parsed.seed, parsed.count, only)


def load_scenario(name: str) -> Scenario:
    """The function named by MODULE:FUNCTION. SystemExit when there is none."""
    module, _, function = name.partition(":")
    sys.path.insert(0, "")
    try:
        scenario: Scenario = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise SystemExit(f"{name!r}: {error}; expected MODULE:FUNCTION, as in my_tests:scenario") from error
    return scenario


def run_seeds(scenario: Scenario, seed: int, count: int, only: list[int] | None) -> int:
    """Run the seeds and print the failures. Returns 1 if any failed."""
    begun_s = time.monotonic()
    failed = 0
    for number in range(seed, seed + count):
        outcome = run_seed(scenario, number, only, keeps_timeline=count == 1)
        failed += outcome.failure is not None
        show(scenario, outcome, count == 1)
    print(f"{count} seeds, {failed} failed, {count / (time.monotonic() - begun_s):.1f} seeds/s")
    return min(failed, 1)


def show(scenario: Scenario, outcome: SeedResult, is_alone: bool) -> None:
    if is_alone:
        print("\n".join(outcome.timeline))
    if outcome.failure is not None:
        text = f"{type(outcome.failure).__name__}: {outcome.failure}"
        print(f"seed {outcome.seed} of {name_of(scenario)}: {text}")


if __name__ == "__main__":
    sys.exit(main())
