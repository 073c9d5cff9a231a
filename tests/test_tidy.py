"""Limits that keep the house readable, and words and calls that have no place in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("actors", "runtime", "spark")
CODE = [path for folder in (*PRODUCT, "bench", "examples", "tests") for path in sorted((ROOT / folder).rglob("*.py"))]
ACTORS = sorted((ROOT / "actors").rglob("*.py"))
TEXTS = [*CODE, *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / ".ci").iterdir())] + [
    path for path in sorted(ROOT.iterdir()) if path.is_file() and path.name not in ("LICENSE", ".git")
]

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
FUNCTION_LINES_MEDIAN = 8  # the median stays under it
LINE_CHARS_MAX = 120

# The world that actors reach through ports alone: time, chance, disk, network, other threads.
OUTSIDE_MODULES = {
    *("time", "datetime", "random", "secrets", "uuid", "os", "io", "pathlib", "shutil", "tempfile", "socket", "ssl"),
    *("selectors", "asyncio", "threading", "_thread", "queue", "multiprocessing", "concurrent", "subprocess", "signal"),
}
OUTSIDE_NAMES = {"open", "print", "input", "exec", "eval"}
LOCKS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Barrier"}

# In brackets, so that this file does not find itself.
LEFTOVER = re.compile(r"\b(?:T[O]DO|F[I]XME|X[X]X|H[A]CK|W[I]P)\b")
SOMEBODYS_FOLDER = re.compile(r"(?<![\w./$}{-])/(?:home|root|tmp|work|mnt|Users)/\w+")
UPWARD = re.compile(r"(?<![\w.])(?:\.\./)+[\w./-]+")


def by_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


each_text = pytest.mark.parametrize("path", TEXTS, ids=by_name)
each_code_file = pytest.mark.parametrize("path", CODE, ids=by_name)
each_actors_file = pytest.mark.parametrize("path", ACTORS, ids=by_name)


def functions(source: str) -> Iterator[tuple[str, int]]:
    """Name and length of every function, its docstring and its decorators not counted."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if ast.get_docstring(node):
                text = node.body[0]
                lines -= (text.end_lineno or text.lineno) - text.lineno + 1
            yield node.name, lines


def outside_calls(source: str) -> list[str]:
    """What in a source reaches round the ports: modules, built-in functions, locks."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in OUTSIDE_MODULES]
        elif (
            isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] in OUTSIDE_MODULES
        ):
            found.append(node.module or "")
        elif isinstance(node, ast.Name) and node.id in OUTSIDE_NAMES | LOCKS:
            found.append(node.id)
        elif isinstance(node, ast.Attribute) and node.attr in LOCKS:
            found.append(node.attr)
    return found


@each_code_file
def test_files_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= FILE_LINES_MAX


@each_code_file
def test_functions_fit_a_screen(path: Path) -> None:
    assert [found for found in functions(path.read_text()) if found[1] > FUNCTION_LINES_MAX] == []


def test_most_functions_are_a_few_lines() -> None:
    lengths = [
        lines for path in CODE if path.relative_to(ROOT).parts[0] in PRODUCT for _, lines in functions(path.read_text())
    ]
    assert median(lengths) < FUNCTION_LINES_MEDIAN


def test_a_docstring_is_no_part_of_a_functions_length() -> None:
    source = 'def one(a):\n    """Two\n    lines."""\n    return a\n\n\nasync def two():\n    pass\n'
    assert list(functions(source)) == [("one", 2), ("two", 2)]


@each_code_file
def test_a_file_begins_with_what_it_is(path: Path) -> None:
    source = path.read_text()
    assert not source.strip() or ast.get_docstring(ast.parse(source)) is not None


@each_actors_file
def test_actors_reach_the_world_through_ports_alone(path: Path) -> None:
    assert outside_calls(path.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "import time",
        "import os.path",
        "from random import choice",
        "from concurrent.futures import Future",
        "print('x')",
        "with open('x') as f: ...",
        "def f():\n    import threading",
        "lock = Lock()",
        "lock = pykka.anything.RLock()",
    ],
)
def test_reaching_round_the_ports_is_found(line: str) -> None:
    assert outside_calls(line)


@each_text
def test_nothing_is_left_over(path: Path) -> None:
    assert LEFTOVER.findall(path.read_text()) == []


@each_text
def test_nothing_points_out_of_the_repository(path: Path) -> None:
    text = path.read_text()
    assert SOMEBODYS_FOLDER.findall(text) == []
    for upward in UPWARD.findall(text):
        target = (path.parent / upward).resolve()
        assert target.is_relative_to(ROOT) and target.exists(), upward
