"""Documentation pages whose code is tested: code blocks, their documented output, and links."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).resolve().parent.parent / "docs"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


class Block(NamedTuple):
    """A code block, the line where it begins, and its documented output."""

    line: int
    code: str
    output: str


def blocks(text: str, line: int = 1) -> Iterator[Block]:
    """The Python blocks of a text. A text block directly after a Python block is its output."""
    fences = list(FENCE.finditer(text))
    for fence, following in zip_longest(fences, fences[1:]):
        if fence[1] == "python":
            is_output = (
                following is not None and following[1] == "text" and not text[fence.end() : following.start()].strip()
            )
            output = following[2] if following is not None and is_output else ""
            yield Block(line + text.count("\n", 0, fence.start(2)), fence[2], output)


def sections(page: Path) -> dict[str, list[Block]]:
    """The blocks of each section (second-level heading) that has blocks."""
    text = page.read_text()
    headings = list(HEADING.finditer(text))
    ends = [*(heading.start() for heading in headings[1:]), len(text)]
    by_heading = {
        heading[1]: list(blocks(text[heading.end() : end], text.count("\n", 0, heading.end()) + 1))
        for heading, end in zip(headings, ends, strict=True)
    }
    return {heading: section for heading, section in by_heading.items() if section}


def run(page: Path, block: Block, names: dict[str, Any]) -> str:
    """Run a block and return its output. Tracebacks show the line of the page."""
    code = compile("\n" * (block.line - 1) + block.code, str(page), "exec", dont_inherit=True)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    return printed.getvalue()


def dead_links(page: Path) -> list[str]:
    """Links of a page to missing files, or to missing headings of the page."""
    text = page.read_text()
    anchors = {
        re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in re.findall(r"^#+ .+$", text, re.MULTILINE)
    }
    dead = []
    for target in re.findall(r"\]\(([^)]+)\)", text):
        path, _, anchor = target.partition("#")
        if not ((page.parent / path).exists() if path else anchor in anchors):
            dead.append(target)
    return dead
