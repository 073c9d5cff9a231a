"""Runs proofs on several processes and saves their progress after each chunk.

Not in ``__main__``: spawned processes cannot import functions from there.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial

from .progress import Progress
from .proofs import Proof

SLICE_S = 60.0
"""Proofs take turns, so that a short run advances each of them. The end of a turn stops chunks that have begun."""


Done = tuple[range, dict[int, str]]


def run_chunk(proof: Proof, seeds: range) -> Done:
    """Run some seeds; returns the failures by seed.

    Modules stay, so their objects are frozen: else the garbage collector visits them after each seed.
    """
    gc.collect()
    gc.freeze()
    failures = {seed: failure for seed in seeds if (failure := proof.run(seed)) is not None}
    return seeds, failures


def run_in_process(proof: Proof, seeds: range) -> Done:
    """The same in a process of the pool. If it is ended, it ends the program that it runs (``proofs.run_pytest``)."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        return run_chunk(proof, seeds)
    finally:
        signal.signal(signal.SIGTERM, before)


def chunks(seeds: range, size: int) -> list[range]:
    return [seeds[start : start + size] for start in range(0, len(seeds), size)]


def missing(name: str, proof: Proof, progress: Progress, commit: str) -> range:
    """The seeds that are not done yet. What is measured is measured anew on each commit."""
    done = progress.seeds_done(name)
    counted = progress.seeds_done(name, commit) if proof.is_measured else done
    return range(done, done + max(proof.seeds - counted, 0))


def advance(
    name: str, proof: Proof, progress: Progress, commit: str, seeds: range, until_s: float, processes: int
) -> None:
    """Run chunks of one proof until these seeds are done or ``until_s`` (monotonic) has passed."""
    remaining = chunks(seeds, proof.chunk)
    with ExitStack() as stack:
        run: Callable[[partial[Done], list[range]], Iterator[Done]] = map
        run_seeds = run_chunk
        if not proof.is_measured:
            pool = multiprocessing.get_context("spawn").Pool(processes, initializer=logging.disable)
            run = stack.enter_context(pool).imap
            run_seeds = run_in_process
        for seeds, failures in run(partial(run_seeds, proof), remaining):
            progress.add(name, commit, seeds, failures)
            for seed, text in failures.items():
                print(f"{name}: seed {seed} failed: {text[:300]}\n  {proof.repeat.format(seed=seed)}", flush=True)
            if time.monotonic() >= until_s:
                return


def soak(
    proofs: Mapping[str, Proof],
    progress: Progress,
    commit: str,
    seconds: float,
    processes: int | None = None,
    most_seeds: int | None = None,
) -> int:
    """Run proofs in turns until all are complete or ``seconds`` have passed; returns the number of failed seeds.

    Proofs that this machine cannot run are skipped. ``most_seeds``: of each proof, in this run; None for all.
    """
    obstacles = {name: obstacle for name, proof in proofs.items() if (obstacle := proof.obstacle())}
    for name, obstacle in obstacles.items():
        print(f"{name}: skipped: {obstacle}", flush=True)
    end_s = time.monotonic() + seconds
    processes = processes or multiprocessing.cpu_count()
    ends = {name: missing(name, proof, progress, commit)[:most_seeds].stop for name, proof in proofs.items()}
    while time.monotonic() < end_s:
        incomplete = [name for name in proofs if progress.seeds_done(name) < ends[name] and name not in obstacles]
        if not incomplete:
            break
        for name in incomplete:
            seeds = range(progress.seeds_done(name), ends[name])
            until_s = min(end_s, time.monotonic() + SLICE_S) if len(incomplete) > 1 else end_s
            advance(name, proofs[name], progress, commit, seeds, until_s, processes)
            left = len(missing(name, proofs[name], progress, commit))
            print(f"{name}: {proofs[name].seeds - left:,} of {proofs[name].seeds:,} seeds", flush=True)
    return sum(len(progress.failures(name)) for name in proofs)
