"""Messages to and from the TimerActor. Independent of Kafka."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple


class Schedule(NamedTuple):
    """Send ``Expired`` to ``owner`` at ``due_ms`` on the monotonic clock. Replaces a deadline of the same name."""

    owner: Any  # ActorRef
    name: Hashable
    due_ms: int


class Cancel(NamedTuple):
    """Cancel the deadline of this owner and name, if there is one."""

    owner: Any  # ActorRef
    name: Hashable


class Expired(NamedTuple):
    """From the TimerActor to an owner: the names of all its deadlines that are due."""

    names: tuple[Hashable, ...]


class Wake(NamedTuple):
    """From the ``Alarm`` to the TimerActor: the deadlines that are due at ``until_ms`` have passed.

    Messages that could have moved these deadlines are in the mailboxes of their owners.
    """

    until_ms: int
