"""Groups, their members, and who should not be one: see ``seeds``."""

from __future__ import annotations

import pytest

from .seeds import run_all

NAMES = ("members", "static_members", "nuisances", "crowd", "growing")


@pytest.mark.parametrize("name", NAMES)
def test_scenario_has_no_violation(name: str) -> None:
    run_all(name)
