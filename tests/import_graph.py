"""Which file imports which, read from the source. Imports inside functions and under TYPE_CHECKING count too."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = "callboard"
FRONT = "runtime/front"
"""The folder that is the import name itself."""


def imports(source: str, path: Path) -> Iterator[tuple[str, bool]]:
    """What a file imports: ours as a path from the root and ``True``, a library as its top-level name and ``False``.

    Ours is named as it stands there: ``from .ports import Clock`` is "actors/ports", ``from . import ports`` is
    "actors". ``targets`` says which file that is.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (named(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            folder = path.parents[node.level - 1].relative_to(ROOT)
            target = folder.joinpath(*(node.module or "").split("."))
            # "from .. import actors" names the folder behind the word import.
            yield from ((str(target / alias.name) if target == Path() else str(target), True) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield named(node.module or "")


def named(dotted: str) -> tuple[str, bool]:
    """The same for an absolute name: "callboard.actors.ports", "pykka.messages"."""
    top, *rest = dotted.split(".")
    return ("/".join(rest) or FRONT, True) if top == NAME else (top, False)


def targets(source: str, path: Path, files: frozenset[str]) -> Iterator[str]:
    """The files of ours that a file imports, as paths from the root without ``.py``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                target, is_ours = named(alias.name)
                if is_ours:
                    yield _file(target, files)
        elif isinstance(node, ast.ImportFrom):
            target, is_ours = _from(node, path)
            if is_ours:
                for alias in node.names:
                    submodule = f"{target}/{alias.name}".removeprefix("./")
                    yield submodule if submodule in files else _file(submodule, files, otherwise=target)


def _from(node: ast.ImportFrom, path: Path) -> tuple[str, bool]:
    if not node.level:
        return named(node.module or "")
    folder = path.parents[node.level - 1].relative_to(ROOT)
    return str(folder.joinpath(*(node.module or "").split("."))), True


def _file(target: str, files: frozenset[str], otherwise: str | None = None) -> str:
    """A module is its own file, a package its ``__init__``."""
    for candidate in (target, f"{FRONT}/{target}"):
        if candidate in files:
            return candidate
        if f"{candidate}/__init__" in files:
            return f"{candidate}/__init__"
    return target if otherwise is None else _file(otherwise, files)


def graph(paths: Iterable[Path]) -> dict[str, frozenset[str]]:
    """For each file those that it imports, itself left out. Paths are from the root and without ``.py``."""
    names = {path: str(path.relative_to(ROOT).with_suffix("")) for path in paths}
    files = frozenset(names.values())
    return {
        name: frozenset(target for target in targets(path.read_text(), path, files) if target in files) - {name}
        for path, name in names.items()
    }


def circles(edges: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """Sets of nodes that reach each other (strongly connected components of two or more), sorted. Tarjan, iterative."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_nodes: list[str] = []
    is_open: set[str] = set()
    found: list[tuple[str, ...]] = []
    for root in sorted(edges):
        work = [] if root in index else [(root, iter(sorted(edges[root])))]
        while work:
            node, following = work[-1]
            if node not in index:
                index[node] = lowest[node] = len(index)
                open_nodes.append(node)
                is_open.add(node)
            for target in following:
                if target not in index:
                    work.append((target, iter(sorted(edges.get(target, ())))))
                    break
                if target in is_open:
                    lowest[node] = min(lowest[node], lowest[target])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
                if lowest[node] == index[node]:
                    position = open_nodes.index(node)
                    component, open_nodes[position:] = open_nodes[position:], []
                    is_open.difference_update(component)
                    if len(component) > 1:
                        found.append(tuple(sorted(component)))
    return sorted(found)
