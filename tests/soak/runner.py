"""Runs proofs on several processes and saves their progress after each chunk.

Not in ``__main__``: spawned processes cannot import functions from there.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial

from .progress import Progress
from .proofs import Proof

SLICE_S = 60.0
"""Proofs take turns, so that a short run advances each of them."""


Done = tuple[range, dict[int, str]]


def run_chunk(proof: Proof, seeds: range) -> Done:
    """Run some seeds; returns the failures by seed."""
    failures = {seed: failure for seed in seeds if (failure := proof.run(seed)) is not None}
    return seeds, failures


def chunks(proof: Proof, first_seed: int) -> Iterator[range]:
    for start in range(first_seed, proof.seeds, proof.chunk):
        yield range(start, min(start + proof.chunk, proof.seeds))


def advance(name: str, proof: Proof, progress: Progress, commit: str, until_s: float, processes: int) -> None:
    """Run chunks of one proof until it is complete or ``until_s`` (monotonic) has passed."""
    remaining = list(chunks(proof, progress.seeds_done(name)))
    with ExitStack() as stack:
        run: Callable[[partial[Done], list[range]], Iterator[Done]] = map
        if not proof.is_alone:
            run = stack.enter_context(multiprocessing.get_context("spawn").Pool(processes)).imap
        for seeds, failures in run(partial(run_chunk, proof), remaining):
            progress.add(name, commit, seeds, failures)
            for seed, text in failures.items():
                print(f"{name}: seed {seed} failed: {text[:300]}\n  {proof.repeat.format(seed=seed)}", flush=True)
            if time.monotonic() >= until_s:
                return


def soak(
    proofs: Mapping[str, Proof], progress: Progress, commit: str, seconds: float, processes: int | None = None
) -> int:
    """Run proofs in turns until all are complete or ``seconds`` have passed; returns the number of failed seeds.

    Proofs that this machine cannot run are skipped.
    """
    obstacles = {name: obstacle for name, proof in proofs.items() if (obstacle := proof.obstacle())}
    for name, obstacle in obstacles.items():
        print(f"{name}: skipped: {obstacle}", flush=True)
    end_s = time.monotonic() + seconds
    processes = processes or multiprocessing.cpu_count()
    while time.monotonic() < end_s:
        incomplete = [name for name, proof in proofs.items() if progress.seeds_done(name) < proof.seeds]
        incomplete = [name for name in incomplete if name not in obstacles]
        if not incomplete:
            break
        for name in incomplete:
            advance(name, proofs[name], progress, commit, min(end_s, time.monotonic() + SLICE_S), processes)
            print(f"{name}: {progress.seeds_done(name):,} of {proofs[name].seeds:,} seeds", flush=True)
    return sum(len(progress.failures(name)) for name in proofs)
