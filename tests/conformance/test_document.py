"""docs/conformance.md names tests: they are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .scenarios import CHAPTERS

TESTS = Path(__file__).parent.parent
DOCUMENT = TESTS.parent / "docs" / "conformance.md"
ROWS = [line.rpartition(" | ")[2] for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")]
NAMED = sorted({name for row in ROWS for name in re.findall(r"`([^`]+)`", row)})


@pytest.mark.parametrize("name", [name for name in NAMED if ".py" not in name and "/" in name])
def test_a_scenario_that_is_named_is_there(name: str) -> None:
    chapter, _, scenario = name.partition("/")
    assert scenario in CHAPTERS[chapter].scenarios


@pytest.mark.parametrize("name", [name for name in NAMED if ".py" in name])
def test_a_test_that_is_named_is_there(name: str) -> None:
    file, _, test = name.partition("::")
    assert f"def {test}(" in (TESTS / file).read_text() if test else (TESTS / file).exists()
