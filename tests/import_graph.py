"""The imports between files, read from the source, including those in functions and under TYPE_CHECKING."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = "callboard"
FRONT = "runtime/front"
"""The folder of the package ``callboard`` itself."""


def imports(source: str, path: Path) -> Iterator[tuple[str, bool]]:
    """The imports of a file: of this project as a path from the root with ``True``, of libraries as a name with False.

    The path is that of the statement: ``from .ports import Clock`` is "actors/ports".
    ``targets`` resolves it to a file.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (named(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            folder = path.parents[node.level - 1].relative_to(ROOT)
            target = folder.joinpath(*(node.module or "").split("."))
            # "from .. import actors" has the folder after ``import``.
            yield from ((str(target / alias.name) if target == Path() else str(target), True) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield named(node.module or "")


def named(dotted: str) -> tuple[str, bool]:
    """The import of an absolute name such as "callboard.actors.ports" or "pykka.messages", as in ``imports``."""
    top, *rest = dotted.split(".")
    return ("/".join(rest) or FRONT, True) if top == NAME else (top, False)


def targets(source: str, path: Path, files: frozenset[str]) -> Iterator[str]:
    """The files of this project that a file imports, as paths from the root without ``.py``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                target, is_own = named(alias.name)
                if is_own:
                    yield _file(target, files)
        elif isinstance(node, ast.ImportFrom):
            target, is_own = _from(node, path)
            if is_own:
                for alias in node.names:
                    submodule = f"{target}/{alias.name}".removeprefix("./")
                    yield submodule if submodule in files else _file(submodule, files, fallback=target)


def _from(node: ast.ImportFrom, path: Path) -> tuple[str, bool]:
    if not node.level:
        return named(node.module or "")
    folder = path.parents[node.level - 1].relative_to(ROOT)
    return str(folder.joinpath(*(node.module or "").split("."))), True


def _file(target: str, files: frozenset[str], fallback: str | None = None) -> str:
    """The file of a module, or the ``__init__`` of a package."""
    for candidate in (target, f"{FRONT}/{target}"):
        if candidate in files:
            return candidate
        if f"{candidate}/__init__" in files:
            return f"{candidate}/__init__"
    return target if fallback is None else _file(fallback, files)


def graph(paths: Iterable[Path]) -> dict[str, frozenset[str]]:
    """For each file the other files that it imports. Paths are from the root, without ``.py``."""
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
    components: list[tuple[str, ...]] = []
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
                        components.append(tuple(sorted(component)))
    return sorted(components)
