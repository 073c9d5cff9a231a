"""Kills, freezes, cuts and restarts of real servers: nothing acknowledged is lost, and nothing old is read.

How long each takes depends on the machine, so only ``make soak`` measures it, with more requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from cluster.engine_cases import skip_or_fail
from cluster.object_server import missing_object_server
from cluster.postgres_server import PostgresServer, missing_postgres

from .campaign import Fault, Workload
from .cut_network import missing_namespaces
from .kinds import (
    Servers,
    Started,
    cluster_on_postgres,
    crashed,
    drained,
    killed,
    on_cut_network,
    on_simulated_bucket,
    stopped,
)

CLIENTS = Workload(12, 0.05)
CLIENTS_OF_BUCKET = Workload(9, 0.3)
FAULTS: Sequence[Callable[[Servers, PostgresServer], Fault]] = (*5 * [killed], *5 * [stopped], drained, crashed)


@pytest.fixture
def postgres() -> None:
    if (reason := missing_postgres()) is not None:
        skip_or_fail(reason)


async def run_kind(started: AbstractAsyncContextManager[Started], cycles: int) -> Sequence[str]:
    """What was lost, or read though it was old."""
    async with started as (campaign, fault):
        for number in range(cycles):
            await campaign.cycle(fault, number)
    assert campaign.acknowledged > 0
    return campaign.violations


async def run_all_on_postgres(folder: Path) -> Sequence[str]:
    """Faults of several kinds, one after the other, in one cluster."""
    async with cluster_on_postgres(folder, CLIENTS) as (campaign, servers, postgres):
        for number, fault_of in enumerate(FAULTS):
            await campaign.cycle(fault_of(servers, postgres), number)
    assert campaign.acknowledged > 0
    return campaign.violations


def test_five_kills_five_freezes_a_restart_and_a_crash_of_postgresql(tmp_path: Path, postgres: None) -> None:
    assert asyncio.run(run_all_on_postgres(tmp_path)) == []


def test_two_cuts_of_the_network(tmp_path: Path, postgres: None) -> None:
    if (reason := missing_namespaces()) is not None:
        skip_or_fail(reason)
    assert asyncio.run(run_kind(on_cut_network(tmp_path, CLIENTS), 2)) == []


def test_kill_with_a_slow_bucket(tmp_path: Path) -> None:
    if (reason := missing_object_server()) is not None:
        skip_or_fail(reason)
    assert asyncio.run(run_kind(on_simulated_bucket(tmp_path, killed, CLIENTS_OF_BUCKET), 1)) == []
