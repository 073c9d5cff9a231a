"""Two results of the laboratory compared: the figures of the new run relative to those of the old one.

The rounds of two runs do not belong together, so a ratio is that of the medians, and its range goes from the lowest new
round and the highest old one to the opposite. A difference is decided if no round of one run is within the other's
range.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from callboard.bench.concurrency import report
from callboard.bench.concurrency.findings import case_name
from callboard.bench.concurrency.plan import Case
from callboard.bench.concurrency.results import RIGHT, WRONG, LabRun, Summary, summaries
from callboard.bench.concurrency.styles import count, rate, significant, times
from callboard.bench.harness import BenchError, print_table

ROUNDS_MIN = 3
"""Fewer rounds of a run decide nothing: with two each, the ranges of equal engines are apart once in three times."""

HIGHER, LOWER, NOT_DECIDED = "higher", "lower", "not decided"

COMPARED_OPTIONS = ("seconds", "seed", "rate")  # with other values the requests are not the same

COLUMNS = (
    "engine",
    "requests/s\nOLD",
    "NEW",
    "ratio",
    "range",
    "NEW is",
    "CPU us/req\nOLD",
    "NEW",
    "ratio",
    "range",
    "NEW is",
)


class Change(NamedTuple):
    """A figure in each round of the old and of the new run, all above 0."""

    old: Sequence[float]
    new: Sequence[float]

    @property
    def ratio(self) -> float:
        return median(self.new) / median(self.old)

    @property
    def lowest(self) -> float:
        return min(self.new) / max(self.old)

    @property
    def highest(self) -> float:
        return max(self.new) / min(self.old)

    @property
    def result(self) -> str:
        """Whether the new figure is higher or lower."""
        if min(len(self.old), len(self.new)) < ROUNDS_MIN:
            return NOT_DECIDED
        return HIGHER if self.lowest > 1 else LOWER if self.highest < 1 else NOT_DECIDED


class ComparedCell(NamedTuple):
    """An engine on a case in both runs. ``status``: empty, or which run has no correct figures.

    ``starved_in`` names the runs in which other programs took the engine's CPU: its requests per second are not ranked.
    """

    case: Case
    engine: str
    status: str
    starved_in: tuple[str, ...]
    rate: Change | None
    cpu_us: Change | None

    @property
    def rate_result(self) -> str:
        return f"starved in {' and '.join(self.starved_in)}" if self.starved_in else _result(self.rate)

    @property
    def cpu_result(self) -> str:
        return _result(self.cpu_us)


def main(old_path: Path, new_path: Path) -> int:
    """Print the comparison. Returns 0; 1 if an engine was wrong in the new run; 2 if the files cannot be compared."""
    try:
        old, new = report.load(old_path), report.load(new_path)
        cells = compared_cells(old, new)
        if not cells:
            raise BenchError(f"{old_path} and {new_path} have no engine and workload in common")
    except BenchError as error:
        print(f"concurrency: {error}", file=sys.stderr)
        return 2
    for line in [f"OLD is {old_path}, of {old.date}", f"NEW is {new_path}, of {new.date}", *differences(old, new)]:
        print(line)
    for case in dict.fromkeys(cell.case for cell in cells):
        print()
        print_table(case_name(case), COLUMNS, [row(cell) for cell in cells if cell.case == case], (), python="")
    for line in [*totals(cells), *unmatched(old, new)]:
        print(line)
    return 1 if any(measurement.status == WRONG for measurement in new.measurements) else 0


def compared_cells(old: LabRun, new: LabRun) -> list[ComparedCell]:
    """All cases and engines that both runs have, in the order of the old one."""
    old_table, new_table = summaries(old), summaries(new)
    return [
        _compared(old_summary, new_table[case][engine])
        for case, old_summaries in old_table.items()
        for engine, old_summary in old_summaries.items()
        if engine in new_table.get(case, {})
    ]


def _compared(old: Summary, new: Summary) -> ComparedCell:
    named = {"OLD": old, "NEW": new}
    invalid = [f"{name} {summary.status}" for name, summary in named.items() if summary.status != RIGHT]
    return ComparedCell(
        old.case,
        old.engine,
        ", ".join(invalid),
        tuple(name for name, summary in named.items() if summary.is_starved),
        None if invalid else _change(old.rounds.values(), new.rounds.values()),
        None if invalid else _change(_cpu_us(old), _cpu_us(new)),
    )


def _cpu_us(summary: Summary) -> list[float]:
    """Microseconds of CPU per request, in each round."""
    return [1e6 / requests_per_cpu_s for requests_per_cpu_s in summary.cpu_rates.values()]


def _change(old: Iterable[float], new: Iterable[float]) -> Change | None:
    """None if a run has no figure above 0."""
    change = Change(*([figure for figure in figures if figure > 0] for figures in (old, new)))
    return change if change.old and change.new else None


def _result(change: Change | None) -> str:
    return NOT_DECIDED if change is None else change.result


# What differs between the files ---------------------------------------------------------------------------------------


def differences(old: LabRun, new: LabRun) -> list[str]:
    """A line for each difference that makes the ratios say something about more than the engines."""
    machines = [{name: value for name, value in run.machine.items() if name != "python"} for run in (old, new)]
    options = [{name: run.options.get(name) for name in COMPARED_OPTIONS} for run in (old, new)]
    found = {
        "machines": _different(*machines),
        "Python builds": _different(old.python, new.python),
        "options": _different(*options),
    }
    return [f"WARNING: different {what}, which the ratios include: {text}" for what, text in found.items() if text]


def _different(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The fields that differ, with both values; empty if there are none."""
    names = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    return "; ".join(f"{name} {old.get(name)!r} (OLD), {new.get(name)!r} (NEW)" for name in names)


def unmatched(old: LabRun, new: LabRun) -> list[str]:
    """A line for each run that has engines and cases that the other one has not."""
    old_names, new_names = _cell_names(old), _cell_names(new)
    only = {
        "OLD": [name for name in old_names if name not in new_names],
        "NEW": [name for name in new_names if name not in old_names],
    }
    return [f"Only in {run}: {'; '.join(names)}." for run, names in only.items() if names]


def _cell_names(run: LabRun) -> list[str]:
    return [f"{engine} on {case_name(case)}" for case, engines in summaries(run).items() for engine in engines]


# The table ------------------------------------------------------------------------------------------------------------


def row(cell: ComparedCell) -> list[str]:
    """The cell as a row below ``COLUMNS``."""
    if cell.status:
        return [cell.engine, cell.status, *[""] * (len(COLUMNS) - 2)]
    return [
        cell.engine,
        *_figures(cell.rate, rate),
        cell.rate_result,
        *_figures(cell.cpu_us, significant),
        cell.cpu_result,
    ]


def _figures(change: Change | None, write: Callable[[float], str]) -> list[str]:
    if change is None:
        return [""] * 4
    spread = f"{times(change.lowest)} to {times(change.highest)}"
    return [write(median(change.old)), write(median(change.new)), times(change.ratio), spread]


def totals(cells: Sequence[ComparedCell]) -> list[str]:
    """How many cells have each result; cells without figures are not counted."""
    valid = [cell for cell in cells if not cell.status]
    results = {
        "Requests/s": ["starved" if cell.starved_in else cell.rate_result for cell in valid],
        "CPU per request": [cell.cpu_result for cell in valid],
    }
    return [
        f"{figure} of NEW, of {count(len(valid), 'comparison')}: {_counts(counted)}."
        for figure, counted in results.items()
        if valid
    ]


def _counts(results: Iterable[str]) -> str:
    return ", ".join(f"{number:,} {result}" for result, number in sorted(Counter(results).items()))
