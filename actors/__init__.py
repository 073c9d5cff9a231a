"""The decisions of the coordinator, without I/O: actors, and the pure rules that they apply.

- ``Actor`` (base.py) is the base class of all actors, including those of other programs; see docs/runtime.md.
- ``timer/``: the timing wheel and the ``TimerActor`` that owns it. It is independent of Kafka, as base.py
  and engine_ports.py are.
- ``group/``: one group. ``GroupActor`` serializes join, sync, heartbeat, leave, commit and fetch requests in its
  mailbox; ``ClassicGroup`` and ``GroupData`` contain its rules, both pure.
- ``consumer_group/``: groups of the consumer protocol (KIP-848). ``assignors/``: who gets which partition.
- ``coordinator/``: ``CoordinatorActor`` creates, finds and lists groups.
- ``transactions/``: transactional ids.
- ``OffsetWriterActor`` (writer.py) batches records; all records reach the log through it.

messages.py, records.py and errors.py define what actors exchange; ports.py defines what the environment supplies.

Programs with their own actors import the names below: ``from callboard.actors import Actor``. The names are loaded on
first use, because importing any module of this package runs this file first.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykka import ActorDeadError, Timeout

    from .base import (
        DEFERRED,
        Actor,
        ActorFailed,
        ActorRef,
        ChildFailed,
        ChildPassivated,
        MailboxFull,
        Overflow,
        ResilientActor,
        Supervision,
        UnhandledMessage,
    )
    from .timer.messages import Cancel, Expired, Schedule

__all__ = [
    "DEFERRED",
    "Actor",
    "ActorDeadError",
    "ActorFailed",
    "ActorRef",
    "Cancel",
    "ChildFailed",
    "ChildPassivated",
    "Expired",
    "MailboxFull",
    "Overflow",
    "ResilientActor",
    "Schedule",
    "Supervision",
    "Timeout",
    "UnhandledMessage",
]

_MODULES = {
    "ActorDeadError": "pykka",
    "Cancel": ".timer.messages",
    "Expired": ".timer.messages",
    "Schedule": ".timer.messages",
    "Timeout": "pykka",
}

if not TYPE_CHECKING:  # otherwise a type checker would accept every name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it offers {', '.join(__all__)}")
        value = globals()[name] = getattr(import_module(_MODULES.get(name, ".base"), __name__), name)
        return value


def __dir__() -> list[str]:
    return sorted((*__all__, "__doc__"))
