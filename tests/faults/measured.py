"""What campaigns and benchmarks have measured, by commit: ``progress_bars.json`` beside the progress of the proofs.

One run is one line of the file, so that a run adds a line. ``bars`` judges the runs of one commit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "tests" / "soak" / "progress_bars.json"


class Run(NamedTuple):
    """One campaign, or one benchmark. ``values``: in the unit of its bar, with the load average at the end of each.

    ``processors``: of the machine. ``violations``: what was lost, or read though it was old. ``store``: the software of
    a store that somebody named.
    """

    name: str
    commit: str
    values: Sequence[float]
    loads: Sequence[float]
    processors: int
    violations: int = 0
    store: str = ""

    def with_loads(self) -> Iterator[tuple[float, float]]:
        """Each value with the load average for each processor."""
        return ((value, load / self.processors) for value, load in zip(self.values, self.loads, strict=True))


def load_average() -> float:
    """That of the machine, over the last minute."""
    return round(os.getloadavg()[0], 1)


def add_runs(runs: Sequence[Run], file: Path = FILE) -> None:
    lines = [json.dumps(_fields(run)) for run in [*load(file), *runs]]
    new = file.with_suffix(".new")
    new.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    new.replace(file)


def _fields(run: Run) -> Mapping[str, object]:
    """Without a store that nobody named."""
    return {name: value for name, value in run._asdict().items() if name != "store" or value}


def load(file: Path = FILE) -> list[Run]:
    return [Run(**fields) for fields in json.loads(file.read_text())] if file.exists() else []
