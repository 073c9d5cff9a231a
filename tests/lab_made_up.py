"""Fictitious engines, workloads and measurements of the concurrency laboratory, for tests of its parent process."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from callboard.bench.concurrency import run as lab
from callboard.bench.concurrency.plan import Case, MeasurementStep
from callboard.bench.concurrency.results import LabRun, Measurement, failure, read_line

ENGINES: dict[str, dict[str, Any]] = {
    "actor-loop": {"label": "actor a group", "max_groups": None, "has_locks": False, "has_loop": True},
    "actor-threads": {"label": "actor a group, threads", "max_groups": None, "has_locks": False, "has_loop": False},
    "lock-group": {"label": "a lock a group", "max_groups": None, "has_locks": True, "has_loop": False},
    "lock-global": {"label": "one lock <for all>", "max_groups": 100, "has_locks": True, "has_loop": False},
}
WORKLOADS: dict[str, dict[str, Any]] = {
    "heartbeats": {"label": "Even heartbeats", "shows": "What nobody waits for.", "groups": [10, 1000]},
    "join-one": {"label": "Join storm", "shows": "All into one.", "groups": [1]},
}
KNOWN = lab.Catalogue(ENGINES, WORKLOADS)
HEARTBEATS = Case("heartbeats", 10)


def step(engine: str, number: int = 1, case: Case = HEARTBEATS) -> MeasurementStep:
    return MeasurementStep(number, *case, engine, 1.0, 1)


def line(measurement_step: MeasurementStep, rate: float, **more: Any) -> str:
    """A line as printed by a measured process, with all fields."""
    fields = {
        "engine": measurement_step.engine,
        "workload": measurement_step.workload,
        "groups": measurement_step.groups,
        "members_a_group": 5,
        "clients": 64,
        "seed": measurement_step.seed,
        "requests": int(rate * 2),
        "elapsed_s": 2.0,
        "throughput": rate,
        "cpu_s": 1.5,
        "latency_us": {"p50": 1e6 / rate, "p99": 4e6 / rate, "p999": 9e6 / rate, "max": 2e7 / rate},
        "ccdf": [[1e6 / rate, 0.5], [4e6 / rate, 0.01], [9e6 / rate, 0.001]],
        "bytes_a_group": 4321.0,
        "context_switches": {"voluntary": 30, "involuntary": 10},
        "lock_wait_s": 0.25 if "lock" in measurement_step.engine else None,
        "loop_pause_max_ms": 3.25 if "loop" in measurement_step.engine else None,
        "fairness": {"jain": 0.875, "cold_p99_us": 5e6 / rate, "hot_p99_us": 8e6 / rate},
        "right": True,
        "wrong": [],
        "python": {"version": "3.11.7", "implementation": "CPython", "free_threaded": False, "gil_enabled": True},
    }
    return json.dumps({**fields, **more})


def measured(rates: Mapping[str, Iterable[float]], case: Case = HEARTBEATS) -> list[Measurement]:
    """Right measurements: each engine with its rate in each round."""
    return [
        read_line(step(engine, number, case), line(step(engine, number, case), rate))
        for engine, engine_rates in rates.items()
        for number, rate in enumerate(engine_rates, 1)
    ]


def made_up_run(measurements: list[Measurement], planned: int | None = None) -> LabRun:
    return LabRun(
        date="2025-01-02 03:04:05+00:00",
        command="callboard bench concurrency --groups '10,1000'",
        machine={"cpus": 2, "system": "Linux & more", "python": "3.11.7"},
        python={"build": "main, GCC", **measurements[0].python},
        options={"seed": 7, "rounds": 3, "seconds": 0.5},
        engines=ENGINES,
        workloads=WORKLOADS,
        planned=len(measurements) if planned is None else planned,
        left_out=["lock-global (at most 100 groups): heartbeats with 1,000"],
        measurements=measurements,
    )


def mixed_run() -> LabRun:
    """One engine is wrong, one failed in a round, and a number is missing in one case."""
    right = measured({"actor-loop": [300, 310, 320], "lock-group": [100, 155, 80], "actor-threads": [50]})
    wrong_line = line(step("lock-global"), 999_999, right=False, wrong=["group g3: generation 4, expected <5>"])
    storm = Case("join-one", 1)
    reference = line(step("actor-loop", 1, storm), 777, bytes_a_group=None, loop_pause_max_ms=math.nan, fairness={})
    return made_up_run(
        [
            *right,
            failure(step("actor-threads", 2), "it hung. The end of its standard error:\nBoom: 42"),
            read_line(step("lock-global"), wrong_line),
            read_line(step("actor-loop", 1, storm), reference),
            failure(step("lock-group", 1, storm), "out of memory"),
        ]
    )
