"""The reasons why a connection's socket is not read: a set. The socket is read only while it is empty."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto


class Hold(Enum):
    """A reason not to read requests."""

    TOO_MANY_REQUESTS = auto()  # too many are queued or unanswered
    BEHIND = auto()  # received requests wait for the next turn of the connection
    GROUP_FULL = auto()  # the mailbox of a group has too many messages
    PEER_SLOW = auto()  # the client does not read its responses
    THROTTLED = auto()  # the client is above a quota
    STOPPING = auto()  # the server stops
    WITHOUT_PLACE = auto()  # too many other connections are open (``connection_places.py``)
    AUTHENTICATING = auto()  # a token of the client is being checked, or its failure is answered after a delay


class Holds:
    """A set of holds. Several groups may be full at the same time: their hold is counted.

    ``on_change`` is called after each change.
    """

    __slots__ = ("_full_groups", "_on_change", "reasons")

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.reasons: set[Hold] = set()
        self._on_change = on_change
        self._full_groups = 0

    def add(self, hold: Hold) -> None:
        """Add a hold. Each GROUP_FULL needs a ``remove`` of its own, another hold only one."""
        self._full_groups += hold is Hold.GROUP_FULL
        self.reasons.add(hold)
        self._on_change()

    def replace(self, hold: Hold, *, is_held: bool) -> None:
        """Add or remove a hold, unless it is as it should be already."""
        if is_held != (hold in self.reasons):
            (self.add if is_held else self.remove)(hold)

    def remove(self, hold: Hold) -> None:
        """Remove a hold if it is there."""
        self._full_groups -= hold is Hold.GROUP_FULL
        if hold is not Hold.GROUP_FULL or not self._full_groups:
            self.reasons.discard(hold)
        self._on_change()

    def release(self) -> None:
        """Call back no more, so that the connection and its holds do not keep each other."""
        self._on_change = _ignore


def _ignore() -> None:
    pass
