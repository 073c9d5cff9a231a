"""The same measurements with different numbers of cores, each compared with the first."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from callboard.bench.concurrency import compare

RESULTS = "results.json"


class Variant(NamedTuple):
    """``folder``: for the results. ``arguments``: for the measured process."""

    folder: str
    arguments: tuple[str, ...]


def variants(cores: Sequence[int]) -> list[Variant]:
    return [Variant(f"cores-{count}", ("--cores", str(count))) for count in cores]


def sweep(options: argparse.Namespace, run: Callable[[argparse.Namespace, Sequence[str]], int]) -> int:
    """Run each variant in its folder and print how it compares with the first one. Returns the worst exit code.

    ``run`` gets the options and the arguments for the measured process.
    """
    root, done = options.output, list[Path]()
    codes = []
    for variant in variants(options.cores):
        options.output = root / variant.folder
        print(f"\n{variant.folder}:")
        codes.append(run(options, variant.arguments))
        done.append(options.output / RESULTS)
    for results in done[1:]:
        print(f"\n{results.parent.name} (NEW) compared with {done[0].parent.name} (OLD):")
        codes.append(compare.main(done[0], results))
    return max(codes)
