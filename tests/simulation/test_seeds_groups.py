"""Scenarios with groups, their members and invalid requests: see ``seeds``."""

from __future__ import annotations

import pytest

from .seeds import run_all

NAMES = (
    "members",
    "overload",
    "static_members",
    "invalid_requests",
    "shared_partition",
    "growing_resource",
    "refused_appends",
    "sessions",
    "resets",
)


@pytest.mark.parametrize("name", NAMES)
def test_scenario_has_no_violation(name: str) -> None:
    run_all(name)
