"""``python -m simulation.nightly [--seeds N] [--state FILE]``: a million seeds on all processors (``make nightly``).

Finished chunks are stored in a file, so an interrupted run can be resumed. Failing seeds are stored there too, and are
printed with the command that repeats them; the exit code is then 1.
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
    """Run one chunk of seeds. Returns its number and its failures."""
    from callboard.runtime.testing.simulation.simulate import run_seed

    from .scenarios import scenario_of_seed

    failures: Failures = []
    for seed in range(number * CHUNK, (number + 1) * CHUNK):
        failure = run_seed(scenario_of_seed, seed).failure
        if failure is not None:
            failures.append((seed, f"{type(failure).__name__}: {failure}"))
    return number, failures


class State:
    """The finished chunks and the failures, stored in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        content = json.loads(path.read_text()) if path.exists() else {"done": [], "failures": []}
        self.done: set[int] = set(content["done"])
        self.failures: Failures = [(seed, text) for seed, text in content["failures"]]

    def save(self) -> None:
        temporary = self._path.with_suffix(".new")
        temporary.write_text(json.dumps({"done": sorted(self.done), "failures": self.failures}))
        temporary.replace(self._path)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation.nightly", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--state", type=Path, default=Path("build/nightly.json"))
    parsed = parser.parse_args(arguments)
    parsed.state.parent.mkdir(parents=True, exist_ok=True)
    state = State(parsed.state)
    remaining = [number for number in range(-(-parsed.seeds // CHUNK)) if number not in state.done]
    run(remaining, state)
    for seed, text in state.failures:
        print(f"seed {seed}: {text[:300]}\n  PYTHONPATH=tests python -m simulation {seed}")
    print(f"{len(state.done) * CHUNK} seeds, {len(state.failures)} failed; {parsed.state}")
    return min(len(state.failures), 1)


def run(remaining: list[int], state: State) -> None:
    started_s = printed_s = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(maxtasksperchild=20) as pool:
        for count, (number, failures) in enumerate(pool.imap_unordered(chunk_of, remaining), start=1):
            state.done.add(number)
            state.failures += failures
            state.save()
            now_s = time.monotonic()
            if failures or now_s - printed_s > MINUTE_S:
                printed_s = now_s
                rate = count * CHUNK / (now_s - started_s)
                print(f"{count} of {len(remaining)} chunks, {rate:.0f} seeds/s, failed: {failures}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
