"""``callboard cluster check``: whether a store does what a cluster needs, and how fast it is.

It uses keys of its own, and deletes them at the end. So it may run beside a cluster, and before there is one.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from math import ceil
from typing import Any, NamedTuple

from ....actors.text import format_count
from ...cluster.engines.finding import Finding, Level
from ...cluster.session_environment import BEATS_PER_TTL
from ...cluster.store import Store, settle
from ...settings.table import BY_NAME
from ..tables import Column, Table

RACES = 100
RIVALS = 8
SAMPLES = 100
VALUE_BYTES = 5_000
"""As large as a round of some fifty commits."""
PHASE_LIMIT_S = 20.0
"""Of the races, and of the calls of each operation: a store that is slow gets fewer of them."""
OPERATIONS_PER_SIGN = 2
SESSION_TIMEOUT_MS = int(BY_NAME["cluster_session_timeout_ms"].default)

COLUMNS = (
    Column("operation", "operation"),
    Column("calls", "calls", is_number=True),
    Column("p50_ms", "p50, ms"),
    Column("p99_ms", "p99, ms"),
)

Create = Callable[[], Awaitable[object]]


class Latency(NamedTuple):
    """Of one operation at a time, in milliseconds."""

    operation: str
    calls: int
    p50_ms: float
    p99_ms: float


class Report(NamedTuple):
    findings: Sequence[Finding]
    latencies: Sequence[Latency] = ()

    @property
    def is_usable(self) -> bool:
        return all(finding.level != Level.ERROR for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        return {
            "usable": self.is_usable,
            "findings": [finding._asdict() for finding in self.findings],
            "latencies": [latency._asdict() for latency in self.latencies],
        }

    def latency_table(self) -> Table:
        return Table(COLUMNS, [(name, count, f"{p50:.2f}", f"{p99:.2f}") for name, count, p50, p99 in self.latencies])


async def check_store(stores: Sequence[Store], limit_s: float = PHASE_LIMIT_S) -> Report:
    """``stores``: of as many clients as race with each other. They are patient. ``limit_s``: see ``PHASE_LIMIT_S``."""
    prefix = f"check/{secrets.token_hex(8)}/"
    race_keys = [f"{prefix}race-{number:04d}" for number in range(RACES)]
    sample_keys = [f"{prefix}sample-{number:04d}" for number in range(SAMPLES)]
    store = stores[0]
    try:
        raced, result = await race(stores, race_keys, limit_s)
        latencies = [
            await measure("create", [_create(store, key) for key in sample_keys], limit_s),
            await measure("get", [_get(store, key) for key in sample_keys], limit_s),
            await measure("list", [lambda: store.list(prefix)] * SAMPLES, limit_s),
        ]
        created = [*race_keys[:raced], *sample_keys[: latencies[0].calls]]
        findings = [result, await check_list(stores, prefix, created), *judge_speed(latencies)]
    finally:
        await store.delete([*race_keys, *sample_keys])
    return Report(findings, latencies)


async def race(stores: Sequence[Store], keys: Sequence[str], limit_s: float) -> tuple[int, Finding]:
    """All stores create each key at the same time. All must agree on who won. Returns how many keys they created."""
    end_s = time.monotonic() + limit_s
    count = 0
    for key in keys:
        if count and time.monotonic() >= end_s:
            break
        count += 1
        outcomes = await asyncio.gather(*(settle(store, key, secrets.token_bytes(16)) for store in stores))
        [stored] = await stores[0].get([key])
        if {stored} != set(outcomes):
            return count, Finding(
                Level.ERROR,
                f"{len(set(outcomes))} of {len(stores)} clients that created one key at the same time won: this store "
                "overwrites values, and would lose acknowledged commits; use another one",
            )
    return count, Finding(Level.OK, f"{format_count(count, 'race')} of {len(stores)} clients had one winner each")


async def check_list(stores: Sequence[Store], prefix: str, keys: Sequence[str]) -> Finding:
    for store in stores:
        listed = await store.list(prefix)
        if listed != sorted(keys):
            return Finding(
                Level.ERROR,
                f"a list has {len(listed)} of {len(keys)} keys that were created before: nodes would not find what "
                "they need; use another store",
            )
    return Finding(Level.OK, f"a list has all {len(keys)} keys, for each client")


def judge_speed(latencies: Sequence[Latency]) -> list[Finding]:
    """Whether signs of life come in time with the default session timeout."""
    slowest_ms = max(latency.p50_ms for latency in latencies)
    least_ms = slowest_ms * OPERATIONS_PER_SIGN * BEATS_PER_TTL
    if least_ms <= SESSION_TIMEOUT_MS:
        return []
    text = (
        f"an operation takes {slowest_ms:.0f} ms: commits take as long, and nodes may declare each other dead; use "
        f"a store that is nearer, or begin the cluster with --set cluster_session_timeout_ms={ceil(least_ms / 1000)}000"
    )
    return [Finding(Level.WARNING, text)]


async def measure(operation: str, calls: Sequence[Create], limit_s: float) -> Latency:
    """One call after the other. The 99th percentile of 100 is the second longest."""
    times_ms: list[float] = []
    end_s = time.monotonic() + limit_s
    for call in calls:
        if times_ms and time.monotonic() >= end_s:
            break
        started_ns = time.perf_counter_ns()
        await call()
        times_ms.append((time.perf_counter_ns() - started_ns) / 1e6)
    times_ms.sort()
    p99 = times_ms[len(times_ms) * 99 // 100 - 1]
    return Latency(operation, len(times_ms), round(times_ms[len(times_ms) // 2], 3), round(p99, 3))


def _create(store: Store, key: str) -> Create:
    return lambda: settle(store, key, secrets.token_bytes(VALUE_BYTES))


def _get(store: Store, key: str) -> Create:
    return lambda: store.get([key])
