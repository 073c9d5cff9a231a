"""Fixtures of all tests of benchmarks."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True)
def _heap_stays_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements unfreeze the heap and collect garbage, which with the objects of all tests takes a second."""
    monkeypatch.setattr(gc, "unfreeze", lambda: None)
