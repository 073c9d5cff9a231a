"""A pytest plugin for kafka-python's integration tests: it completes what the source distribution has of them.

The tests import a package ``test``, which has no ``__init__.py`` there, so that Python would take its own, and
``test.service``, which is left out. With a server that runs already, they need no more of it than a name.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


class ExternalService:
    """A broker that somebody else started."""

    def __init__(self, host: str, port: int) -> None:
        self.address = f"{host}:{port}"


class SpawnedService:
    """A broker that the suite starts itself, which it is not to do here."""

    def __init__(self, *arguments: Any) -> None:
        raise AssertionError(f"the suite wants to start a server of its own: {arguments}")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Before anything of the suite is imported."""
    package, service = ModuleType("test"), ModuleType("test.service")
    package.__path__ = [str(Path.cwd() / "test")]
    service.__dict__.update(ExternalService=ExternalService, SpawnedService=SpawnedService)
    sys.modules.update({"test": package, "test.service": service})
