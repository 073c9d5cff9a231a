"""``python -m cluster.model [NAME ...] [--plants] [--states N]``: search the states of the protocol.

Without ``--plants`` no violation may be found. With it, each mistake is planted, and the shortest trace to what it
breaks is printed. Exit code 1 if a search has not found what was expected.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .mistakes import Mistake
from .proof import CASES, run_case
from .search import ALL_STATES, Result
from .spaces import PLANTS, SPACES, search_plant, search_space


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m cluster.model", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"by default all: {', '.join(SPACES)}")
    parser.add_argument("--plants", action="store_true", help="plant mistakes: those named, by default all")
    parser.add_argument("--states", type=int, default=ALL_STATES, metavar="N", help="stop after N states")
    parser.add_argument("--case", type=int, metavar="N", help="repeat a seed of the proof in make soak")
    options = parser.parse_args(arguments)
    if options.case is not None:
        if not 0 <= options.case < len(CASES):
            parser.error(f"unknown case {options.case}; expected 0 to {len(CASES) - 1}")
        return repeat_case(options.case)
    known = [mistake.option for mistake in PLANTS] if options.plants else list(SPACES)
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"unknown name {unknown[0]!r}; expected one of {', '.join(known)}")
    search_one = print_plant if options.plants else print_space
    failures = [name for name in options.names or known if not search_one(name, options.states)]
    return min(len(failures), 1)


def repeat_case(number: int) -> int:
    failure = run_case(number)
    print(failure or "as expected")
    return 1 if failure else 0


def print_space(name: str, max_states: int) -> bool:
    """Whether there was no violation."""
    result = search_space(name, max_states)
    print_result(name, result)
    return not result.violation


def print_plant(name: str, max_states: int) -> bool:
    """Whether there was a violation."""
    mistake = Mistake[name.upper().replace("-", "_")]
    result = search_plant(mistake, max_states)
    print_result(f"{name}: {mistake.value}\n  {PLANTS[mistake].space}", result)
    return bool(result.violation)


def print_result(name: str, result: Result) -> None:
    outcome = "violation" if result.violation else "complete" if result.is_complete else "stopped"
    recoveries = f", {result.recoveries:,} recoveries" if result.recoveries else ""
    print(f"{name}: {result.states:,} states, {result.steps:,} steps, depth {result.depth}{recoveries}: {outcome}")
    if result.violation:
        for number, line in enumerate(result.trace, 1):
            print(f"  {number:2}. {line}")
        print(f"  {result.violation}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
