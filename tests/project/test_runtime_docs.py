"""docs/runtime.md does what it says: its code is run, and what it prints is what stands below it."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from doc_pages import DOCS, Block, blocks, dead_links, run, sections
from pytest_helpers import PYTEST

PAGE = DOCS / "runtime.md"
DEADLINE_S = 600.0  # for a process that hangs
TEST_FILE = re.compile(r"# (test_\w+\.py)\n")


def run_tests(name: str, block: Block, folder: Path) -> None:
    """A block that is a file of tests: they pass, all of them."""
    path = folder / name
    path.write_text(block.code)
    done = subprocess.run(
        [sys.executable, *PYTEST, "-q", "--rootdir", str(folder), name],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("section", sections(PAGE))
def test_section_code_prints_documented_output(section: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in sections(PAGE)[section]:
        if test_file := TEST_FILE.match(block.code):
            run_tests(test_file[1], block, tmp_path)
        else:
            assert run(PAGE, block, names) == block.output, f"docs/runtime.md, line {block.line}"


def test_most_sections_of_the_page_have_code() -> None:
    """If the page were written in a way that this file does not read, nothing would be tested."""
    assert len(sections(PAGE)) >= 8
    assert sum(len(those) for those in sections(PAGE).values()) == PAGE.read_text().count("```python")


def test_links_on_the_page_have_targets() -> None:
    assert dead_links(PAGE) == []


def test_wrong_documented_output_is_reported() -> None:
    (block,) = blocks("```python\nprint(1)\n```\n\n```text\n2\n```\n")
    assert block == Block(2, "print(1)\n", "2\n")
    assert run(PAGE, block, {}) != block.output
