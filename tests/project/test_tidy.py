"""Limits that keep the house readable, and words and calls that have no place in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import median

import pytest
from project_paths import ROOT

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

DOCSTRING = re.compile(r'(?:\s|#.*)*r?"')

# In brackets, so that this file does not find itself.
LEFTOVER = re.compile(r"\b(?:T[O]DO|F[I]XME|X[X]X|H[A]CK|W[I]P)\b")
SOMEBODYS_FOLDER = re.compile(r"(?<![\w./$}{-])/(?:home|root|tmp|work|mnt|Users)/\w+")
UPWARD = re.compile(r"(?<![\w.])(?:\.\./)+[\w./-]+")


Rule = Callable[[str], Iterable[object]]
"""What in a source breaks a rule."""


def offenders(rule: Rule, paths: Iterable[Path]) -> list[str]:
    """All that break a rule, as "path: what"."""
    return [f"{path.relative_to(ROOT)}: {what}" for path in paths for what in rule(path.read_text())]


@cache
def functions(source: str) -> Sequence[tuple[str, int]]:
    """Name and length of every function, its docstring and its decorators not counted."""
    return tuple(_functions(source))


def _functions(source: str) -> Iterator[tuple[str, int]]:
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


def too_many_lines(source: str) -> list[int]:
    lines = len(source.splitlines())
    return [lines] if lines > FILE_LINES_MAX else []


def long_functions(source: str) -> list[tuple[str, int]]:
    return [function for function in functions(source) if function[1] > FUNCTION_LINES_MAX]


def test_files_are_short() -> None:
    assert offenders(too_many_lines, CODE) == []


def test_functions_are_short() -> None:
    assert offenders(long_functions, CODE) == []


def test_long_file_and_long_function_are_reported() -> None:
    assert too_many_lines("pass\n" * (FILE_LINES_MAX + 1)) == [FILE_LINES_MAX + 1]
    assert too_many_lines("pass\n" * FILE_LINES_MAX) == []
    body = "        pass\n" * FUNCTION_LINES_MAX
    assert long_functions(f"class C:\n    def f(self):\n{body}") == [("f", FUNCTION_LINES_MAX + 1)]
    assert long_functions(f"async def f():\n{body}".removesuffix("        pass\n")) == []


def test_most_functions_are_a_few_lines() -> None:
    lengths = [
        lines for path in CODE if path.relative_to(ROOT).parts[0] in PRODUCT for _, lines in functions(path.read_text())
    ]
    assert median(lengths) < FUNCTION_LINES_MEDIAN


def test_docstring_does_not_count_as_function_length() -> None:
    source = 'def one(a):\n    """Two\n    lines."""\n    return a\n\n\nasync def two():\n    pass\n'
    assert functions(source) == (("one", 2), ("two", 2))


def missing_docstring(source: str) -> list[str]:
    has_one = not source.strip() or DOCSTRING.match(source) is not None
    return [] if has_one else ["no docstring"]


def test_every_file_has_a_docstring() -> None:
    assert offenders(missing_docstring, CODE) == []


def test_file_without_docstring_is_reported() -> None:
    assert missing_docstring("import ast\n") == ["no docstring"]
    assert missing_docstring('"""What it is."""\n') == missing_docstring("\n") == []


def test_actors_use_only_ports_for_io() -> None:
    assert offenders(outside_calls, ACTORS) == []


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
def test_io_in_actors_is_reported(line: str) -> None:
    assert outside_calls(line)


# Of asyncio: an event loop and its handles have no public names for them.
PRIVATE_OF_ASYNCIO = {"_set_running_loop", "_run", "_log_destroy_pending"}
PUBLIC_OF_TUPLES = {"_asdict", "_fields", "_make", "_replace"}


def private_attributes(source: str) -> list[str]:
    """Private attributes of other objects than ``self``, ``cls`` and ``super()``."""
    return [
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.endswith("__")
        and node.attr not in PRIVATE_OF_ASYNCIO | PUBLIC_OF_TUPLES
        and ast.unparse(node.value) not in ("self", "cls", "super()")
    ]


def test_testing_tools_use_no_private_attributes() -> None:
    """Timeline, clock and checkers read events and public attributes of actors and groups."""
    assert offenders(private_attributes, sorted((ROOT / "runtime" / "testing").rglob("*.py"))) == []


@pytest.mark.parametrize("line", ["actor._group", "self.actor._group.members", "f(x)._y", "del a._b", "a._b = 1"])
def test_private_attribute_is_reported(line: str) -> None:
    assert private_attributes(line)


def test_own_and_public_attributes_are_not_reported() -> None:
    assert private_attributes("self._a, cls._b, super()._c(), a._replace(c=1), a.__class__, a.group, loop._run()") == []


def paths_outside(source: str, path: Path) -> list[str]:
    """Folders of somebody's machine, and paths from ``path`` that lead out of the repository or to nothing."""
    upward = UPWARD.findall(source)
    targets = [(path.parent / name).resolve() for name in upward]
    return SOMEBODYS_FOLDER.findall(source) + [
        name
        for name, target in zip(upward, targets, strict=True)
        if not (target.is_relative_to(ROOT) and target.exists())
    ]


def test_no_leftovers_in_files() -> None:
    assert offenders(LEFTOVER.findall, TEXTS) == []


def test_no_paths_outside_of_the_repository() -> None:
    found = [(str(path.relative_to(ROOT)), paths_outside(path.read_text(), path)) for path in TEXTS]
    assert [offender for offender in found if offender[1]] == []


@pytest.mark.parametrize("word", ["todo", "fixme", "xxx", "hack", "wip"])
def test_leftover_is_reported(word: str) -> None:
    assert LEFTOVER.findall(f"# {word.upper()}: later") == [word.upper()]
    assert LEFTOVER.findall(f"# {word}, {word.upper()}S") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in ~home~somebody~project", ["~home~somebody"]),
        ("see ..~..~README.md", ["..~..~README.md"]),
        ("see ..~README.md", []),
        ("see ..~nothing.md", ["..~nothing.md"]),
    ],
)
def test_path_outside_of_the_repository_is_reported(text: str, expected: list[str]) -> None:
    """A tilde stands for a slash, so that this file does not find itself."""
    slashes = [path.replace("~", "/") for path in (text, *expected)]
    assert paths_outside(slashes[0], ROOT / "docs" / "made_up.md") == slashes[1:]
