"""Names that were given up do not come back. docs/design.md has a glossary of those in use."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator

import pytest
from import_graph import ROOT

FOLDERS = ("actors", "runtime", "spark", "bench", "examples")
GIVEN_UP = {
    "Around": "Environment",
    "BlockingShare": "BlockingShard",
    "LocalDoor": "LocalConnector",
    "Meeting": "Interception",
    "Share": "Shard",
    "Surroundings": "GroupEnvironment",
    "Tap": "Interceptor",
    "TappedCall": "InterceptedCall",
    "TcpDoor": "TcpConnector",
    "Wiretap": "FaultInterceptor",
    "WorkLost": "ShardLost",
    "next_work": "next_assignment",
    "share_name": "shard_name",
    "surroundings": "environment",
}
"""A name, and what is said instead."""


def given_up(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and token.string in GIVEN_UP:
            yield f"line {token.start[0]}: {token.string}, say {GIVEN_UP[token.string]}"


def test_no_file_uses_a_name_that_was_given_up() -> None:
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert [f"{path.relative_to(ROOT)}: {use}" for path in files for use in given_up(path.read_text())] == []


@pytest.mark.parametrize("line", ["class Tap:\n    pass\n", "from a import Share\n", "node.surroundings = 1\n"])
def test_name_that_was_given_up_is_found(line: str) -> None:
    assert len(list(given_up(line))) == 1


def test_comments_and_strings_are_not_looked_at() -> None:
    assert list(given_up('x = "Tap"  # Share\n')) == []
