"""What the coordinator decides, and the actors that decide it. No file, no socket, no thread, no clock of its own.

- ``Actor`` (base.py) is what all actors derive from, those of other programs too; docs/runtime.md is the guide.
- ``GroupActor`` (group.py) is one group: its mailbox serialises join, sync, heartbeat, leave, commit and fetch. What it
  decides is in ``ClassicGroup`` (classic.py, rebalance.py, members.py) and ``GroupData`` (offsets.py), both pure.
- ``CoordinatorActor`` (coordinator.py) makes, finds and lists groups.
- ``OffsetWriterActor`` (writer.py) gathers records and is the only way into the log.
- ``TimerActor`` (timer.py) owns the timing wheel and delivers what is due.

The words they share are in messages.py, records.py and errors.py; what the outside supplies is in ports.py.
base.py, the timer, timer_messages.py and engine_ports.py import nothing of Kafka, and so may be used without it.

The names below are for programs that bring their own actors: ``from callboard.actors import Actor``. They are loaded
when they are asked for, because importing any module of this folder runs this file first.
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
    from .timer_messages import Cancel, Expired, Schedule

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
    "Cancel": ".timer_messages",
    "Expired": ".timer_messages",
    "Schedule": ".timer_messages",
    "Timeout": "pykka",
}

if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it offers {', '.join(__all__)}")
        found = globals()[name] = getattr(import_module(_ELSEWHERE.get(name, ".base"), __name__), name)
        return found
