"""``new_tuple`` does not count the fields that it gets, so each place in the code gives all of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module

from project_paths import ROOT

from callboard.actors.messages import Commit
from callboard.actors.new_tuple import new_tuple

PLACES_MIN = 10


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "new_tuple":
            yield node


def wrong_calls(tree: ast.AST, module: object) -> list[str]:
    """The lines of calls that do not give a tuple with each field of a class of the module's."""
    wrong = []
    for call in calls(tree):
        tuple_class, fields = call.args
        assert isinstance(tuple_class, ast.Name)
        expected = getattr(module, tuple_class.id)._fields
        if not isinstance(fields, ast.Tuple) or len(fields.elts) != len(expected):
            wrong.append(f"line {call.lineno}: expected a tuple of {', '.join(expected)}")
    return wrong


def test_all_fields_are_given() -> None:
    found = {}
    for path in sorted((*(ROOT / "actors").rglob("*.py"), *(ROOT / "runtime").rglob("*.py"))):
        tree = ast.parse(path.read_text())
        if any(calls(tree)):
            found[path] = len(list(calls(tree)))
            module = import_module(".".join(("callboard", *path.relative_to(ROOT).with_suffix("").parts)))
            assert wrong_calls(tree, module) == [], path
    assert sum(found.values()) >= PLACES_MIN


def test_missing_field_is_found() -> None:
    module = import_module("callboard.actors.messages")
    assert wrong_calls(ast.parse("new_tuple(Commit, (1, 2, 3, 4, 5))"), module) == []
    assert wrong_calls(ast.parse("new_tuple(Commit, (1, 2, 3, 4))"), module) != []
    assert wrong_calls(ast.parse("new_tuple(Commit, fields)"), module) != []


def test_same_as_the_constructor() -> None:
    made = new_tuple(Commit, ("t", 1, 2, 3, ""))
    assert made == Commit("t", 1, 2, 3, "")
    assert type(made) is Commit
    assert made.metadata == ""
