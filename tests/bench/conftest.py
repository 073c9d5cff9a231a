"""Fixtures of all tests of benchmarks."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True)
def _heap_stays_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements change what is frozen and collect garbage. With the objects of all tests that takes a second."""
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "unfreeze", lambda: None)
