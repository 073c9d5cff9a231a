"""One measurement in a process of its own: ``python -m callboard.bench.concurrency.one --engine E --workload W ...``.

It prints one line of JSON. A request is measured when it was issued before the time was up, however late its answer
came: leaving out those in flight at the end would leave out the slowest. ``elapsed_s`` ends with the last such answer.

Before the measured time the groups are made and what they are made of is frozen, so that the garbage collector does
not walk through all of it again and again; so does a server after it has loaded its groups. The interpreter's switch
interval is what ``callboard serve`` sets, for every engine.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from callboard.bench.concurrency import measures
from callboard.bench.concurrency.clients import Crew, ThreadCrew
from callboard.bench.concurrency.engines import ENGINES, Engine, make_engine
from callboard.bench.concurrency.oracle import judge
from callboard.bench.concurrency.workloads import WORKLOADS, Cast, Plan, WorkloadSpec

ANSWER_LIMIT_S = 60.0
"""After the time is up: for how long answers are waited for. Whoever waits then was forgotten."""

SWITCH_INTERVAL_MS = 0.5

MEMORY_GROUPS_MIN = 500
"""With fewer groups, what the process happens to have in reserve is more than what they take."""


class Played(NamedTuple):
    """A run that has ended."""

    crews: list[Crew]
    began_ns: int
    usage: measures.Usage
    lock_wait_s: float | None
    loop_pause_s: float | None
    wrong: list[str]


def measure(
    engine: Engine, workload: WorkloadSpec, plan: Plan, answer_limit_s: float = ANSWER_LIMIT_S
) -> dict[str, Any]:
    """Build, run, let it come to rest, judge. Returns what is printed, but for the names. Closes the engine."""
    cast = workload.make(plan)
    bytes_a_group = _build(engine, cast, plan.groups)
    played = _play(engine, cast, plan.seconds, answer_limit_s)
    gc.unfreeze()
    wrong = played.wrong + judge(engine.cells, cast, played.crews, is_fixed=workload.is_fixed)
    return {
        "groups": plan.groups,
        "members_a_group": plan.members,
        "clients": len(cast.clients),
        "seed": plan.seed,
        **_figures(played, plan.groups),
        "bytes_a_group": bytes_a_group,
        "right": not wrong,
        "wrong": wrong,
        "python": measures.python(),
    }


def _build(engine: Engine, cast: Cast, groups: int) -> float | None:
    gc.collect()
    before = measures.resident_bytes()
    engine.build(cast.seeds())
    gc.collect()
    after = measures.resident_bytes()
    gc.freeze()
    if before is None or after is None or groups < MEMORY_GROUPS_MIN:
        return None
    return (after - before) / groups


def _play(engine: Engine, cast: Cast, seconds: float, answer_limit_s: float) -> Played:
    crews = engine.crews(cast.stage, cast.clients)
    engine.watch()
    before, began_ns = measures.Usage.now(), time.perf_counter_ns()
    engine.clock.begin()
    for crew in crews:
        crew.start()
    time.sleep(seconds)
    cast.stage.over = True
    give_up = time.monotonic() + answer_limit_s
    finished = all(crew.finished.wait(max(give_up - time.monotonic(), 0)) for crew in crews)
    played = Played(crews, began_ns, measures.Usage.now().since(before), engine.lock_wait_s, engine.loop_pause_s, [])
    if not engine.quiesce():
        played.wrong.append("the engine did not come to rest")
    engine.close()
    for crew in crews:
        if finished and isinstance(crew, ThreadCrew):
            crew.take_rest()
    return played


def _figures(played: Played, groups: int) -> dict[str, Any]:
    crews = played.crews
    latencies = sorted(ns for crew in crews for ns in crew.latencies_ns)
    # Groups beyond the plan's are what a workload needs besides; nobody wants them as often as the others.
    pairs = [pair for crew in crews for pair in zip(crew.groups, crew.latencies_ns, strict=True) if pair[0] < groups]
    elapsed_s = (max(crew.last_answer_ns for crew in crews) - played.began_ns) / 1e9
    pause_s = played.loop_pause_s
    return {
        "requests": len(latencies),
        "elapsed_s": elapsed_s if latencies else 0.0,
        "throughput": len(latencies) / elapsed_s if latencies else 0.0,
        "cpu_s": played.usage.cpu_s,
        "latency_us": measures.latencies_us(latencies) if latencies else None,
        "ccdf": measures.curve(latencies) if latencies else [],
        "context_switches": {"voluntary": played.usage.voluntary, "involuntary": played.usage.involuntary},
        "lock_wait_s": played.lock_wait_s,
        "loop_pause_max_ms": None if pause_s is None else pause_s * 1000,
        "fairness": measures.fairness(pairs, groups),
    }


# The command line ---------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Measure once and print the line; returns 0 also for a wrong engine, whose line says so."""
    options = _parse(argv)
    sys.setswitchinterval(options.switch_interval_ms / 1000)
    workload = WORKLOADS[options.workload]
    plan = workload.plan(options.groups, options.seconds, options.seed, options.members, options.clients)
    result = measure(make_engine(options.engine), workload, plan)
    line = {"engine": options.engine, "workload": options.workload, **result}
    print(json.dumps({**line, "switch_interval_ms": options.switch_interval_ms}))
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m callboard.bench.concurrency.one", description="One measurement; prints one line of JSON."
    )
    parser.add_argument("--engine", required=True, choices=ENGINES)
    parser.add_argument("--workload", required=True, choices=WORKLOADS)
    parser.add_argument("--groups", type=_count, required=True, help="how many groups")
    parser.add_argument("--seconds", type=_positive, default=2.0, help="how long requests are issued (default 2)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--members", type=_count, default=0, help="of each group (default: the workload's)")
    parser.add_argument("--clients", type=_count, default=0, help="requests in flight (default: the workload's)")
    parser.add_argument(
        "--switch-interval-ms", type=_positive, default=SWITCH_INTERVAL_MS, help="of the interpreter (default 0.5)"
    )
    options = parser.parse_args(argv)
    most = ENGINES[options.engine].max_groups
    if most is not None and options.groups > most:
        parser.error(f"--groups {options.groups}: {options.engine} can have {most} at most")
    return options


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of things; expected a whole number from 1 on")
    return int(text)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; expected a number above 0")
    return number


if __name__ == "__main__":
    raise SystemExit(main())
