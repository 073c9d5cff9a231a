"""Scenarios with transactions, passivated groups and members of ``callboard.member``: see ``seeds``."""

from __future__ import annotations

import pytest

from .seeds import run_all

NAMES = (
    "transactions",
    "expiring_transactions",
    "passivated_groups",
    "embedded_members",
    "named_resources",
    "moving_partitions",
    "consumer_members",
    "consumer_churn",
    "lowered_session_timeout",
    "mixed_members",
)


@pytest.mark.parametrize("name", NAMES)
def test_scenario_has_no_violation(name: str) -> None:
    run_all(name)
