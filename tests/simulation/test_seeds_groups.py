"""Groups, their members, and who should not be one: see ``seeds``."""

from __future__ import annotations

import pytest

from .seeds import run_all

NAMES = ("members", "static_members", "nuisances", "crowd", "growing")


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_wrong(name: str) -> None:
    run_all(name)
