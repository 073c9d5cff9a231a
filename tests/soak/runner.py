"""Runs proofs on several processes and saves their progress after each chunk.

Not in ``__main__``: spawned processes cannot import functions from there.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Mapping
from functools import partial

from .progress import Progress
from .proofs import Proof

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
