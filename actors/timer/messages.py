"""Messages to and from the TimerActor. Any actor may use them; nothing here is Kafka's."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple


class Schedule(NamedTuple):
    """Send ``Expired`` to ``owner`` at ``due_ms`` on the monotonic clock. Replaces an earlier one of the same name."""

    owner: Any  # ActorRef
    name: Hashable
    due_ms: int


class Cancel(NamedTuple):
    """Drop the deadline that ``owner`` has under this name, if there is one."""

    owner: Any  # ActorRef
    name: Hashable


class Expired(NamedTuple):
    """From the TimerActor to an owner: all its deadlines that are due, in one message."""

    names: tuple[Hashable, ...]


class Wake(NamedTuple):
    """From the ``Alarm`` port to the TimerActor."""
