"""A pytest plugin for kafka-python's integration tests: it adds modules that its source distribution lacks.

The tests import ``test`` and ``test.service``. ``test`` has no ``__init__.py`` there, so Python would import the
standard library's ``test``; ``test.service`` is missing. With a running server the tests need only two of its names.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


class ExternalService:
    """A broker that is already running."""

    def __init__(self, host: str, port: int) -> None:
        self.address = f"{host}:{port}"


class SpawnedService:
    """A broker started by the suite, which is an error here."""

    def __init__(self, *arguments: Any) -> None:
        raise AssertionError(f"the suite tried to start a server: {arguments}")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Runs before any module of the suite is imported."""
    package, service = ModuleType("test"), ModuleType("test.service")
    package.__path__ = [str(Path.cwd() / "test")]
    service.__dict__.update(ExternalService=ExternalService, SpawnedService=SpawnedService)
    sys.modules.update({"test": package, "test.service": service})
