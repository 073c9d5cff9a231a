"""Runs the examples that stand in docstrings, under the names that a user imports."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import callboard.actors
import callboard.runtime

NAMES = [
    found.name
    for package in (callboard.actors, callboard.runtime)
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    if ".front" not in found.name  # in a checkout the front is also found under its folder's name
]


@pytest.mark.parametrize("name", NAMES)
def test_docstring_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
