"""``python -m soak [PROOF ...] [--minutes N]``: run the long proofs on all processors, for ``make soak``.

Progress is saved after each chunk of seeds, so a run can be interrupted at any time and resumes there. Failed seeds are
printed with the command that repeats them. Exit code 1 if any seed has failed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from .progress import Progress, current_commit
from .proofs import PROOFS, ROOT, Proof

PROGRESS_FILE = Path(__file__).with_name("progress.json")
SLICE_S = 60.0
"""Proofs take turns, so that a short run advances each of them."""


def run_chunk(proof: Proof, seeds: range) -> tuple[range, dict[int, str]]:
    """Run some seeds; returns the failures by seed."""
    failures = {seed: failure for seed in seeds if (failure := proof.run(seed)) is not None}
    return seeds, failures


def chunks(proof: Proof, first_seed: int) -> Iterator[range]:
    for start in range(first_seed, proof.seeds, proof.chunk):
        yield range(start, min(start + proof.chunk, proof.seeds))


def advance(name: str, proof: Proof, progress: Progress, commit: str, until_s: float, processes: int) -> None:
    """Run chunks of one proof until it is complete or ``until_s`` (monotonic) has passed."""
    remaining = list(chunks(proof, progress.seeds_done(name)))
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for seeds, failures in pool.imap(partial(run_chunk, proof), remaining):
            progress.add(name, commit, seeds, failures)
            for seed, text in failures.items():
                print(f"{name}: seed {seed} failed: {text[:300]}\n  {proof.repeat.format(seed=seed)}", flush=True)
            if time.monotonic() >= until_s:
                return


def soak(
    proofs: Mapping[str, Proof], progress: Progress, commit: str, seconds: float, processes: int | None = None
) -> int:
    """Run proofs in turns until all are complete or ``seconds`` have passed; returns the number of failed seeds."""
    end_s = time.monotonic() + seconds
    processes = processes or multiprocessing.cpu_count()
    while time.monotonic() < end_s:
        incomplete = [name for name, proof in proofs.items() if progress.seeds_done(name) < proof.seeds]
        if not incomplete:
            break
        for name in incomplete:
            advance(name, proofs[name], progress, commit, min(end_s, time.monotonic() + SLICE_S), processes)
            print(f"{name}: {progress.seeds_done(name):,} of {proofs[name].seeds:,} seeds", flush=True)
    return sum(len(progress.failures(name)) for name in proofs)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("proofs", nargs="*", metavar="PROOF", help=f"by default all: {', '.join(PROOFS)}")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after so many minutes")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.proofs if name not in PROOFS]
    if unknown:
        parser.error(f"unknown proof {unknown[0]!r}; expected one of {', '.join(PROOFS)}")
    selected = {name: PROOFS[name] for name in options.proofs or PROOFS}
    progress = Progress(PROGRESS_FILE)
    try:
        failed = soak(selected, progress, current_commit(ROOT), options.minutes * 60)
    except KeyboardInterrupt:
        print("interrupted; the next run resumes here")
        return 130
    for name in selected:
        for seed, text in progress.failures(name).items():
            print(f"{name}: seed {seed} failed: {text[:300]}\n  {PROOFS[name].repeat.format(seed=seed)}")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
