"""Lazy import of kio, the library of Kafka's message schemas, without hypothesis.

If hypothesis is installed, kio imports it for strategies that are not needed here, which takes 0.2 to 3 s in the first
request of a test run. Therefore the module of kio that imports it is loaded while hypothesis is hidden.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

_IMPORTING_MODULE = "kio.static._phantom"
_HIDDEN_MODULE = "hypothesis"


def kio(name: str) -> ModuleType:
    """Import a module of kio by its relative name: ``serial``, ``schema.errors``."""
    if _IMPORTING_MODULE not in sys.modules and _HIDDEN_MODULE not in sys.modules:
        hidden: Any = None
        sys.modules[_HIDDEN_MODULE] = hidden
        try:
            import_module(_IMPORTING_MODULE)
        finally:
            del sys.modules[_HIDDEN_MODULE]
    return import_module(f"kio.{name}")
