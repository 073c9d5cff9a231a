"""The names that a program imports from the packages themselves, and what importing the packages costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pykka
import pytest

import callboard.actors
import callboard.runtime
import callboard.testing

DEADLINE_S = 300.0
PACKAGES = (callboard.actors, callboard.runtime)
LAZY_MODULES = (*PACKAGES, callboard.testing)
NAMES = [(package, name) for package in PACKAGES for name in package.__all__]
# Outside of the standard library, what a program with actors must not pay for.
HEAVY = ("kio", "rich", "structlog", "typer", "uvloop")
each_name = pytest.mark.parametrize(
    ("package", "name"), NAMES, ids=[f"{where.__name__}.{name}" for where, name in NAMES]
)


def names_for_type_checkers(package: ModuleType) -> dict[str, str]:
    """The imports under ``if TYPE_CHECKING``: each name, and the module that it is from."""
    assert package.__file__ is not None
    (block,) = [node for node in ast.parse(Path(package.__file__).read_text()).body if isinstance(node, ast.If)][:1]
    return {
        alias.name: f"{package.__name__}.{line.module}" if line.level else str(line.module)
        for line in block.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }


def loaded_after(code: str) -> set[str]:
    """The modules that a fresh Python has loaded after ``code``."""
    program = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    return set(done.stdout.split())


@each_name
def test_public_name_is_same_object_as_for_type_checkers(package: ModuleType, name: str) -> None:
    module = import_module(names_for_type_checkers(package)[name])
    assert getattr(package, name) is getattr(module, name)


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_equal_those_for_type_checkers(package: ModuleType) -> None:
    assert sorted(names_for_type_checkers(package)) == sorted(package.__all__)


@pytest.mark.parametrize("module", LAZY_MODULES)
def test_dir_lists_public_names(module: ModuleType) -> None:
    assert [name for name in dir(module) if not name.startswith("_")] == sorted(module.__all__)


def test_public_errors_have_one_base_class() -> None:
    public = [getattr(callboard, name) for name in dir(callboard)] + [getattr(where, name) for where, name in NAMES]
    errors = [value for value in public if isinstance(value, type) and issubclass(value, Exception)]
    of_pykka = {pykka.ActorDeadError, pykka.Timeout}
    assert len(errors) >= 10
    assert {error for error in errors if not issubclass(error, callboard.CallboardError)} == of_pykka


@pytest.mark.parametrize("package", PACKAGES)
def test_unknown_name_raises_attribute_error_with_known_names(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=rf"{package.__name__}.*'Aktor'.*{package.__all__[-1]}"):
        getattr(package, "Aktor")  # noqa: B009 (mypy knows that there is none)
    with pytest.raises(ImportError):
        exec(f"from {package.__name__} import Aktor")


@pytest.mark.parametrize("package", PACKAGES)
def test_import_of_package_loads_none_of_its_modules(package: ModuleType) -> None:
    loaded = loaded_after(f"import {package.__name__}")
    assert package.__name__ in loaded
    assert [name for name in loaded if name.startswith(f"{package.__name__}.")] == []
    assert not loaded & {"asyncio", "pykka"}


def test_import_of_engine_loads_no_coordinator() -> None:
    loaded = loaded_after("from callboard.actors import Actor\nfrom callboard.runtime import System")
    assert "callboard.runtime.engine.system" in loaded
    assert not loaded & set(HEAVY)
    assert [name for name in loaded if name.startswith(("callboard.runtime.kafka", "callboard.runtime.log."))] == []
