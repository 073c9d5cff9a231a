"""The tests named in docs/conformance.md exist, and every row names a test or a reason."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from .scenarios import CHAPTERS

TESTS = Path(__file__).parent.parent
DOCUMENT = TESTS.parent / "docs" / "conformance.md"
LINES = DOCUMENT.read_text().splitlines()
ROWS = [line.rpartition(" | ")[2] for line in LINES if line.startswith("| ")]
NAMED = sorted({name for row in ROWS for name in re.findall(r"`([^`]+)`", row)})

REASONS = ("not applicable: ", "not covered: ", "differs", "the same: ", "no request on the wire", "random scripts")


@pytest.mark.parametrize("name", [name for name in NAMED if ".py" not in name and "/" in name])
def test_named_scenario_exists(name: str) -> None:
    chapter, _, scenario = name.partition("/")
    assert scenario in CHAPTERS[chapter].scenarios


@pytest.mark.parametrize("name", [name for name in NAMED if ".py" in name])
def test_named_test_exists(name: str) -> None:
    file, _, test = name.partition("::")
    [path] = TESTS.rglob(file)
    assert not test or f"def {test}(" in path.read_text()


def test_every_kafka_test_is_listed_once() -> None:
    """Each row names a test, or the reason for the lack of one."""
    checklist = LINES[LINES.index("## Kafka's own tests, one by one") :]
    rows = [line.strip("|").strip().split(" | ") for line in checklist if line.startswith("| ") and "---" not in line]
    incomplete = [row for row in rows if len(row) != 2 or not ("`" in row[1] or row[1].startswith(REASONS))]
    assert incomplete == [["Kafka's test", "here"]] * len(incomplete)
    assert len(rows) - len(incomplete) > 300
    assert [test for test, count in Counter(row[0] for row in rows if row not in incomplete).items() if count > 1] == []
