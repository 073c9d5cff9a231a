"""What the coordinator decides, without I/O: actors, and the pure rules that they apply.

- ``Actor`` (base.py) is the base class of all actors, also those of other programs; docs/runtime.md is the guide.
- ``timer/``: the timing wheel and the ``TimerActor`` that owns it. With base.py and engine_ports.py it imports nothing
  of Kafka.
- ``group/``: one group. ``GroupActor`` serialises join, sync, heartbeat, leave, commit and fetch in its mailbox;
  ``ClassicGroup`` and ``GroupData`` are its rules, both pure.
- ``coordinator/``: ``CoordinatorActor`` makes, finds and lists groups.
- ``transactions/``: transactional ids.
- ``OffsetWriterActor`` (writer.py) batches records and is the only way into the log.

messages.py, records.py and errors.py are what they exchange; ports.py is what the environment supplies.

The names below are for programs with actors of their own: ``from callboard.actors import Actor``. They are imported on
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
        ChildAsleep,
        ChildFailed,
        MailboxFull,
        Overflow,
        SteadfastActor,
        Supervision,
    )
    from .timer.messages import Cancel, Expired, Schedule

__all__ = [
    "DEFERRED",
    "Actor",
    "ActorDeadError",
    "ActorFailed",
    "ActorRef",
    "Cancel",
    "ChildAsleep",
    "ChildFailed",
    "Expired",
    "MailboxFull",
    "Overflow",
    "Schedule",
    "SteadfastActor",
    "Supervision",
    "Timeout",
]

_ELSEWHERE = {
    "ActorDeadError": "pykka",
    "Cancel": ".timer.messages",
    "Expired": ".timer.messages",
    "Schedule": ".timer.messages",
    "Timeout": "pykka",
}

if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it offers {', '.join(__all__)}")
        found = globals()[name] = getattr(import_module(_ELSEWHERE.get(name, ".base"), __name__), name)
        return found
