"""What runs the coordinator and serves it. ``engine/`` runs any program's actors; docs/runtime.md is its guide.

From the bottom up: ``common``, ``engine``, ``disk``, ``settings``, ``log``, ``topics``, ``kafka``, ``client``,
``loading``, ``node``, ``member``, ``embed``, ``cli``, ``testing``. Each ``__init__.py`` says what its package is for,
and tests/layers.py which package may import which.

The names below are the engine's: ``from callboard.runtime import System``. They are imported on first use, because
``callboard --help`` runs this file too.
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

_WHERE = {
    "LoopDispatcher": "dispatcher",
    "Reply": "reply",
    "Simulation": "simulation",
    "Stats": "stats",
    "System": "system",
    "ThreadsDispatcher": "threads",
    "Traced": "trace",
    "WouldDeadlock": "reply",
}

if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> object:
        if name not in _WHERE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it offers {', '.join(__all__)}")
        found = globals()[name] = getattr(import_module(f".engine.{_WHERE[name]}", __name__), name)
        return found
