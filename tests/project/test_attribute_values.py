"""An attribute has a value from the constructor on: no method can meet an object without it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from project_paths import ROOT

FOLDERS = ("actors", "runtime", "spark", "bench", "examples")
BASES_WITHOUT_CONSTRUCTOR = ("Protocol", "NamedTuple", "TypedDict")
"""Their annotations are an interface, or the arguments of a constructor that is generated."""

EXCEPTIONS: dict[str, str] = {
    "actors/assignors/base.py:Assignor.name": "abstract: each assignor has its own",
    "actors/coordinator/directory.py:Directory.coordinator": "the coordinator sets it when it is constructed",
    "actors/group/core.py:GroupCore.tables": "set by the module of the tables, whose functions take a GroupCore",
    "actors/group/core.py:GroupCore.deadlines": "set by the module of the tables, whose functions take a GroupCore",
    "bench/concurrency/actor_engines.py:ActorEngine.system": "a subclass sets it in prepare, which its base calls",
    "bench/concurrency/engines.py:Engine.timer": "a subclass sets it in prepare, which the constructor calls",
    "bench/timer_designs.py:TimerDesign.items": "abstract: each design has its own",
    "bench/timer_designs.py:TimerDesign.add": "abstract: each design has its own, called without a lookup",
    "bench/timer_designs.py:TimerDesign.drop": "abstract: each design has its own, called without a lookup",
    "runtime/kafka/call.py:Call._encode": "set by what sends the message; a value before would cost each request",
    "runtime/kafka/connections/connection.py:Connection.transport": "asyncio passes it to connection_made first",
    "runtime/tls/connection.py:TlsConnection._transport": "asyncio passes it to connection_made, its first call",
    "runtime/testing/plugin/harness.py:Harness.node": "attach sets it before a test gets the harness",
}
"""Attributes that get their value elsewhere, with the reason."""


def test_attributes_have_a_value_from_the_constructor_on() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{name}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in _attributes_without_value(path)
    }
    assert found - set(EXCEPTIONS) == set(), "give these attributes a value in the constructor"
    assert set(EXCEPTIONS) - found == set(), "these exceptions are not needed"


def test_annotation_alone_is_no_value(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("""
class Plain:
    a: int
    b: int = 1
    c: ClassVar[int]
    d: int
    def __init__(self) -> None:
        self.e: int
        self.f: int = 2
        self.d, self.g = 3, 4
    def grow(self) -> None:
        self.a = self.e = 5
        self.h: int

class Text(str):
    kind: str
    def __new__(cls) -> Text:
        text = super().__new__(cls)
        text.kind = ""
        return text

class Row(NamedTuple):
    a: int

@dataclass(frozen=True)
class Record:
    a: int
""")
    assert sorted(_attributes_without_value(path)) == ["Plain.a", "Plain.c", "Plain.e", "Plain.h"]


def _attributes_without_value(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef) and not _has_generated_constructor(node):
            yield from (f"{node.name}.{name}" for name in sorted(_declared(node) - _with_value(node)))


def _has_generated_constructor(node: ast.ClassDef) -> bool:
    bases = {ast.unparse(base).partition("[")[0].removeprefix("typing.") for base in node.bases}
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    return not bases.isdisjoint(BASES_WITHOUT_CONSTRUCTOR) or any("dataclass" in text for text in decorators)


def _declared(node: ast.ClassDef) -> set[str]:
    """The attributes that are annotated somewhere without a value, in the class or in a method."""
    in_class = [child for child in node.body if isinstance(child, ast.AnnAssign)]
    in_methods = [
        child
        for method in node.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.walk(method)
        if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Attribute)
    ]
    return {_name(child.target) for child in (*in_class, *in_methods) if child.value is None}


def _with_value(node: ast.ClassDef) -> set[str]:
    """The attributes that have a value in the class, or get one in a constructor."""
    assigned: list[ast.expr] = []
    for child in node.body:
        if isinstance(child, ast.FunctionDef) and child.name in ("__init__", "__new__"):
            assigned += [target for part in ast.walk(child) for target in _targets(part)]
        else:
            assigned += _targets(child)
    return {_name(target) for target in assigned if isinstance(target, ast.Name | ast.Attribute)}


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.AnnAssign):
        return [] if node.value is None else [node.target]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]


def _name(target: ast.expr) -> str:
    return target.attr if isinstance(target, ast.Attribute) else ast.unparse(target)
