"""A class has few members, counting those that it inherits from classes of this project. See ``class_sizes``."""

from __future__ import annotations

import pytest
from class_sizes import Size, class_sizes, read_sources
from project_paths import ROOT

LIMIT = Size(methods=25, attributes=15, booleans=4)
FOLDERS = ("actors", "runtime", "spark", "bench", "examples")

EXCEPTIONS: dict[str, str] = {
    "runtime/settings/table.py:Settings": "one attribute for each setting",
    "runtime/testing/simulation/loop.py:VirtualLoop": "asyncio defines the interface of an event loop",
    "runtime/embed/lifecycle.py:AsyncCoordinator": "the public interface of a coordinator: a method for each operation",
    "runtime/embed/thread.py:ThreadCoordinator": "the same interface in a blocking form",
    "runtime/testing/simulation/scenario.py:Sim": "the public interface of a scenario: a method for each action",
}
"""Classes above the limit, with the reason. At most five. What a class inherits from them is not counted again."""


@pytest.fixture(scope="module")
def sizes() -> dict[str, Size]:
    return class_sizes(read_sources(ROOT, FOLDERS), EXCEPTIONS)


def test_no_class_is_above_the_limit(sizes: dict[str, Size]) -> None:
    too_large = {name: size for name, size in sizes.items() if name not in EXCEPTIONS and size.exceeds(LIMIT)}
    assert not too_large, "divide these classes"


def test_exceptions_are_few_and_needed(sizes: dict[str, Size]) -> None:
    assert len(EXCEPTIONS) <= 5
    assert [name for name in EXCEPTIONS if name not in sizes or not sizes[name].exceeds(LIMIT)] == []


def test_members_of_bases_and_assigned_attributes_are_counted() -> None:
    source = """
class Base:
    kind: ClassVar[str] = "x"
    size: int
    def __init__(self, is_open: bool) -> None:
        self.is_open = is_open
        self.a, self.b = 1, 2
    @property
    def name(self) -> str: ...

class Derived(Base, other.Mixin):
    def grow(self) -> None:
        self.is_large = True
        other.c = 3

class Shape(Protocol):
    def grow(self) -> None: ...
"""
    assert class_sizes({"x.py": source}) == {"x.py:Base": Size(2, 4, 1), "x.py:Derived": Size(3, 5, 2)}
