"""Runs one measurement in a separate process, and prints one line of JSON.

``python -m callboard.bench.concurrency.measured_process --engine E --workload W ...``. All requests that were sent
before the time was up are measured, however late their responses; leaving out those in flight would leave out the
slowest. ``elapsed_s`` ends with the last such response.

The groups are created before the measured time, and excluded from garbage collection (gc.freeze), as in a server after
loading. The interpreter's switch interval is the one that ``callboard serve`` sets, for every engine.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from callboard.bench.concurrency import histograms, measures
from callboard.bench.concurrency.clients import ClientRunner, ThreadClientRunner
from callboard.bench.concurrency.engines import Engine, find_engine, make_engine
from callboard.bench.concurrency.oracle import find_violations
from callboard.bench.concurrency.own_code import UnknownName
from callboard.bench.concurrency.workloads import Plan, WorkloadSetup, WorkloadSpec, find_workload

ANSWER_LIMIT_S = 60.0
"""How long to wait for responses after the end of the measurement; later responses count as missing."""

SWITCH_INTERVAL_MS = 0.5

MEMORY_GROUPS_MIN = 500
"""With fewer groups, the allocator's reserve hides their memory."""


class FinishedRun(NamedTuple):
    """The results of a run before they are evaluated."""

    runners: list[ClientRunner]
    began_ns: int
    usage: measures.UsageBetween
    lock_wait_s: float | None
    loop_pause_s: float | None
    wrong: list[str]


def measure(
    engine: Engine,
    workload: WorkloadSpec,
    plan: Plan,
    answer_limit_s: float = ANSWER_LIMIT_S,
    wait: Callable[[float], object] = time.sleep,
    rate: float = 0,
    encode: Callable[[Sequence[int]], str] | None = None,
) -> dict[str, Any]:
    """Create the groups, run the load, wait until the engine is idle, and check the result. Closes the engine.

    ``wait`` is called with the seconds of the plan and returns when the load shall end. ``rate``: requests per second
    of an open loop; 0: a closed loop. ``encode`` makes a histogram of the latencies in ns. Returns the printed fields
    except the names.
    """
    setup = workload.make(plan)
    setup.run_state.interval_ns = round(len(setup.clients) / rate * 1e9) if rate else 0
    bytes_a_group = _build(engine, setup, plan.groups)
    finished_run = _run_load(engine, setup, answer_limit_s, lambda: wait(plan.seconds))
    gc.unfreeze()
    violations = finished_run.wrong + find_violations(
        engine.cells, setup, finished_run.runners, is_fixed=workload.is_fixed
    )
    return {
        "groups": plan.groups,
        "members_a_group": plan.members,
        "clients": len(setup.clients),
        "seed": plan.seed,
        **_figures(finished_run, plan.groups, encode),
        "bytes_a_group": bytes_a_group,
        "right": not violations,
        "wrong": violations,
        "python": measures.python(),
    }


def _build(engine: Engine, setup: WorkloadSetup, groups: int) -> float | None:
    gc.collect()
    bytes_before = measures.resident_bytes()
    engine.build(setup.seeds())
    gc.collect()
    bytes_after = measures.resident_bytes()
    gc.freeze()
    if bytes_before is None or bytes_after is None or groups < MEMORY_GROUPS_MIN:
        return None
    return (bytes_after - bytes_before) / groups


def _run_load(engine: Engine, setup: WorkloadSetup, answer_limit_s: float, wait: Callable[[], object]) -> FinishedRun:
    setup.run_state.observe(engine.clock, engine.writer.durable)
    runners = engine.runners(setup.run_state, setup.clients)
    engine.reset_counters()
    usage_before, began_ns = measures.Usage.now(), time.perf_counter_ns()
    engine.clock.begin()
    for runner in runners:
        runner.start()
    wait()
    setup.run_state.end_ns = time.perf_counter_ns()
    give_up = time.monotonic() + answer_limit_s
    finished = all(runner.finished.wait(max(give_up - time.monotonic(), 0)) for runner in runners)
    finished_run = FinishedRun(
        runners,
        began_ns,
        measures.UsageBetween.of(usage_before, measures.Usage.now()),
        engine.lock_wait_s,
        engine.loop_pause_s,
        [],
    )
    if not engine.quiesce():
        finished_run.wrong.append("the engine did not become idle")
    engine.close()
    for runner in runners:
        if finished and isinstance(runner, ThreadClientRunner):
            runner.settle_late_responses()
    return finished_run


def _figures(
    finished_run: FinishedRun, groups: int, encode: Callable[[Sequence[int]], str] | None = None
) -> dict[str, Any]:
    runners = finished_run.runners
    latencies = sorted(ns for runner in runners for ns in runner.measured.latencies_ns)
    # Groups beyond the plan's are auxiliary groups of a workload, with fewer requests; they are not counted.
    pairs = [
        pair
        for runner in runners
        for pair in zip(runner.measured.groups, runner.measured.latencies_ns, strict=True)
        if pair[0] < groups
    ]
    unsent = [ns for runner in runners for ns in runner.measured.unsent_ns]
    all_latencies = sorted([*latencies, *unsent]) if unsent else latencies
    elapsed_s = (max(runner.measured.last_answer_ns for runner in runners) - finished_run.began_ns) / 1e9
    pause_s = finished_run.loop_pause_s
    return {
        "requests": len(latencies),
        "unsent": len(unsent),
        "elapsed_s": elapsed_s if latencies else 0.0,
        "throughput": len(latencies) / elapsed_s if latencies else 0.0,
        "cpu_s": finished_run.usage.cpu_s,
        "cpu_wait_s": finished_run.usage.cpu_wait_s,
        "others_share": finished_run.usage.others_share,
        "latency_us": measures.latencies_us(all_latencies) if latencies else None,
        "ccdf": measures.curve(all_latencies) if latencies else [],
        "histogram": encode(all_latencies) if encode and latencies else "",
        "context_switches": {"voluntary": finished_run.usage.voluntary, "involuntary": finished_run.usage.involuntary},
        "lock_wait_s": finished_run.lock_wait_s,
        "loop_pause_max_ms": None if pause_s is None else pause_s * 1000,
        "fairness": measures.fairness(pairs, groups),
    }


# The command line ---------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Measure once and print the line. Returns 0 even if the engine was wrong; the line reports that."""
    options = _parse(argv)
    if options.cores is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    sys.setswitchinterval(options.switch_interval_ms / 1000)
    workload = find_workload(options.workload)
    plan = workload.plan(options.groups, options.seconds, options.seed, options.members, options.clients)
    encode = histograms.encoded if options.histogram else None
    result = measure(make_engine(options.engine), workload, plan, rate=options.rate, encode=encode)
    line = {"engine": options.engine, "workload": options.workload, **result}
    print(json.dumps({**line, "switch_interval_ms": options.switch_interval_ms}))
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m callboard.bench.concurrency.measured_process",
        description="One measurement; prints one line of JSON.",
    )
    parser.add_argument("--engine", required=True, help="an id, or MODULE:CLASS")
    parser.add_argument("--workload", required=True, help="an id, or MODULE:NAME")
    parser.add_argument("--groups", type=_count, required=True, help="number of groups")
    parser.add_argument("--seconds", type=_positive, default=2.0, help="seconds in which requests are sent (default 2)")
    parser.add_argument("--cores", type=_count, help="use so many cores (default: all)")
    parser.add_argument("--rate", type=float, default=0, help="requests per second of an open loop (0: a closed loop)")
    parser.add_argument("--histogram", action="store_true", help="also print the latencies, as an HdrHistogram")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--members", type=_count, default=0, help="of each group (default: the workload's)")
    parser.add_argument("--clients", type=_count, default=0, help="requests in flight (default: the workload's)")
    parser.add_argument(
        "--switch-interval-ms", type=_positive, default=SWITCH_INTERVAL_MS, help="of the interpreter (default 0.5)"
    )
    options = parser.parse_args(argv)
    try:
        group_limit = find_engine(options.engine).max_groups
        find_workload(options.workload)
    except UnknownName as error:
        parser.error(str(error))
    if group_limit is not None and options.groups > group_limit:
        parser.error(f"--groups {options.groups}: {options.engine} supports at most {group_limit}")
    return options


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; expected a number above 0")
    return number


if __name__ == "__main__":
    raise SystemExit(main())
