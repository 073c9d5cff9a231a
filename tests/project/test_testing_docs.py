"""Runs the tests in docs/testing.md as a reader would."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from project_paths import DOCS
from pytest_helpers import run

PAGE = DOCS / "testing.md"
BLOCK = re.compile(r"^```python\n# (test_\w+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = dict(BLOCK.findall(PAGE.read_text()))


def test_every_code_block_names_its_file() -> None:
    assert len(BLOCKS) == PAGE.read_text().count("```python") == 10


@pytest.mark.parametrize("name", BLOCKS)
def test_the_page_does_what_it_says(name: str, tmp_path: Path) -> None:
    printed = run(tmp_path, BLOCKS[name], "--durations=0", "-p", "kafka_python_fast_metadata")
    assert re.search(r"^=+ \d+ passed in [\d.]+s =+$", printed, re.MULTILINE), printed
