"""docs/runtime.md does what it says: its code is run, and what it prints is what stands below it."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PAGE = Path(__file__).resolve().parent.parent / "docs" / "runtime.md"
DEADLINE_S = 120.0  # for a process that hangs
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
TEST_FILE = re.compile(r"# (test_\w+\.py)\n")


class Block(NamedTuple):
    """A piece of code, where it stands, and what it is said to print."""

    line: int
    code: str
    output: str


def blocks(text: str, line: int = 1) -> Iterator[Block]:
    """The python blocks of a text; a text block after one, with nothing between, is its output."""
    fences = list(FENCE.finditer(text))
    for fence, following in zip_longest(fences, fences[1:]):
        if fence[1] == "python":
            is_output = (
                following is not None and following[1] == "text" and not text[fence.end() : following.start()].strip()
            )
            output = following[2] if following is not None and is_output else ""
            yield Block(line + text.count("\n", 0, fence.start(2)), fence[2], output)


def sections() -> dict[str, list[Block]]:
    """The blocks under each heading of the second level."""
    text = PAGE.read_text()
    headings = list(HEADING.finditer(text))
    ends = [*(heading.start() for heading in headings[1:]), len(text)]
    found = {
        heading[1]: list(blocks(text[heading.end() : end], text.count("\n", 0, heading.end()) + 1))
        for heading, end in zip(headings, ends, strict=True)
    }
    return {name: those for name, those in found.items() if those}


def run(block: Block, names: dict[str, Any]) -> str:
    """Run a block where it stands, so that a traceback names the line of the page; returns what it prints."""
    code = compile("\n" * (block.line - 1) + block.code, str(PAGE), "exec", dont_inherit=True)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    return printed.getvalue()


def run_tests(name: str, block: Block, folder: Path) -> None:
    """A block that is a file of tests: they pass, all of them."""
    path = folder / name
    path.write_text(block.code)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), name],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("section", sections())
def test_the_code_of_a_section_does_what_stands_below_it(
    section: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in sections()[section]:
        if test_file := TEST_FILE.match(block.code):
            run_tests(test_file[1], block, tmp_path)
        else:
            assert run(block, names) == block.output, f"docs/runtime.md, line {block.line}"


def test_the_page_has_code_in_most_sections() -> None:
    """If the page were written in a way that this file does not read, nothing would be tested."""
    assert len(sections()) >= 8
    assert sum(len(those) for those in sections().values()) == PAGE.read_text().count("```python")


def test_links_on_the_page_lead_somewhere() -> None:
    text = PAGE.read_text()
    anchors = {
        re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in re.findall(r"^#+ .+$", text, re.MULTILINE)
    }
    for target in re.findall(r"\]\(([^)]+)\)", text):
        path, _, anchor = target.partition("#")
        assert not path or (PAGE.parent / path).exists(), target
        assert path or anchor in anchors, target


def test_a_wrong_output_is_found() -> None:
    (block,) = blocks("```python\nprint(1)\n```\n\n```text\n2\n```\n")
    assert block == Block(2, "print(1)\n", "2\n")
    assert run(block, {}) != block.output
