"""The order of the measurements, and an estimate of their duration.

All engines run once in each round, so that changes of the machine's load affect all of them. Each round has its own
order, drawn from the seed, and its own seed for the requests, the same for every engine. Only ratios within a round are
compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

START_S = 0.4  # start and end of a process, with imports
SETUP_S_A_GROUP = 0.0001  # creating and checking a group with its members, measured at 10,000 groups
REPORT_S = 8.0  # plots and page
PATIENCE = 10  # a process hangs if it takes longer than the planned time by this factor
PATIENCE_MIN_S = 30.0


class Case(NamedTuple):
    """A workload with one number of groups."""

    workload: str
    groups: int


class MeasurementStep(NamedTuple):
    """One measurement. ``round`` counts from 1; ``seed`` is that of the requests.

    ``rate``: requests per second of an open loop; 0: a closed loop.
    """

    round: int
    workload: str
    groups: int
    engine: str
    seconds: float
    seed: int
    rate: float = 0

    @property
    def case(self) -> Case:
        return Case(self.workload, self.groups)

    def arguments(self) -> list[str]:
        """The options of the measured process."""
        named = {"engine": self.engine, "workload": self.workload, "groups": self.groups, "seed": self.seed}
        pairs = [(f"--{name}", str(value)) for name, value in named.items()]
        return [argument for pair in pairs for argument in pair] + [
            "--seconds",
            f"{self.seconds:g}",
            "--rate",
            f"{self.rate:g}",
        ]


class Plan(NamedTuple):
    """``steps`` in order. ``left_out``: descriptions of the cases beyond an engine's limit of groups."""

    steps: list[MeasurementStep]
    left_out: list[str]


def make_plan(
    cases: Iterable[Case],
    limits: Mapping[str, int | None],
    rounds: int,
    seconds: float,
    seed: int,
    rate: float = 0,
) -> Plan:
    """The steps for every case: ``rounds`` rounds of every engine in ``limits``.

    ``limits`` gives for each engine the most groups that it can have; None: any number. ``rate``: see
    ``MeasurementStep``.
    """
    chance = Random(seed)
    steps: list[MeasurementStep] = []
    excluded: dict[str, list[str]] = {}
    for case in cases:
        eligible = [engine for engine, limit in limits.items() if limit is None or case.groups <= limit]
        for engine in [engine for engine in limits if engine not in eligible]:
            excluded.setdefault(engine, []).append(f"{case.workload} with {case.groups:,}")
        for number in range(1, rounds + 1):
            order = shuffled(eligible, chance)
            steps += [MeasurementStep(number, *case, engine, seconds, seed + number, rate) for engine in order]
    return Plan(
        steps,
        [f"{name} (at most {limits[name]:,} groups): {', '.join(case_names)}" for name, case_names in excluded.items()],
    )


def shuffled(engines: Sequence[str], chance: Random) -> list[str]:
    return chance.sample(list(engines), len(engines))


def step_duration_s(step: MeasurementStep) -> float:
    """Estimated duration of a measurement in seconds, including its process."""
    return START_S + SETUP_S_A_GROUP * step.groups + step.seconds


def total_duration_s(steps: Iterable[MeasurementStep]) -> float:
    """Estimated duration of a run with its report in seconds."""
    return REPORT_S + sum(step_duration_s(step) for step in steps)


def step_timeout_s(step: MeasurementStep) -> float:
    """The timeout of a measurement in seconds."""
    return PATIENCE_MIN_S + PATIENCE * step_duration_s(step)


def duration(seconds: float) -> str:
    """Format a duration: ``50 s``, ``12 min``, ``1 h 20 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
