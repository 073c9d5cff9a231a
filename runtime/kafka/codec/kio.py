"""kio, the library that knows Kafka's messages, is imported through here: late, and without hypothesis.

Where hypothesis is installed kio imports it, for strategies that nobody here needs: 0.2 to 3 s, in the first request of
a test run. So the one module of kio's that asks for it is imported while it seems to be missing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

_ASKS = "kio.static._phantom"
_ASKED = "hypothesis"


def kio(name: str) -> ModuleType:
    """A module of kio's by its name below it: ``serial``, ``schema.errors``."""
    if _ASKS not in sys.modules and _ASKED not in sys.modules:
        hidden: Any = None
        sys.modules[_ASKED] = hidden
        try:
            import_module(_ASKS)
        finally:
            del sys.modules[_ASKED]
    return import_module(f"kio.{name}")
