"""Fixtures: each engine of a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from .engine_cases import EngineCase, memory_case, url_case

ENGINES = ("memory", "folder")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> EngineCase:
    """Every engine that a cluster can use, and the one in memory."""
    case: EngineCase = request.getfixturevalue(f"{request.param}_engine")
    return case


@pytest.fixture
def memory_engine() -> EngineCase:
    return memory_case()


@pytest.fixture
def folder_engine(tmp_path: Path) -> EngineCase:
    return url_case("folder", tmp_path.as_uri())
