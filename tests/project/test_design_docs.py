"""docs/design.md describes what is there: packages in an order that the rules of imports have, files, and names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache

import pytest
from doc_pages import DOCS, dead_links
from import_graph import ROOT
from layers import PACKAGES, allowed, package_of

PAGE = DOCS / "design.md"
TEXT = PAGE.read_text()
FOLDERS = ("actors", "runtime", "spark", "bench")
SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
PARENTS = ("", "runtime/", "runtime/kafka/", "runtime/cli/")
"""Where a path in the table begins."""

FOREIGN = {"pykka", "callboard"}
"""What dotted names may begin with that is no class or module here."""


def rows() -> list[list[str]]:
    """The folders that each row of the table of packages names."""
    table = TEXT.partition("| package | what it is for |\n|---|---|\n")[2].partition("\n\n")[0]
    return [re.findall(r"`([\w/]+/)`", line.split("|")[1]) for line in table.splitlines()]


def folder_of(name: str) -> str:
    """The path from the root of a folder in the table."""
    return next(path for parent in PARENTS if (ROOT / (path := parent + name.rstrip("/"))).is_dir())


@cache
def positions() -> Mapping[str, list[int]]:
    """By package of ``layers.py``, the rows that name its folders. The first row is the base of ``actors/``."""
    found: dict[str, list[int]] = {"actors/base": [0]}
    for number, names in enumerate(rows()[1:], start=1):
        for name in names:
            folder = folder_of(name)
            package = "actors" if folder == "actors" else package_of(f"{folder}/__init__")
            assert package is not None, name
            found.setdefault(package, []).append(number)
    return found


def test_each_package_has_a_row() -> None:
    folders = {folder_of(name) for names in rows() for name in names}
    paths = {path for package in PACKAGES.values() for path in package.paths if (ROOT / path).is_dir()}
    assert {path for path in paths if not any(f"{folder}/".startswith(f"{path}/") for folder in folders)} == set()


def test_packages_import_only_rows_above_their_own() -> None:
    """Rows of the same package may be anywhere between."""
    below = [
        f"{package} imports {other}"
        for package, own in positions().items()
        if PACKAGES[package].may_import != ("*",)
        for other in allowed(package)
        if other in positions() and max(positions()[other]) > min(own)
    ]
    assert below == []


def test_files_exist() -> None:
    known = [f"/{path.relative_to(ROOT)}" for path in (*SOURCES, *(ROOT / "tests").rglob("*.py"))]
    named = set(re.findall(r"`([\w/]+\.py)`", TEXT))
    assert {name for name in named if not any(path.endswith(f"/{name}") for path in known)} == set()
    assert len(named) > 80


# Names ---------------------------------------------------------------------------------------------------------------


def dotted() -> set[tuple[str, str]]:
    """Names such as `Node.open`: a class or a module, and what is in it."""
    pairs = set(re.findall(r"`([A-Za-z_]+)\.([A-Za-z_]+)(?:\(\))?`", TEXT))
    return {
        pair
        for pair in pairs
        if pair[0] not in FOREIGN and pair[1] not in ("py", "json", "jsonl", "js", "cfg", "html", "toml")
    }


def members_of(name: str) -> Iterator[str]:
    """What a module, or a class and its bases, has: functions, fields, attributes of ``self``."""
    for path in SOURCES:
        source = path.read_text()
        if path.stem != name and f"class {name}" not in source:
            continue
        tree = ast.parse(source)
        if path.stem == name:
            yield from (node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name == name:
                yield from names_in(node)
                for base in node.bases:
                    yield from members_of(ast.unparse(base).partition("[")[0].rpartition(".")[2])


def names_in(class_: ast.ClassDef) -> Iterator[str]:
    for node in ast.walk(class_):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


@pytest.mark.parametrize(("owner", "name"), sorted(dotted()))
def test_dotted_name_exists(owner: str, name: str) -> None:
    assert owner in ("data", "topics") or name in set(members_of(owner))


def test_classes_exist() -> None:
    known = {match for path in SOURCES for match in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE)}
    known |= {
        match for path in SOURCES for match in re.findall(r"^([A-Z][A-Za-z]+)(?:: \w+)? = ", path.read_text(), re.M)
    }
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", TEXT))
    assert named - known - {"CoordinatorRuntime", "EventSource", "SortedDict"} == set()


def test_links_lead_somewhere() -> None:
    assert dead_links(PAGE) == []
