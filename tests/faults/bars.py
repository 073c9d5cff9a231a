"""The bars of a cluster, as a table, and whether the measured runs meet them.

Times and rates are judged on a quiet machine only. A machine is quiet while its load average is at most
``QUIET_LOAD_PER_PROCESSOR`` for each processor: the nodes, the store and the clients of a campaign cause a part of that
themselves. Lost commits and old reads are judged in all runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from statistics import median
from typing import NamedTuple

from .measured import Run

QUIET_LOAD_PER_PROCESSOR = 2.0
MET, MISSED, TOO_FEW = "met", "missed", "not enough runs"


def p99(values: Sequence[float]) -> float:
    """The second worst of a hundred, and the worst of fewer."""
    return sorted(values)[-1 - len(values) // 100]


STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = {"p50": median, "p99": p99, "worst": max}
VIOLATIONS = "violations"
ONE_RUN = ("kill-on-s3", "kill-on-bucket")
"""Names of runs with a hyphen whose proof makes only them."""


class Bar(NamedTuple):
    """``run``: the name of the runs that count. ``statistic``: a key of ``STATISTICS``, or ``VIOLATIONS``.

    ``limit``: at most, or at least if ``is_least``. ``values``: so many it takes to judge.
    """

    what: str
    run: str
    statistic: str
    limit: float
    unit: str
    values: int
    is_least: bool = False

    @property
    def goal(self) -> str:
        statistic = "" if self.statistic == VIOLATIONS else f"{self.statistic} "
        return f"{statistic}{'≥' if self.is_least else '≤'} {self.limit:g}{self.unit}"

    @property
    def proof(self) -> str:
        """The proof of ``make soak`` that measures it. Some measure several."""
        return f"cluster-{self.run if self.run in ONE_RUN else self.run.partition('-')[0]}"


class Judgement(NamedTuple):
    """``value``: None if nothing was measured that counts. ``counted``: the values that count, ``others``: those that
    were measured under load. ``other_value``: of those; None if there are none. ``loads``: the least and the greatest
    load average. ``store``: the software of the store, if somebody named it.
    """

    bar: Bar
    commit: str
    verdict: str
    value: float | None
    counted: int
    other_value: float | None
    others: int
    loads: tuple[float, float] | None
    store: str = ""


BARS: Sequence[Bar] = (
    Bar("outage after `kill -9`", "kill", "p50", 2.0, " s", 100),
    Bar("outage after `kill -9`", "kill", "p99", 3.0, " s", 100),
    Bar("outage after SIGSTOP", "stop", "p99", 3.0, " s", 100),
    Bar("outage after `kill -9`, S3 with 25 ms", "kill-on-bucket", "p99", 3.5, " s", 100),
    Bar("lost commits and old reads, `kill -9`", "kill", VIOLATIONS, 0, "", 100),
    Bar("lost commits and old reads, `kill -9`, S3", "kill-on-bucket", VIOLATIONS, 0, "", 100),
    Bar("lost commits and old reads, `kill -9`, simulated S3", "kill-on-s3", VIOLATIONS, 0, "", 10),
    Bar("lost commits and old reads, SIGSTOP", "stop", VIOLATIONS, 0, "", 100),
    Bar("lost commits and old reads, network cuts", "cut", VIOLATIONS, 0, "", 50),
    Bar("lost commits and old reads, crashes of PostgreSQL", "crash", VIOLATIONS, 0, "", 20),
    Bar("lost commits and old reads, failovers", "failover", VIOLATIONS, 0, "", 5),
    Bar("longest gap of 50 clients, drain and restart", "drain", "p99", 0.5, " s", 100),
    Bar("commits/s to the journal's, 1 in flight", "commits-1", "p50", 0.65, "", 1, is_least=True),
    Bar("commits/s to the journal's, 16 in flight", "commits-16", "p50", 0.75, "", 1, is_least=True),
    Bar("the same with a synchronous standby, 1", "commits-1-standby", "p50", 0.4, "", 1, is_least=True),
    Bar("the same with a synchronous standby, 16", "commits-16-standby", "p50", 0.4, "", 1, is_least=True),
    Bar("takeover of 340,000 groups in 17 partitions", "takeover", "p50", 1.5, " s", 3),
    Bar("idle: store operations of a node", "idle-operations", "worst", 20, "/s", 1),
    Bar("idle: CPU of a node", "idle-cpu", "worst", 1, " %", 1),
    Bar("two workers, CPU of a heartbeat, 1 in flight", "workers-heartbeats-1", "p50", 1.15, "", 1),
    Bar("two workers, CPU of a heartbeat, 16 in flight", "workers-heartbeats-16", "p50", 1.15, "", 1),
    Bar("two workers, CPU of a commit, 1 in flight", "workers-commits-1", "p50", 1.15, "", 1),
    Bar("two workers, CPU of a commit, 16 in flight", "workers-commits-16", "p50", 1.15, "", 1),
)


def judge(
    bar: Bar, runs: Sequence[Run], commits: Sequence[str] = (), quiet: float = QUIET_LOAD_PER_PROCESSOR
) -> Judgement:
    """By the runs of the newest commit that has any, or of ``commits``, which are the first characters of some."""
    own = [run for run in runs if run.name == bar.run]
    prefixes = tuple(commits) or tuple(run.commit for run in own[-1:])
    own = [run for run in own if run.commit.startswith(prefixes)]
    commit = ", ".join(dict.fromkeys(run.commit for run in own))
    store = ", ".join(dict.fromkeys(run.store for run in own if run.store))
    loads = [load for run in own for load in run.loads]
    if bar.statistic == VIOLATIONS:
        violations = sum(run.violations for run in own)
        verdict = MISSED if violations else MET if len(loads) >= bar.values else TOO_FEW
        return Judgement(bar, commit, verdict, violations if own else None, len(loads), None, 0, _range(loads), store)
    values = list(chain.from_iterable(run.with_loads() for run in own))
    counts = [value for value, load in values if load <= quiet]
    others = [value for value, load in values if load > quiet]
    value, other = _statistic(bar, counts), _statistic(bar, others)
    verdict = _verdict(bar, value, len(counts))
    return Judgement(bar, commit, verdict, value, len(counts), other, len(others), _range(loads), store)


def _statistic(bar: Bar, values: Sequence[float]) -> float | None:
    return STATISTICS[bar.statistic](values) if values else None


def _verdict(bar: Bar, value: float | None, count: int) -> str:
    if value is None or count < bar.values:
        return TOO_FEW
    is_met = value >= bar.limit if bar.is_least else value <= bar.limit
    return MET if is_met else MISSED


def _range(loads: Sequence[float]) -> tuple[float, float] | None:
    return (min(loads), max(loads)) if loads else None
