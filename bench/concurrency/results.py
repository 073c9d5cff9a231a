"""Results and their statistics: one measurement, the medians over a case's rounds, a whole run.

Missing numbers and NaN are replaced by None when the measured process's line is read, so that no NaN gets into a
median, a file or a plot.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple, Self

from callboard.bench.concurrency.plan import Case, MeasurementStep
from callboard.bench.harness import BenchError, MedianAndSpread, median_or_none, summarise

BASE = "lock-group"  # every ratio is to this engine, in the same round

SCHEMA = 4  # the version of results.json; changed with each change of its fields

STARVED_SHARE = 0.1
"""If other programs used a larger share of the CPUs' time, an engine is starved.

How long its threads waited for a CPU does not tell: with more threads than CPUs they wait for each other.
"""

RIGHT, WRONG, FAILED = "right", "WRONG", "FAILED"

# The path of each figure in the measured process's JSON.
FIGURE_PATHS: dict[str, tuple[str, ...]] = {
    "members_a_group": ("members_a_group",),
    "clients": ("clients",),
    "requests": ("requests",),
    "unsent": ("unsent",),
    "elapsed_s": ("elapsed_s",),
    "throughput": ("throughput",),
    "cpu_s": ("cpu_s",),
    "cpu_wait_s": ("cpu_wait_s",),
    "others_share": ("others_share",),
    "p50_us": ("latency_us", "p50"),
    "p99_us": ("latency_us", "p99"),
    "p999_us": ("latency_us", "p999"),
    "max_us": ("latency_us", "max"),
    "bytes_a_group": ("bytes_a_group",),
    "voluntary_switches": ("context_switches", "voluntary"),
    "involuntary_switches": ("context_switches", "involuntary"),
    "lock_wait_s": ("lock_wait_s",),
    "loop_pause_max_ms": ("loop_pause_max_ms",),
    "jain": ("fairness", "jain"),
    "cold_p99_us": ("fairness", "cold_p99_us"),
    "hot_p99_us": ("fairness", "hot_p99_us"),
}
REQUIRED_FIGURES = ("requests", "elapsed_s", "throughput")

Figures = dict[str, float | None]


class Measurement(NamedTuple):
    """One step's result. ``reasons``: the oracle's findings, or the end of a failed process's output.

    ``histogram``: the latencies, see ``histograms.encoded``; empty without ``--histograms``.
    """

    step: MeasurementStep
    status: str
    figures: Figures
    ccdf: list[tuple[float, float]]
    reasons: list[str]
    python: dict[str, Any]
    histogram: str = ""

    @property
    def throughput(self) -> float:
        """Requests per second of a correct measurement."""
        value = self.figures["throughput"]
        assert value is not None
        return value

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "step": self.step._asdict()}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Raises ValueError, KeyError or TypeError if the fields are not those of a measurement."""
        step, status = MeasurementStep(**fields["step"]), fields["status"]
        if not isinstance(step.round, int) or not isinstance(step.groups, int):
            raise TypeError(f"the round and the groups of a step are numbers, not {step.round!r} and {step.groups!r}")
        if status not in (RIGHT, WRONG, FAILED):
            raise ValueError(f"a measurement has the status {status!r}")
        figures = {name: number(fields["figures"], (name,)) for name in FIGURE_PATHS} if status == RIGHT else {}
        if status == RIGHT and (missing := _missing_figures(figures)):
            raise ValueError(f"a measurement has no number for {', '.join(missing)}")
        ccdf = [(float(latency_us), float(share)) for latency_us, share in fields["ccdf"]]
        reasons = [str(reason) for reason in fields["reasons"]]
        return cls(**{**fields, "step": step, "figures": figures, "ccdf": ccdf, "reasons": reasons})


class LabRun(NamedTuple):
    """Everything about one run of the laboratory; ``engines`` and ``workloads`` describe them, by id."""

    date: str
    command: str
    machine: dict[str, Any]
    python: dict[str, Any]
    options: dict[str, Any]
    engines: dict[str, dict[str, Any]]
    workloads: dict[str, dict[str, Any]]
    planned: int
    left_out: list[str]
    measurements: list[Measurement]

    def to_json(self) -> dict[str, Any]:
        return {
            "bench": "concurrency",
            "schema": SCHEMA,
            **self._asdict(),
            "measurements": [measurement.to_json() for measurement in self.measurements],
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        for name in ("machine", "python", "options", "engines", "workloads"):
            if not isinstance(fields[name], dict):
                raise TypeError(f"the field {name!r} is not an object")
        measurements = [Measurement.from_json(measurement) for measurement in fields["measurements"]]
        return cls(**{name: fields[name] for name in cls._fields if name != "measurements"}, measurements=measurements)


# Reading a measured process's line ------------------------------------------------------------------------------------


def read_line(step: MeasurementStep, line: str) -> Measurement:
    """Parse a measured process's line of JSON. Raises BenchError."""
    try:
        result = json.loads(line)
    except ValueError:
        raise BenchError(f"expected one line of JSON, got {line[:200]!r}") from None
    if not isinstance(result, dict) or not isinstance(result.get("right"), bool):
        raise BenchError(f"expected an object with 'right': true or false, got {line[:200]!r}")
    _check_same(step, result)
    if not result["right"]:
        reasons = [str(reason) for reason in result.get("wrong") or ["the oracle gave no reason"]]
        return Measurement(step, WRONG, {}, [], reasons, result.get("python") or {})
    figures = {name: number(result, path) for name, path in FIGURE_PATHS.items()}
    if missing := _missing_figures(figures):
        raise BenchError(f"its line has no number for {', '.join(missing)}: {line[:200]!r}")
    histogram = str(result.get("histogram") or "")
    return Measurement(step, RIGHT, figures, _ccdf(result), [], result.get("python") or {}, histogram)


def _missing_figures(figures: Figures) -> list[str]:
    return [name for name in REQUIRED_FIGURES if figures[name] is None]


def _check_same(step: MeasurementStep, result: Mapping[str, Any]) -> None:
    for name in ("engine", "workload", "groups"):
        if result.get(name) != getattr(step, name):
            raise BenchError(f"expected {name} {getattr(step, name)!r}, the process measured {result.get(name)!r}")


def number(result: Any, path: Sequence[str]) -> float | None:
    """The finite number at a path in nested objects; None if there is none."""
    for name in path:
        result = result.get(name) if isinstance(result, dict) else None
    is_number = isinstance(result, int | float) and not isinstance(result, bool) and math.isfinite(result)
    return result if is_number else None


def _ccdf(result: Mapping[str, Any]) -> list[tuple[float, float]]:
    points = result.get("ccdf") or []
    return [
        (float(latency_us), float(share))
        for latency_us, share in points
        if latency_us and share and math.isfinite(latency_us * share)
    ]


def failure(step: MeasurementStep, error_output: str) -> Measurement:
    return Measurement(step, FAILED, {}, [], error_output.splitlines(), {})


# Statistics -----------------------------------------------------------------------------------------------------------


class Summary(NamedTuple):
    """An engine on a case, over its rounds.

    One wrong round makes the engine WRONG, without figures. ``rounds``: requests per second of each correct round
    by its number, ``ratios`` those to the base's, ``cpu_rates`` requests per second of CPU time. ``figures`` are
    medians, with some that are taken for each request.
    """

    case: Case
    engine: str
    status: str
    measured: int
    rounds: dict[int, float]
    ratios: dict[int, float]
    cpu_rates: dict[int, float]
    figures: Figures
    ccdf: list[tuple[float, float]]
    reasons: list[str]

    @property
    def throughput(self) -> MedianAndSpread | None:
        return summarise(list(self.rounds.values())) if self.rounds else None

    @property
    def ratio(self) -> float | None:
        return median(self.ratios.values()) if self.ratios else None

    @property
    def is_starved(self) -> bool:
        """Whether other programs took the CPU, so that the requests per second are not the engine's."""
        return (self.figure("others_share") or 0.0) > STARVED_SHARE

    @property
    def unsent_share(self) -> float:
        """The share of requests that were due in an open loop and not sent."""
        unsent = self.figure("unsent") or 0.0
        return unsent / (unsent + (self.figure("requests") or 0.0)) if unsent else 0.0

    def figure(self, name: str) -> float | None:
        return self.figures.get(name)


SummaryTable = dict[Case, dict[str, Summary]]  # engines in the order of the run's list


def summaries(run: LabRun) -> SummaryTable:
    """Every case with all engines that were measured on it."""
    table: SummaryTable = {}
    for case in dict.fromkeys(measurement.step.case for measurement in run.measurements):
        case_measurements = [measurement for measurement in run.measurements if measurement.step.case == case]
        base = rates(case_measurements, BASE)
        table[case] = {
            engine: _summary(
                case,
                engine,
                [measurement for measurement in case_measurements if measurement.step.engine == engine],
                base,
            )
            for engine in run.engines
            if any(measurement.step.engine == engine for measurement in case_measurements)
        }
    return table


def rates(measurements: Iterable[Measurement], engine: str) -> dict[int, float]:
    """Requests per second by round; empty if the engine was wrong in any round."""
    engine_measurements = [measurement for measurement in measurements if measurement.step.engine == engine]
    if any(measurement.status == WRONG for measurement in engine_measurements):
        return {}
    return {
        measurement.step.round: measurement.throughput
        for measurement in engine_measurements
        if measurement.status == RIGHT
    }


def ratios_by_round(numerators: Mapping[int, float], denominators: Mapping[int, float]) -> dict[int, float]:
    """The ratio of the two figures in each round that both have."""
    return {number: rate / denominators[number] for number, rate in numerators.items() if denominators.get(number)}


def _summary(case: Case, engine: str, engine_measurements: Sequence[Measurement], base: Mapping[int, float]) -> Summary:
    rounds = rates(engine_measurements, engine)
    correct = [measurement for measurement in engine_measurements if rounds and measurement.status == RIGHT]
    is_wrong = any(measurement.status == WRONG for measurement in engine_measurements)
    status = WRONG if is_wrong else RIGHT if correct else FAILED
    reasons = _reasons([measurement for measurement in engine_measurements if measurement.status != RIGHT])
    ratios = ratios_by_round(rounds, base)
    return Summary(
        case,
        engine,
        status,
        len(engine_measurements),
        rounds,
        ratios,
        _cpu_rates(correct),
        _medians(correct),
        _middle_ccdf(correct),
        reasons,
    )


def _cpu_rates(correct: Sequence[Measurement]) -> dict[int, float]:
    """Requests per second of CPU time, by round."""
    return {
        measurement.step.round: 1e6 / cpu_us
        for measurement in correct
        if (cpu_us := _per_request(measurement, "cpu_s", 1e6))
    }


def _reasons(failures: Sequence[Measurement]) -> list[str]:
    """Each reason of a wrong or failed measurement once, with its rounds."""
    rounds: dict[tuple[str, str], list[str]] = {}
    for measurement in sorted(failures, key=lambda measurement: measurement.step.round):
        rounds.setdefault((measurement.status, " / ".join(measurement.reasons)), []).append(str(measurement.step.round))
    return [f"{status} in round {', '.join(numbers)}: {reason}" for (status, reason), numbers in rounds.items()]


def _medians(correct: Sequence[Measurement]) -> Figures:
    figures = {name: median_or_none([measurement.figures[name] for measurement in correct]) for name in FIGURE_PATHS}
    figures["cpu_us"] = median_or_none([_per_request(measurement, "cpu_s", 1e6) for measurement in correct])
    figures["cpu_wait_share"] = median_or_none([_cpu_wait_share(measurement) for measurement in correct])
    figures["lock_wait_us"] = median_or_none([_per_request(measurement, "lock_wait_s", 1e6) for measurement in correct])
    figures["switches_a_1000"] = median_or_none([_switches(measurement) for measurement in correct])
    return figures


def _per_request(measurement: Measurement, name: str, factor: float) -> float | None:
    """A total of the measurement, per request."""
    total, requests = measurement.figures[name], measurement.figures["requests"]
    return None if total is None or not requests else factor * total / requests


def _cpu_wait_share(measurement: Measurement) -> float | None:
    cpu_s, cpu_wait_s = measurement.figures["cpu_s"], measurement.figures["cpu_wait_s"]
    return None if cpu_s is None or cpu_wait_s is None or not cpu_s else cpu_wait_s / (cpu_s + cpu_wait_s)


def _switches(measurement: Measurement) -> float | None:
    counts_per_1000 = [_per_request(measurement, name, 1000) for name in ("voluntary_switches", "involuntary_switches")]
    counts = [kind for kind in counts_per_1000 if kind is not None]
    return sum(counts) if counts else None


def _middle_ccdf(right: Sequence[Measurement]) -> list[tuple[float, float]]:
    """The curve of the round with the median throughput, since a median of curves would not be a measured one."""
    ordered = sorted(right, key=lambda measurement: measurement.throughput)
    return ordered[(len(ordered) - 1) // 2].ccdf if ordered else []
