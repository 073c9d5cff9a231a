"""How far a run has come: a bar with the remaining time on a terminal, a line a measurement elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from callboard.bench.concurrency.plan import Step, duration, step_s
from callboard.bench.concurrency.results import RIGHT, Measurement
from callboard.bench.concurrency.styles import count, rate


class Progress(Protocol):
    """Is told of every measurement, before and after."""

    def begin(self, step: Step) -> None: ...
    def end(self, measurement: Measurement) -> None: ...


class Lines:
    """A line for each measurement: for files, pipes and continuous integration.

    What is left is what was planned for it, times how much longer than planned the others took until now.
    """

    def __init__(self, steps: Sequence[Step], now_s: Callable[[], float]) -> None:
        self._count = len(steps)
        self._all_s = sum(step_s(step) for step in steps)
        self._planned_s = 0.0  # for what is done
        self._done = 0
        self._now_s = now_s
        self._began_s = now_s()

    def begin(self, step: Step) -> None:
        self._planned_s += step_s(step)

    def end(self, measurement: Measurement) -> None:
        self._done += 1
        slowness = (self._now_s() - self._began_s) / self._planned_s
        left = f"about {duration(slowness * (self._all_s - self._planned_s))} left"
        print(f"[{self._done}/{self._count}] {name(measurement.step)}: {outcome(measurement)} ({left})", flush=True)


class OnTerminal:
    """The bar moves by planned seconds, not by measurements: with 10,000 groups one takes longer."""

    def __init__(self, bar: Bar, steps: Sequence[Step]) -> None:
        self._bar = bar
        self._count = len(steps)
        self._done = 0
        self._task: TaskID = bar.add_task("", total=sum(step_s(step) for step in steps), done=f"0/{self._count}")

    def begin(self, step: Step) -> None:
        self._bar.update(self._task, description=name(step))

    def end(self, measurement: Measurement) -> None:
        self._done += 1
        self._bar.update(self._task, advance=step_s(measurement.step), done=f"{self._done}/{self._count}")
        if measurement.status != RIGHT:
            self._bar.console.print(f"{name(measurement.step)}: {outcome(measurement)}", highlight=False, markup=False)


@contextmanager
def progress(steps: Sequence[Step]) -> Iterator[Progress]:
    """The one that suits the standard output."""
    console = Console()
    if not console.is_terminal:
        yield Lines(steps, monotonic)
        return
    columns = (
        BarColumn(30),
        TextColumn("{task.fields[done]}"),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Bar(*columns, console=console, transient=True) as bar:
        yield OnTerminal(bar, steps)


def name(step: Step) -> str:
    return f"round {step.round}, {step.workload}, {count(step.groups, 'group')}, {step.engine}"


def outcome(measurement: Measurement) -> str:
    if measurement.status == RIGHT:
        return f"{rate(measurement.throughput)} requests/s"
    return f"{measurement.status}: {' / '.join(measurement.reasons)}"
