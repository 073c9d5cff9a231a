"""``simulate(scenario)`` runs a scenario with many seeds. A failing run is shrunk and reported.

    async def scenario(sim: Sim) -> None:
        ...
    simulate(scenario, seeds=1000)

A run depends only on the scenario and its seed, not on the machine's clock, sockets, threads, files or random numbers.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable, Collection, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import structlog

from ...settings.table import Settings
from ..disk.faulty import PowerLoss
from .checkers import Violation
from .history import last_lines
from .loop import VirtualLoop
from .scenario import Scenario, Sim

LIMIT_S = 3600.0
"""A run fails when it takes longer than this, in virtual time."""

LINES_SHOWN = 80
SHRINKING_RUNS = 150
COLLECT_EVERY = 25  # runs; within a run no garbage is collected, because its moment is not reproducible

log = structlog.get_logger()


class SeedResult(NamedTuple):
    """The result of one run. ``faults``: the injected ones, by number."""

    seed: int
    failure: BaseException | None
    faults: dict[int, str]
    timeline: list[str]
    exchanges: int
    virtual_s: float
    callbacks: int


class SimulationReport(NamedTuple):
    """Totals of a simulation without a failure."""

    seeds: int
    seconds: float
    virtual_s: float
    exchanges: int
    faults: int

    def __str__(self) -> str:
        return (
            f"{self.seeds} seeds in {self.seconds:.1f} s ({self.seeds / self.seconds:.0f} a second): {self.exchanges} "
            f"requests, {self.faults} faults, {self.virtual_s / 3600:.1f} h of virtual time"
        )


class SimulationFailed(AssertionError):
    """A seed has failed. The text has the command that repeats it."""


def simulate(
    scenario: Scenario,
    seeds: int = 1000,
    *,
    first_seed: int = 0,
    settings: Settings | None = None,
    limit_s: float = LIMIT_S,
    shrinks: bool = True,
) -> SimulationReport:
    """Run a scenario with ``seeds`` seeds in order. Raises SimulationFailed for the first that fails.

    ``settings``: the coordinator's; ``limit_s``: the limit of one run in virtual seconds.
    """
    if seeds < 1:
        raise ValueError(f"seeds={seeds}: expected 1 or more")
    begun_s = time.monotonic()
    virtual_s, exchanges, faults = 0.0, 0, 0
    for seed in range(first_seed, first_seed + seeds):
        outcome = run_seed(scenario, seed, None, settings, limit_s)
        if outcome.failure is not None:
            raise SimulationFailed(describe_failure(scenario, outcome, settings, limit_s, shrinks)) from outcome.failure
        virtual_s += outcome.virtual_s
        exchanges += outcome.exchanges
        faults += len(outcome.faults)
        if seed % COLLECT_EVERY == 0:
            gc.collect()
    return SimulationReport(seeds, time.monotonic() - begun_s, virtual_s, exchanges, faults)


def run_seed(
    scenario: Scenario,
    seed: int,
    only: Collection[int] | None = None,
    settings: Settings | None = None,
    limit_s: float = LIMIT_S,
    keeps_timeline: bool = False,
) -> SeedResult:
    """Run one seed. ``only``: the numbers of permitted faults; None: all.

    The result has the timeline if the run fails, or with ``keeps_timeline``.
    """
    loop = VirtualLoop(seed)
    with _garbage_collection_disabled():
        asyncio._set_running_loop(loop)
        try:
            sim = Sim(loop, only, settings)
        finally:
            asyncio._set_running_loop(None)
        begun_s = loop.time()
        with _logs_to(sim.history.tell):
            failure = _run_scenario(loop, sim, scenario, limit_s)
            timeline = sim.history.timeline() if keeps_timeline or failure is not None else []
            sim.coordinator.compactions.kill_subprocesses()
            counts = sim.history.exchanges, loop.time() - begun_s, loop.callbacks
            sim.history.listeners.clear()
            loop.end()
    return SeedResult(seed, failure, sim.faults.happened, timeline, *counts)


def _run_scenario(loop: VirtualLoop, sim: Sim, scenario: Scenario, limit_s: float) -> BaseException | None:
    try:
        loop.run_until_complete(sim.run(scenario, limit_s))
    except Exception as error:
        return error
    for context in loop.errors:
        cause: BaseException | None = context.get("exception")
        if not isinstance(cause, PowerLoss):
            return cause or Violation(str(context.get("message")))
    return None


def describe_failure(
    scenario: Scenario,
    outcome: SeedResult,
    settings: Settings | None = None,
    limit_s: float = LIMIT_S,
    shrinks: bool = True,
) -> str:
    """Shrink a failing run, and describe it: the failure, the command that repeats it, faults and timeline."""
    only: Collection[int] | None = None
    head = f"seed {outcome.seed} of {name_of(scenario)}: {type(outcome.failure).__name__}: {outcome.failure}"
    if shrinks:
        seed = outcome.seed
        outcome = shrink(lambda faults: run_seed(scenario, seed, faults, settings, limit_s), outcome)
        only = outcome.faults
    faults = "\n".join(f"  {number}: {text}" for number, text in outcome.faults.items()) or "  (none)"
    shrunk = f", with which it is {outcome.failure}" if shrinks else ""
    return "\n".join(
        (
            head,
            f"repeat it: {command(scenario, outcome.seed, only)}",
            f"its {len(outcome.faults)} faults{shrunk}",
            faults,
            "timeline:",
            last_lines(outcome.timeline, LINES_SHOWN),
        )
    )


def shrink(run_again: Callable[[Collection[int]], SeedResult], failed: SeedResult) -> SeedResult:
    """Remove as many faults as possible while the run still fails. ``run_again`` repeats it with only these faults.

    Halves first, then quarters, down to single faults: a failure that needs two of a hundred takes some thirty runs.
    """
    runs = 0
    size = len(failed.faults)
    while size >= 1 and runs < SHRINKING_RUNS:
        numbers = sorted(failed.faults)
        for start in range(0, len(numbers), size):
            outcome = run_again([*numbers[:start], *numbers[start + size :]])
            runs += 1
            if outcome.failure is not None:
                failed = outcome
                size = min(size, len(failed.faults))
                break
        else:
            size //= 2
    return failed


def name_of(scenario: Scenario) -> str:
    return getattr(scenario, "__qualname__", repr(scenario))


def command(scenario: Scenario, seed: int, only: Collection[int] | None = None) -> str:
    """The command that repeats a run."""
    name, module = name_of(scenario), getattr(scenario, "__module__", "?")
    options = "" if only is None else f" --only {','.join(map(str, sorted(only))) or 0}"
    if "<" in name:
        return f"simulate({name}, seeds=1, first_seed={seed})  # only module-level functions have a command"
    package = "callboard.runtime.testing"
    return f"python -m {package} {module}:{name} {seed}{options}"


@contextmanager
def _garbage_collection_disabled() -> Iterator[None]:
    """Disable garbage collection during a run: it would run finalizers at moments that no seed decides."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Timeline(logging.Handler):
    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(f"log: {record.levelname.lower()}: {record.getMessage()}")


@contextmanager
def _logs_to(tell: Callable[[str], None]) -> Iterator[None]:
    """Add the coordinator's log lines to the timeline."""

    def take(_logger: Any, level: str, event: MutableMapping[str, Any]) -> str:
        fields = " ".join(f"{key}={value!r}" for key, value in event.items() if key not in ("event", "exc_info"))
        tell(f"log: {level}: {event.get('event')} {fields} {event.get('exc_info') or ''}".rstrip())
        raise structlog.DropEvent

    processors = structlog.get_config()["processors"]
    saved_processors = processors.copy()
    processors[:] = [take]
    loggers = [logging.getLogger(name) for name in ("callboard", "pykka", "asyncio")]
    saved_loggers = [(logger, logger.handlers, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [_Timeline(tell)], False
    try:
        yield
    finally:
        processors[:] = saved_processors
        for logger, handlers, propagate in saved_loggers:
            logger.handlers, logger.propagate = handlers, propagate
