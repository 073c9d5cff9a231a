"""What runs the actors: dispatchers, the log, Kafka's wire, the command line.

- system.py is the door for programs that embed actors; dispatcher.py, threads.py and simulation.py run them on a loop,
  on threads, in a test. docs/runtime.md is the guide.
- log/: the offsets log in Kafka's format, and the journal that makes it durable.
- kafka/: frames, connections, one module an API, topics in memory.
- node.py puts all of it together; serve.py and cli.py are the commands.

The names below are for those programs: ``from callboard.runtime import System``. They are loaded when they are asked
for, because ``callboard --help`` runs this file too, and should pay nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .dispatcher import LoopDispatcher
    from .reply import Reply, WouldDeadlock
    from .simulation import Simulation
    from .stats import Stats
    from .system import System
    from .threads import ThreadsDispatcher
    from .trace import Traced

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
        found = globals()[name] = getattr(import_module(f".{_WHERE[name]}", __name__), name)
        return found
