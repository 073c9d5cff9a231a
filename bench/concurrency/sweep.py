"""The same measurements with other numbers of cores and other Pythons, each compared with the first."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from callboard.bench.concurrency import compare
from callboard.bench.concurrency.builds import THIS_PYTHON

RESULTS = "results.json"


class Variant(NamedTuple):
    """``folder``: for the results. ``python``: the interpreter. ``arguments``: for the measured process."""

    folder: str
    python: str
    arguments: tuple[str, ...]


def variants(cores: Sequence[int], pythons: Sequence[str]) -> list[Variant]:
    """Each number of cores with each interpreter. Nothing stands for all cores, and for this interpreter."""
    return [
        Variant("-".join([*_folder(python), *([f"cores-{count}"] if count else [])]), python, _arguments(count))
        for python in pythons or [THIS_PYTHON]
        for count in cores or [0]
    ]


def _folder(python: str) -> list[str]:
    return [Path(python).name] if python else ["this-python"]


def _arguments(count: int) -> tuple[str, ...]:
    return ("--cores", str(count)) if count else ()


def sweep(options: argparse.Namespace, run: Callable[[argparse.Namespace, Variant], int]) -> int:
    """Run each variant in its folder and print how it compares with the first one. Returns the worst exit code."""
    root, done = options.output, list[Path]()
    codes = []
    for variant in variants(options.cores, options.pythons):
        options.output = root / variant.folder
        print(f"\n{variant.folder}:")
        codes.append(run(options, variant))
        done.append(options.output / RESULTS)
    for results in done[1:]:
        print(f"\n{results.parent.name} (NEW) compared with {done[0].parent.name} (OLD):")
        codes.append(compare.main(done[0], results))
    return max(codes)
