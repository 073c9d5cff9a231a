"""The laboratory's engines: each runs every workload without a violation. No time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any

import pytest
from lab_waiting import measure_until_handled, until_handled

from callboard.actors.errors import ErrorCode
from callboard.actors.messages import Heartbeat
from callboard.actors.steps import SHORT_WORK_ITEMS
from callboard.bench.concurrency import measured_process, measures, workloads
from callboard.bench.concurrency.cell import Append, Cell
from callboard.bench.concurrency.clients import RunState
from callboard.bench.concurrency.engines import ENGINES, Engine, make_engine
from callboard.bench.concurrency.lock_engines import GroupLockEngine, LockWaitTimer
from callboard.bench.concurrency.loop_engines import AsyncioLockEngine
from callboard.bench.concurrency.oracle import ReferenceCell
from callboard.bench.concurrency.services import LabClock, ThreadTimer, Writer
from callboard.bench.concurrency.workloads import GENERATION, WORKLOADS, Plan, loaded

SMALL = {"join-one": (1, 12)}  # groups and members of a workload; 6 and 3 for the others
SECONDS = 0.02
REQUESTS_MIN = 600  # of a measurement, so that each script passes through all its steps
STEPS = 256  # that a client draws, of workloads that draw them in advance
FIELDS = {
    *(
        "engine",
        "workload",
        "groups",
        "members_a_group",
        "clients",
        "seed",
        "requests",
        "unsent",
        "histogram",
        "elapsed_s",
        "throughput",
    ),
    *(
        "cpu_s",
        "cpu_wait_s",
        "others_share",
        "latency_us",
        "ccdf",
        "bytes_a_group",
        "context_switches",
        "lock_wait_s",
        "loop_pause_max_ms",
    ),
    *("fairness", "right", "wrong", "python", "switch_interval_ms"),
}
# Modules that a measured process must not import: they do not exist for all builds, and cost memory.
HEAVY = {"kio", "uvloop", "structlog", "rich", "matplotlib"}


@pytest.fixture(autouse=True)
def same_switch_interval() -> Iterator[None]:
    switch_interval_s = sys.getswitchinterval()
    yield
    sys.setswitchinterval(switch_interval_s)


def run(capsys: pytest.CaptureFixture[str], engine: str, workload: str, *extra_arguments: str) -> dict[str, Any]:
    groups, members = SMALL.get(workload, (6, 3))
    size = ["--groups", str(groups), "--members", str(members), "--clients", "8", "--seconds", "0.12"]
    assert measured_process.main(["--engine", engine, "--workload", workload, *size, *extra_arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    result: dict[str, Any] = json.loads(lines[0])
    return result


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "PRECOMPUTED_STEPS", STEPS)


def measured(engine: Engine, workload: str) -> dict[str, Any]:
    """A small measurement that ends when ``REQUESTS_MIN`` requests were handled and ``SECONDS`` have passed."""
    groups, members = SMALL.get(workload, (6, 3))
    plan = WORKLOADS[workload].plan(groups, SECONDS, 1, members, clients=8)
    return measured_process.measure(engine, WORKLOADS[workload], plan, wait=until_handled(engine, REQUESTS_MIN))


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_passes_oracle_on_every_workload(engine: str, workload: str) -> None:
    result = measured(make_engine(engine), workload)
    assert result["wrong"] == []
    assert result["right"] is True
    assert result["requests"] > result["clients"] > 0
    assert (result["lock_wait_s"] is not None) == ENGINES[engine].has_locks
    assert (result["loop_pause_max_ms"] is not None) == ENGINES[engine].has_loop


def test_large_group_passes_oracle() -> None:
    """The group does its work on many members in steps, which the cell has to finish."""
    members, engine = SHORT_WORK_ITEMS + 20, make_engine("plain-loop")
    plan = WORKLOADS["join-one"].plan(1, SECONDS, 1, members=members)
    wait = until_handled(engine, 2 * members)
    result = measured_process.measure(engine, WORKLOADS["join-one"], plan, wait=wait, answer_limit_s=60)
    assert result["wrong"] == []
    assert result["requests"] >= members


def test_figures_are_consistent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    measure_until_handled(monkeypatch, REQUESTS_MIN)
    result = run(capsys, "lock-group", "hot")
    assert result.keys() == FIELDS
    assert (result["engine"], result["workload"], result["seed"]) == ("lock-group", "hot", 1)
    latency, shares = result["latency_us"], [share for _, share in result["ccdf"]]
    assert latency["p50"] <= latency["p99"] <= latency["p999"] <= latency["max"]
    assert result["throughput"] == pytest.approx(result["requests"] / result["elapsed_s"])
    assert 0 < len(shares) <= measures.CURVE_POINTS
    assert shares == sorted(shares, reverse=True)
    assert 0 < result["fairness"]["jain"] < 1  # Zipf's law is not even
    assert result["bytes_a_group"] is None  # too few groups to measure memory
    assert result["python"]["implementation"] == sys.implementation.name.replace("cpython", "CPython")


def test_memory_is_measured_with_enough_groups() -> None:
    plan = WORKLOADS["heartbeats"].plan(measured_process.MEMORY_GROUPS_MIN, 0.01, seed=1)
    result = measured_process.measure(make_engine("lock-global"), WORKLOADS["heartbeats"], plan)
    assert isinstance(result["bytes_a_group"], float) == (measures.resident_bytes() is not None)


def test_measured_process_imports_no_heavy_modules() -> None:
    """Only the standard library, pykka and sortedcontainers, so that it runs on builds without other libraries."""
    code = (
        "import sys; from callboard.bench.concurrency import measured_process; "
        "from callboard.bench.concurrency.engines import ENGINES, make_engine; "
        "[make_engine(name).close() for name in ENGINES]; print(*sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True).stdout
    assert HEAVY & {name.split(".")[0] for name in out.split()} == set()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--engine", "lock-group", "--workload", "heartbeats"], "--groups"),
        (["--engine", "none", "--workload", "heartbeats", "--groups", "1"], "'none'"),
        (["--engine", "lock-group", "--workload", "heartbeats", "--groups", "0"], "'0' is not a number of at least 1"),
        (["--engine", "pykka-threads", "--workload", "heartbeats", "--groups", "2001"], "supports at most 2000"),
        (["--engine", "lock-group", "--workload", "hot", "--groups", "1", "--seconds", "x"], "'x' is not a duration"),
    ],
)
def test_invalid_options_are_refused(capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str) -> None:
    with pytest.raises(SystemExit) as exit_info:
        measured_process.main(arguments)
    assert exit_info.value.code == 2
    assert complaint in capsys.readouterr().err


def test_engines_and_workloads_have_descriptions() -> None:
    assert list(ENGINES)[:2] == ["actor-loop", "actor-threads"] and "lock-group" in ENGINES
    assert all(spec.label for spec in ENGINES.values())
    assert all(spec.label and spec.shows and min(spec.groups) > 0 for spec in WORKLOADS.values())


# Load -----------------------------------------------------------------------------------------------------------------


def requests_of(plan: Plan, name: str, count: int) -> list[list[Any]]:
    """The first requests of every client, with the responses that a fixed workload always gets."""
    setup = WORKLOADS[name].make(plan)
    reference = {seed.group_id: ReferenceCell(seed) for seed in setup.seeds()}
    findings = []
    for client in setup.clients:
        requests, answer = [], None
        for _ in range(count):
            requests.append(client.script.send(answer))
            answer = reference[requests[-1].group_id].ask(requests[-1])
        findings.append(requests)
        assert client.ledger.unexpected == []
    return findings


@pytest.mark.parametrize("name", [name for name, spec in WORKLOADS.items() if spec.is_fixed])
def test_same_seed_gives_same_requests(name: str) -> None:
    plan = WORKLOADS[name].plan(groups=20, seconds=1, seed=5)
    assert requests_of(plan, name, 40) == requests_of(plan, name, 40)


def test_different_seed_gives_different_requests() -> None:
    plan = WORKLOADS["hot"].plan(groups=20, seconds=1, seed=5)
    assert requests_of(plan, "hot", 40) != requests_of(plan._replace(seed=6), "hot", 40)


def test_hot_workload_prefers_first_group() -> None:
    plan = WORKLOADS["hot"].plan(groups=100, seconds=1, seed=1)
    requests_by_group = Counter(request.group_id for requests in requests_of(plan, "hot", 100) for request in requests)
    assert requests_by_group.most_common(1)[0][0] == "group-0"
    assert requests_by_group["group-0"] > 10 * requests_by_group["group-50"]


def test_heartbeats_are_distributed_evenly() -> None:
    plan = WORKLOADS["heartbeats"].plan(groups=8, seconds=1, seed=1, members=2, clients=4)
    requests_by_member = Counter(
        request.member_id
        for requests in requests_of(plan, "heartbeats", 10)
        for request in requests
        if request.generation_id == GENERATION and not request.member_id.endswith("-unknown")
    )
    assert len(requests_by_member) == 16 and max(requests_by_member.values()) - min(requests_by_member.values()) <= 1


@pytest.mark.parametrize("workload", ["heartbeats", "hot"])
def test_each_client_sends_heartbeats_that_are_refused(workload: str) -> None:
    plan = WORKLOADS[workload].plan(groups=8, seconds=1, seed=1, members=2, clients=4)
    for requests in requests_of(plan, workload, 10):
        reference = {seed.group_id: ReferenceCell(seed) for seed in WORKLOADS[workload].make(plan).seeds()}
        answers = [reference[request.group_id].ask(request) for request in requests]
        assert answers[0] is ErrorCode.NONE
        assert answers[1] in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


def test_plan_limits_clients_to_members() -> None:
    assert WORKLOADS["commits"].plan(groups=3, seconds=1, seed=1, members=2).clients == 6
    assert WORKLOADS["join-one"].plan(groups=1, seconds=1, seed=1).clients == 1000
    assert WORKLOADS["join-many"].plan(groups=5, seconds=1, seed=1, members=3)[:3] == (5, 1, 5)


def test_loaded_groups_are_stable() -> None:
    plan = Plan(groups=2, members=3, clients=1, seconds=1, seed=1)
    for seed in islice(loaded(plan), 2):
        reference = ReferenceCell(seed)
        assert reference.ask(Heartbeat(seed.group_id, f"{seed.group_id}-2", None, 1)) is ErrorCode.NONE
        assert reference.ask(Heartbeat(seed.group_id, "stranger", None, 1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_loop_and_thread_engines_have_same_number_of_clients() -> None:
    plan = WORKLOADS["heartbeats"].plan(groups=8, seconds=1, seed=1, clients=7)
    setup = WORKLOADS["heartbeats"].make(plan)
    for engine in (GroupLockEngine(), AsyncioLockEngine()):
        assert sum(len(runner.clients) for runner in engine.runners(RunState([]), setup.clients)) == 7
        engine.close()


# Services -------------------------------------------------------------------------------------------------------------


def a_cell() -> Cell:
    return ReferenceCell(next(loaded(Plan(groups=1, members=1, clients=1, seconds=1, seed=1)))).cell


def test_writer_gathers_appends_during_round() -> None:
    """The first append is a round of its own; appends during that round form the next one, in order."""
    rounds: list[list[Any]] = []
    first_written, all_appended = threading.Event(), threading.Event()

    def written(appends: Sequence[Append]) -> None:
        rounds.append([append.context for append in appends])
        first_written.set()
        all_appended.wait(10)

    writer, cell = Writer(written, round_s=0), a_cell()
    writer.append(Append(cell, (), 0))
    assert first_written.wait(10)
    for number in range(1, 50):
        writer.append(Append(cell, (), number))
    all_appended.set()
    assert writer.settle()
    writer.close()
    assert rounds == [[0], list(range(1, 50))]


def test_thread_timer_expires_due_names_never_early() -> None:
    clock = LabClock()
    expirations: list[tuple[Hashable, int]] = []
    all_rang = threading.Event()

    def expired(_cell: Cell, names: Sequence[Hashable]) -> None:
        expirations.extend((name, clock.monotonic_ms()) for name in names)
        if len(expirations) == 2:
            all_rang.set()

    timer, cell = ThreadTimer(clock, expired), a_cell()
    timer.schedule(cell, {"late": 60, "soon": 20, "never": 30})
    timer.schedule(cell, {"never": None})
    assert timer.settle() and expirations == []  # the clock is paused
    clock.begin()
    assert all_rang.wait(10)
    timer.close()
    assert [name for name, _ in expirations] == ["soon", "late"]
    assert expirations[0][1] >= 20 and expirations[1][1] >= 60


def test_loop_timer_expires_due_names_never_early() -> None:
    expirations: list[tuple[Hashable, int]] = []
    all_expired = threading.Event()

    class Listening(AsyncioLockEngine):
        def expired(self, cell: Cell, names: Sequence[Hashable]) -> None:
            expirations.extend((name, self.clock.monotonic_ms()) for name in names)
            all_expired.set()

    engine, cell = Listening(), a_cell()
    engine.run_on_engine_thread(lambda: engine.timer.schedule(cell, {"soon": 15, "never": 15}))
    engine.run_on_engine_thread(lambda: engine.timer.schedule(cell, {"never": None}))
    engine.clock.begin()
    assert all_expired.wait(10)
    engine.close()
    assert [name for name, _ in expirations] == ["soon"]
    assert expirations[0][1] >= 15


class StandInLock:
    """A lock that is free or held; it records the arguments of ``acquire``."""

    def __init__(self, is_free: bool) -> None:
        self.is_free = is_free
        self.asked: list[bool] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self.asked.append(blocking)
        return blocking or self.is_free

    def release(self) -> None: ...


def test_lock_wait_is_timed_only_if_contended() -> None:
    waits, free_lock, taken_lock = LockWaitTimer(), StandInLock(is_free=True), StandInLock(is_free=False)
    waits.acquire(free_lock)
    assert free_lock.asked == [False] and waits.seconds == 0
    waits.acquire(taken_lock)
    assert taken_lock.asked == [False, True] and waits.seconds > 0


# Measures -------------------------------------------------------------------------------------------------------------


def test_percentile_returns_measured_values() -> None:
    ordered = list(range(1, 101))
    assert [measures.percentile(ordered, share) for share in (0.0, 0.5, 0.99, 0.999, 1.0)] == [1, 50, 99, 100, 100]
    assert measures.percentile([7], 0.5) == 7


def test_curve_returns_share_of_slower_requests() -> None:
    points = measures.curve(sorted([1000] * 90 + [2000] * 9 + [1_000_000]))
    assert points[0][0] == 1.0 and points[0][1] == pytest.approx(0.1)
    assert all(first[0] < second[0] and first[1] >= second[1] for first, second in pairwise(points))
    assert points[-1][1] == pytest.approx(0.01)
    assert measures.curve([5, 5]) == []


def test_jain_index_is_one_if_even_and_small_if_uneven() -> None:
    assert measures.jain([5, 5, 5]) == pytest.approx(1)
    assert measures.jain([9, 0, 0]) == pytest.approx(1 / 3)
    result = measures.fairness([(0, 900)] * 50 + [(1, 10_000), (2, 20_000)], groups=4)
    assert result["hot_p99_us"] == 0.9
    assert result["cold_p99_us"] == 20.0
    assert result["jain"] == pytest.approx(measures.jain([50, 1, 1, 0]))
    assert measures.fairness([(0, 5)], groups=1)["cold_p99_us"] is None


PROC_STAT = """\
cpu  1000 0 0 9000 0 0 0 0 0 0
cpu0 300 10 60 500 100 5 5 20 200 0
cpu1 600 0 0 400 0 0 0 0 0 0
cpu10 7 7 7 7 7 7 7 7 7 7
intr 12345
"""


def test_machine_time_is_that_of_the_usable_cpus() -> None:
    """The columns: user, nice, system, idle, waiting for I/O, interrupts, soft ones, stolen, guests."""
    assert measures.read_machine_time(PROC_STAT, {0}, 100) == (4.0, 10.0)
    assert measures.read_machine_time(PROC_STAT, {0, 1}, 100) == (10.0, 20.0)


def test_share_of_others_is_what_this_process_did_not_use() -> None:
    before, after = measures.MachineTime(10, 100), measures.MachineTime(14, 110)
    assert measures.others_share(before, after, cpu_s=1.0) == pytest.approx(0.3)
    assert measures.others_share(before, after, cpu_s=4.01) == 0.0, "the clocks differ by a tick"
    assert measures.others_share(before, before, cpu_s=1.0) is None
    assert measures.others_share(None, after, cpu_s=1.0) is None
