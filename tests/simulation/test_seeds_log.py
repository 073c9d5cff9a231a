"""Scenarios with many commits to the log: see ``seeds``."""

from __future__ import annotations

import pytest

from .seeds import run_all

NAMES = ("crashes", "commits", "full_disk", "unsynced_commits", "deletions")


@pytest.mark.parametrize("name", NAMES)
def test_scenario_has_no_violation(name: str) -> None:
    run_all(name)
