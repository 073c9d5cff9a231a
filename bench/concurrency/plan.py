"""What is run, in which order, and about how long it takes.

One engine after the other would give the first the cool machine and the last the busy one. So all engines run once,
then all again: a round. Each round has its own order, drawn from the seed, and its own seed for the requests, which is
the same for every engine; so what one round's engines did can be compared, and only the ratio within a round is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

START_S = 0.4  # a process with its imports, and its end: about this on a small virtual machine
SETUP_S_A_GROUP = 0.0001  # making a group with its members, and judging it; measured at 10,000 groups
REPORT_S = 8.0  # plots and page
PATIENCE = 10  # a child that takes so many times what was planned hangs
PATIENCE_MIN_S = 30.0


class Case(NamedTuple):
    """A workload at one number of groups: what engines are compared on."""

    workload: str
    groups: int


class Step(NamedTuple):
    """One measurement. ``round`` counts from 1; ``seed`` is that of the requests."""

    round: int
    workload: str
    groups: int
    engine: str
    seconds: float
    seed: int

    @property
    def case(self) -> Case:
        return Case(self.workload, self.groups)

    def arguments(self) -> list[str]:
        """The options of the measured process."""
        named = {"engine": self.engine, "workload": self.workload, "groups": self.groups, "seed": self.seed}
        pairs = [(f"--{name}", str(value)) for name, value in named.items()]
        return [word for pair in pairs for word in pair] + ["--seconds", f"{self.seconds:g}"]


class Plan(NamedTuple):
    """``steps`` in their order; ``left_out`` says in words what an engine's limit keeps from being run."""

    steps: list[Step]
    left_out: list[str]


def make_plan(cases: Iterable[Case], limits: Mapping[str, int | None], rounds: int, seconds: float, seed: int) -> Plan:
    """The steps for every case: ``rounds`` rounds of every engine in ``limits``.

    ``limits`` gives for each engine the most groups that it can have; None: any number.
    """
    chance = Random(seed)
    steps: list[Step] = []
    beyond: dict[str, list[str]] = {}
    for case in cases:
        able = [engine for engine, most in limits.items() if most is None or case.groups <= most]
        for engine in [engine for engine in limits if engine not in able]:
            beyond.setdefault(engine, []).append(f"{case.workload} with {case.groups:,}")
        for number in range(1, rounds + 1):
            order = shuffled(able, chance)
            steps += [Step(number, *case, engine, seconds, seed + number) for engine in order]
    return Plan(
        steps, [f"{name} (at most {limits[name]:,} groups): {', '.join(where)}" for name, where in beyond.items()]
    )


def shuffled(engines: Sequence[str], chance: Random) -> list[str]:
    return chance.sample(list(engines), len(engines))


def step_s(step: Step) -> float:
    """About how long a measurement takes, in seconds: its load, and the process round it."""
    return START_S + SETUP_S_A_GROUP * step.groups + step.seconds


def total_s(steps: Iterable[Step]) -> float:
    """About how long a run takes with its report, in seconds."""
    return REPORT_S + sum(step_s(step) for step in steps)


def patience_s(step: Step) -> float:
    """After how many seconds a measurement is taken for hung."""
    return PATIENCE_MIN_S + PATIENCE * step_s(step)


def duration(seconds: float) -> str:
    """A time for people: ``50 s``, ``12 min``, ``1 h 20 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
