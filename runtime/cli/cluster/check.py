"""``callboard cluster check``: whether a store does what a cluster needs, and how fast it is.

It uses keys of its own, and deletes them at the end. So it may run beside a cluster, and before there is one.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from ...cluster.engines.finding import Finding, Level
from ...cluster.store import Store, settle
from ..tables import Column, Table

RACES = 100
RIVALS = 8
SAMPLES = 100
VALUE_BYTES = 5_000
"""As large as a round of some fifty commits."""

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


async def check_store(stores: Sequence[Store]) -> Report:
    """``stores``: of as many clients as race with each other. They are patient."""
    prefix = f"check/{secrets.token_hex(8)}/"
    race_keys = [f"{prefix}race-{number:04d}" for number in range(RACES)]
    sample_keys = [f"{prefix}sample-{number:04d}" for number in range(SAMPLES)]
    store = stores[0]
    try:
        findings = [await race(stores, race_keys)]
        latencies = [
            await measure("create", [_create(store, key) for key in sample_keys]),
            await measure("get", [_get(store, key) for key in sample_keys]),
            await measure("list", [lambda: store.list(prefix)] * SAMPLES),
        ]
        findings.append(await check_list(stores, prefix, [*race_keys, *sample_keys]))
    finally:
        await store.delete([*race_keys, *sample_keys])
    return Report(findings, latencies)


async def race(stores: Sequence[Store], keys: Sequence[str]) -> Finding:
    """All stores create each key at the same time. All must agree on who won."""
    for key in keys:
        outcomes = await asyncio.gather(*(settle(store, key, secrets.token_bytes(16)) for store in stores))
        [stored] = await stores[0].get([key])
        if {stored} != set(outcomes):
            return Finding(
                Level.ERROR,
                f"{len(set(outcomes))} of {len(stores)} clients that created one key at the same time won: this store "
                "overwrites values, and would lose acknowledged commits; use another one",
            )
    return Finding(Level.OK, f"{len(keys)} races of {len(stores)} clients had one winner each")


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


async def measure(operation: str, calls: Sequence[Create]) -> Latency:
    """One call after the other. The 99th percentile of 100 is the second longest."""
    times_ms = []
    for call in calls:
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
