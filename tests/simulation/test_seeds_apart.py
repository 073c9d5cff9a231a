"""Transactions, what is seldom used, and the product's own members: see ``seeds``."""

from __future__ import annotations

import pytest

from .seeds import run_all

NAMES = ("transactions", "sleepers", "embedded_members", "named_resources")


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_wrong(name: str) -> None:
    run_all(name)
