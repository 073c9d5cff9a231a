"""Runs the examples that stand in docstrings, under the names that a user imports."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import callboard.actors
import callboard.runtime


def modules_with_examples() -> Iterator[str]:
    for package in (callboard.actors, callboard.runtime):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            # In a checkout the front is also found under its folder's name.
            if ".front" not in module.name and ">>> " in source(module):
                yield module.name


def source(module: pkgutil.ModuleInfo) -> str:
    """The source of a module that is not imported: all of them together take seconds."""
    finder: Any = module.module_finder
    return str(finder.find_spec(module.name).loader.get_source(module.name))


@pytest.mark.parametrize("name", sorted(modules_with_examples()))
def test_docstring_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
