"""``python -m simulation.nightly [--seeds N] [--state FILE]``: very many seeds on all processors, for ``make nightly``.

Chunks that are done stand in a file, so a run that was interrupted goes on where it was. Seeds that fail are printed
with the command that repeats them, and stand in the file too; then the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from pathlib import Path

SEEDS = 1_000_000
CHUNK = 500
MINUTE_S = 60.0
Failures = list[tuple[int, str]]


def chunk_of(number: int) -> tuple[int, Failures]:
    """Run one chunk: what failed in it."""
    from callboard.runtime.testing.simulation.simulate import run_seed

    from .scenarios import scenario_of_seed

    failures: Failures = []
    for seed in range(number * CHUNK, (number + 1) * CHUNK):
        failure = run_seed(scenario_of_seed, seed).failure
        if failure is not None:
            failures.append((seed, f"{type(failure).__name__}: {failure}"))
    return number, failures


class State:
    """What is done, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        found = json.loads(path.read_text()) if path.exists() else {"done": [], "failures": []}
        self.done: set[int] = set(found["done"])
        self.failures: Failures = [(seed, text) for seed, text in found["failures"]]

    def save(self) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps({"done": sorted(self.done), "failures": self.failures}))
        fresh.replace(self._path)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation.nightly", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--state", type=Path, default=Path("build/nightly.json"))
    parsed = parser.parse_args(arguments)
    parsed.state.parent.mkdir(parents=True, exist_ok=True)
    state = State(parsed.state)
    left = [number for number in range(-(-parsed.seeds // CHUNK)) if number not in state.done]
    run(left, state)
    for seed, text in state.failures:
        print(f"seed {seed}: {text[:300]}\n  PYTHONPATH=tests python -m simulation {seed}")
    print(f"{len(state.done) * CHUNK} seeds, {len(state.failures)} failed; {parsed.state}")
    return min(len(state.failures), 1)


def run(left: list[int], state: State) -> None:
    begun_s = told_s = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(maxtasksperchild=20) as pool:
        for count, (number, failures) in enumerate(pool.imap_unordered(chunk_of, left), start=1):
            state.done.add(number)
            state.failures += failures
            state.save()
            now_s = time.monotonic()
            if failures or now_s - told_s > MINUTE_S:
                told_s = now_s
                rate = count * CHUNK / (now_s - begun_s)
                print(f"{count} of {len(left)} chunks, {rate:.0f} seeds/s, failed: {failures}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
