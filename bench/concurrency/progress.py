"""Progress of a run: a bar with the remaining time on a terminal, else a line for each measurement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from callboard.bench.concurrency.plan import MeasurementStep, duration, step_duration_s
from callboard.bench.concurrency.results import RIGHT, Measurement
from callboard.bench.concurrency.styles import count, rate


class ProgressDisplay(Protocol):
    """Called before and after every measurement."""

    def begin(self, step: MeasurementStep) -> None: ...
    def end(self, measurement: Measurement) -> None: ...


class LineProgress:
    """A line for each measurement: for files, pipes and continuous integration.

    The remaining time is the planned time, scaled by the actual duration of the measurements so far.
    """

    def __init__(self, steps: Sequence[MeasurementStep], now_s: Callable[[], float]) -> None:
        self._count = len(steps)
        self._all_s = sum(step_duration_s(step) for step in steps)
        self._planned_s = 0.0  # for what is done
        self._done = 0
        self._now_s = now_s
        self._began_s = now_s()

    def begin(self, step: MeasurementStep) -> None:
        self._planned_s += step_duration_s(step)

    def end(self, measurement: Measurement) -> None:
        self._done += 1
        slowness = (self._now_s() - self._began_s) / self._planned_s
        remaining = f"about {duration(slowness * (self._all_s - self._planned_s))} left"
        print(
            f"[{self._done}/{self._count}] {name(measurement.step)}: {outcome(measurement)} ({remaining})", flush=True
        )


class TerminalProgress:
    """The bar advances by planned seconds, since measurements with 10,000 groups take longer."""

    def __init__(self, bar: Bar, steps: Sequence[MeasurementStep]) -> None:
        self._bar = bar
        self._count = len(steps)
        self._done = 0
        self._task: TaskID = bar.add_task(
            "", total=sum(step_duration_s(step) for step in steps), done=f"0/{self._count}"
        )

    def begin(self, step: MeasurementStep) -> None:
        self._bar.update(self._task, description=name(step))

    def end(self, measurement: Measurement) -> None:
        self._done += 1
        self._bar.update(self._task, advance=step_duration_s(measurement.step), done=f"{self._done}/{self._count}")
        if measurement.status != RIGHT:
            self._bar.console.print(f"{name(measurement.step)}: {outcome(measurement)}", highlight=False, markup=False)


@contextmanager
def progress(steps: Sequence[MeasurementStep]) -> Iterator[ProgressDisplay]:
    """The display that suits the standard output."""
    console = Console()
    if not console.is_terminal:
        yield LineProgress(steps, monotonic)
        return
    columns = (
        BarColumn(30),
        TextColumn("{task.fields[done]}"),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Bar(*columns, console=console, transient=True) as bar:
        yield TerminalProgress(bar, steps)


def name(step: MeasurementStep) -> str:
    return f"round {step.round}, {step.workload}, {count(step.groups, 'group')}, {step.engine}"


def outcome(measurement: Measurement) -> str:
    if measurement.status == RIGHT:
        return f"{rate(measurement.throughput)} requests/s"
    return f"{measurement.status}: {' / '.join(measurement.reasons)}"
