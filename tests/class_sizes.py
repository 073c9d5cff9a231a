"""The sizes of classes, read from the source: methods, attributes and booleans, inherited ones included."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

NOT_COUNTED = ("Protocol", "Enum", "IntEnum", "StrEnum", "Flag", "IntFlag")
"""Bases of classes that have no size: they have members, but no state."""


class Size(NamedTuple):
    """How many methods (properties included), instance attributes, and attributes that are True or False."""

    methods: int
    attributes: int
    booleans: int

    def exceeds(self, other: Size) -> bool:
        return any(own > limit for own, limit in zip(self, other, strict=True))


class Members(NamedTuple):
    """The names of the members of one class."""

    methods: frozenset[str]
    attributes: frozenset[str]
    booleans: frozenset[str]

    def with_inherited(self, inherited: Members) -> Members:
        return Members(*(own | more for own, more in zip(self, inherited, strict=True)))

    def without_overridden(self) -> Members:
        """A property that implements an attribute of a base is a method."""
        return Members(self.methods, self.attributes - self.methods, self.booleans - self.methods)


class ClassSource(NamedTuple):
    path: str
    node: ast.ClassDef

    @property
    def bases(self) -> list[str]:
        """The names of the bases, without packages and type arguments."""
        return [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in self.node.bases]

    @property
    def is_counted(self) -> bool:
        return not any(base in NOT_COUNTED for base in self.bases)


def class_sizes(sources: Mapping[str, str], exceptions: Collection[str] = ()) -> dict[str, Size]:
    """The size of each class, by "path:name". ``sources``: texts by path.

    What it inherits from another package, or from one of the ``exceptions``, is not counted.
    """
    classes = [
        ClassSource(path, node)
        for path, text in sources.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    ]
    by_name: dict[str, list[ClassSource]] = {}
    for source in classes:
        if f"{source.path}:{source.node.name}" in exceptions:
            continue
        by_name.setdefault(source.node.name, []).append(source)
    return {
        f"{source.path}:{source.node.name}": Size(*map(len, _all_members(source, by_name).without_overridden()))
        for source in classes
        if source.is_counted
    }


def read_sources(root: Path, folders: Iterable[str]) -> dict[str, str]:
    paths = (path for folder in folders for path in sorted((root / folder).rglob("*.py")))
    return {str(path.relative_to(root)): path.read_text() for path in paths}


def _all_members(source: ClassSource, by_name: Mapping[str, list[ClassSource]]) -> Members:
    members = _own_members(source.node)
    for base in source.bases:
        candidates = [other for other in by_name.get(base, ()) if other.node is not source.node and other.is_counted]
        if candidates:  # of several classes with that name, the one in the same file
            nearest = min(candidates, key=lambda other: other.path != source.path)
            members = members.with_inherited(_all_members(nearest, by_name))
    return members


def _own_members(node: ast.ClassDef) -> Members:
    functions = [child for child in node.body if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)]
    attributes: dict[str, bool] = {}
    for child in node.body:
        if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            annotation = ast.unparse(child.annotation)
            if "ClassVar" not in annotation:
                attributes[child.target.id] = annotation == "bool"
    for function in functions:
        for name, is_boolean in _assigned(function):
            attributes[name] = attributes.get(name, False) or is_boolean
    booleans = frozenset(name for name, is_boolean in attributes.items() if is_boolean)
    return Members(frozenset(function.name for function in functions), frozenset(attributes), booleans)


def _assigned(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, bool]]:
    """The attributes of ``self`` that a method assigns, and whether they are seen to be booleans."""
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    flags = {each.arg for each in arguments if each.annotation is not None and ast.unparse(each.annotation) == "bool"}
    for node in ast.walk(function):
        targets: list[ast.expr] = []
        is_boolean = False
        if isinstance(node, ast.AnnAssign):
            targets, is_boolean = [node.target], ast.unparse(node.annotation) == "bool"
        elif isinstance(node, ast.Assign):
            targets = node.targets
            value = node.value
            is_boolean = (isinstance(value, ast.Constant) and isinstance(value.value, bool)) or (
                isinstance(value, ast.Name) and value.id in flags
            )
        for target in targets:
            for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self":
                    yield part.attr, is_boolean
