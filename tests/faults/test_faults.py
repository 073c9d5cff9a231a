"""Kills, freezes, cuts and restarts of real servers: nothing acknowledged is lost, and nothing old is read.

How long each takes depends on the machine, so only ``make soak`` measures it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from cluster.engine_cases import skip_or_fail
from cluster.object_server import missing_object_server
from cluster.postgres_server import missing_postgres

from .cut_network import missing_namespaces
from .kinds import KINDS


@pytest.fixture
def postgres() -> None:
    if (reason := missing_postgres()) is not None:
        skip_or_fail(reason)


async def run(kind: str, cycles: int, folder: Path) -> Sequence[str]:
    """What was lost, or read though it was old."""
    async with KINDS[kind](folder) as (campaign, fault):
        for number in range(cycles):
            await campaign.cycle(fault, number)
    assert campaign.acknowledged > 0
    return campaign.violations


def test_five_kills(tmp_path: Path, postgres: None) -> None:
    assert asyncio.run(run("kill", 5, tmp_path)) == []


def test_five_freezes(tmp_path: Path, postgres: None) -> None:
    assert asyncio.run(run("stop", 5, tmp_path)) == []


def test_two_cuts_of_the_network(tmp_path: Path, postgres: None) -> None:
    if (reason := missing_namespaces()) is not None:
        skip_or_fail(reason)
    assert asyncio.run(run("cut", 2, tmp_path)) == []


def test_crash_of_postgresql(tmp_path: Path, postgres: None) -> None:
    assert asyncio.run(run("crash", 1, tmp_path)) == []


def test_restart_under_fifty_clients(tmp_path: Path, postgres: None) -> None:
    assert asyncio.run(run("drain", 1, tmp_path)) == []


def test_kill_with_a_slow_bucket(tmp_path: Path) -> None:
    if (reason := missing_object_server()) is not None:
        skip_or_fail(reason)
    assert asyncio.run(run("kill-on-s3", 1, tmp_path)) == []
