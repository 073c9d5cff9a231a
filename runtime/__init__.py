"""Runs and serves the coordinator. ``engine/`` runs the actors of any program; docs/runtime.md is its guide.

From the bottom up: ``common``, ``engine``, ``disk``, ``settings``, ``log``, ``topics``, ``kafka``, ``client``,
``loading``, ``node``, ``member``, ``embed``, ``cli``, ``testing``. Each ``__init__.py`` describes its package, and
tests/layers.py which package may import which.

The names below are those of the engine: ``from callboard.runtime import System``. They are imported on first use,
because ``callboard --help`` runs this file too.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engine.dispatcher import LoopDispatcher
    from .engine.reply import Reply, WouldDeadlock
    from .engine.simulation import Simulation
    from .engine.stats import Stats
    from .engine.system import System
    from .engine.threads import ThreadsDispatcher
    from .engine.trace import Traced

__all__ = [
    "LoopDispatcher",
    "Reply",
    "Simulation",
    "Stats",
    "System",
    "ThreadsDispatcher",
    "Traced",
    "WouldDeadlock",
]

_MODULES = {
    "LoopDispatcher": "dispatcher",
    "Reply": "reply",
    "Simulation": "simulation",
    "Stats": "stats",
    "System": "system",
    "ThreadsDispatcher": "threads",
    "Traced": "trace",
    "WouldDeadlock": "reply",
}

if not TYPE_CHECKING:  # else type checkers would accept any name

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it offers {', '.join(__all__)}")
        value = globals()[name] = getattr(import_module(f".engine.{_MODULES[name]}", __name__), name)
        return value


def __dir__() -> list[str]:
    return sorted((*__all__, "__doc__"))
